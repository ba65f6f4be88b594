package orders

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/processor/stream"
)

func TestAnOrderIsJSONThatSaysItsKeyAmountAndTime(t *testing.T) {
	o := New(1000, 50, 100, time.Now())
	for _, n := range []int{0, 1, 999, Most - 1} {
		text := o.appendOrder(nil, n, o.at(n, 0))
		var doc struct {
			Key    string `json:"key"`
			Amount int64  `json:"amount"`
			At     int64  `json:"at"`
		}
		if err := json.Unmarshal(text, &doc); err != nil || len(text) > orderBytes {
			t.Fatalf("%d bytes: %s: %v", len(text), text, err)
		}
		if doc.Key != fmt.Sprintf("k-%08d", o.key(n)) || doc.Amount != o.amount(n) || doc.At != o.at(n, 0) {
			t.Errorf("order %d says %+v", n, doc)
		}
	}
}

func TestHeldOrdersTakeEveryKeyInTurn(t *testing.T) {
	for _, keys := range []int{1, 10, 7919, 30_000} {
		o := NewHeld(keys)
		seen := map[int]bool{}
		for n := range keys {
			seen[o.key(n)] = true
		}
		if len(seen) != keys || o.key(keys) != o.key(0) {
			t.Errorf("%d of %d keys had their turn", len(seen), keys)
		}
	}
}

// results are what the first n orders make, computed as directly as can be.
func results(o Orders, n int) map[[2]int64][2]int64 {
	out := map[[2]int64][2]int64{}
	size := o.Window.Milliseconds()
	for i := range n {
		at := o.at(i, 1_760_000_000_000)
		k := [2]int64{int64(o.key(i)), at - at%size}
		v := out[k]
		out[k] = [2]int64{v[0] + o.amount(i), v[1] + 1}
	}
	return out
}

func result(key, start, sum, count int64) *stream.Record {
	return &stream.Record{Value: fmt.Appendf(nil, `{"key":"k-%08d","window_start":%d,"window_end":0,"sum":%d,"count":%d}`, key, start, sum, count)}
}

func TestTalliesSeeWhatIsMissingDoubledOrWrongInAnyOrder(t *testing.T) {
	for name, o := range map[string]Orders{"orders": New(5_000, 300, 1_000, time.Now()), "held": NewHeld(300)} {
		t.Run(name, func(t *testing.T) {
			all := results(o, 5_000)
			var digests []Outcome
			for range 2 { // a map's order is another each time
				s := newTallies(o, 5_000)
				for k, v := range all {
					if err := s.take(result(k[0], k[1], v[0], v[1])); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.whole(); err != nil {
					t.Fatal(err)
				}
				digests = append(digests, s.got)
			}
			if digests[0] != digests[1] || digests[0].Results != len(all) || digests[0].Digest == 0 {
				t.Errorf("digests %v", digests)
			}
			s := newTallies(o, 5_000)
			if err := s.whole(); err == nil || !strings.Contains(err.Error(), fmt.Sprint(len(all))) {
				t.Errorf("got %v, want all missing", err)
			}
			for k, v := range all {
				if err := s.take(result(k[0], k[1], v[0]+1, v[1])); err == nil {
					t.Error("a wrong sum was taken")
				}
				if err := s.take(result(k[0], k[1], v[0], v[1])); err != nil {
					t.Fatal(err)
				}
				if err := s.take(result(k[0], k[1], v[0], v[1])); err == nil {
					t.Error("a doubled result was taken")
				}
				break
			}
			if s.take(result(299, 10*o.Window.Milliseconds()+o.base, 1, 1)) == nil && !o.inTurn || s.take(result(300, o.base, 1, 1)) == nil {
				t.Error("a result of no order was taken")
			}
		})
	}
}
