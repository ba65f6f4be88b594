package state_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/processor/state"
)

var errOverflow = errors.New("overflow")

// list is an aggregate that shows which records came into a session, and in which order. It refuses 13.
type list struct{ records []int }

func listFold(now *int) *state.Fold[list] {
	return &state.Fold[list]{
		Init: func(acc *list) { acc.records = nil },
		Add: func(acc *list) error {
			if *now == 13 {
				return errOverflow
			}
			acc.records = append(acc.records, *now)
			return nil
		},
		Merge: func(acc, other *list) error {
			if len(acc.records)+len(other.records) > 12 {
				return errOverflow
			}
			acc.records = append(acc.records, other.records...)
			return nil
		},
	}
}

type modelSession struct {
	key  string
	span state.Span
	acc  []int
}

// modelAdd is Add, written so that it is plainly right.
func modelAdd(open []modelSession, key string, at, gap, closed int64, record int) (_ []modelSession, span state.Span, late, failed bool) {
	span = state.Span{Start: at, End: at + gap}
	var joined, rest []modelSession
	for _, m := range open {
		if m.key == key && m.span.End > closed && m.span.Start <= at+gap && at <= m.span.End {
			joined = append(joined, m)
			span.Start, span.End = min(span.Start, m.span.Start), max(span.End, m.span.End)
		} else {
			rest = append(rest, m)
		}
	}
	if span.End <= closed {
		return open, span, true, false
	}
	slices.SortFunc(joined, func(a, b modelSession) int { return cmp.Compare(a.span.Start, b.span.Start) })
	var acc []int
	for _, m := range joined {
		acc = append(acc, m.acc...)
	}
	if record == 13 || len(joined) > 1 && len(acc) > 12 {
		return open, span, false, true
	}
	return append(rest, modelSession{key, span, append(acc, record)}), span, false, false
}

func TestSessionsAreWhatTheyAreSaidToBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s state.Sessions[list]
		var open []modelSession
		gap := rapid.Int64Range(1, 8).Draw(t, "gap")
		watermark := int64(math.MinInt64)
		record := 0
		fold := listFold(&record)
		key := rapid.StringMatching(`[a-c]{0,2}`)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := key.Draw(t, "key")
				at := rapid.Int64Range(0, 60).Draw(t, "at")
				record = rapid.IntRange(0, 40).Draw(t, "record")
				var want state.Span
				var late, failed bool
				open, want, late, failed = modelAdd(open, k, at, gap, watermark, record)
				if got := s.Span(state.Hash([]byte(k)), []byte(k), at, gap, watermark); got != want {
					t.Fatalf("span %v, want %v", got, want)
				}
				got, tooLate, err := s.Add(state.Hash([]byte(k)), []byte(k), at, gap, watermark, fold)
				if got != want || tooLate != late || (err != nil) != failed {
					t.Fatalf("%v, late %v, %v; want %v, late %v, failed %v", got, tooLate, err, want, late, failed)
				}
			},
			"watermark": func(t *rapid.T) { // it passes ends before anything fires
				watermark = max(watermark, rapid.Int64Range(-5, 70).Draw(t, "watermark"))
			},
			"fire": func(t *rapid.T) {
				var got, want []modelSession
				if first, ok := s.First(); ok {
					for _, m := range open {
						if m.span.End < first {
							t.Fatalf("first is %d, and %v is open", first, m)
						}
					}
				} else if len(open) > 0 {
					t.Fatalf("none is said to be open, there are %v", open)
				}
				for _, m := range open {
					if m.span.End <= watermark {
						want = append(want, m)
					}
				}
				open = slices.DeleteFunc(open, func(m modelSession) bool { return m.span.End <= watermark })
				slices.SortFunc(want, func(a, b modelSession) int {
					return cmp.Or(cmp.Compare(a.span.End, b.span.End), cmp.Compare(a.key, b.key), cmp.Compare(a.span.Start, b.span.Start))
				})
				fails := rapid.Bool().Draw(t, "f fails once")
				for {
					err := s.Fire(watermark, func(key []byte, span state.Span, acc *list) error {
						if fails && len(got) == 1 {
							fails = false
							return errOverflow
						}
						got = append(got, modelSession{string(key), span, slices.Clone(acc.records)})
						return nil
					})
					if err == nil {
						break
					}
				}
				if a, b := fmt.Sprint(got), fmt.Sprint(want); a != b {
					t.Fatalf("fired %s, want %s", a, b)
				}
			},
			"reset": func(t *rapid.T) {
				if rapid.IntRange(0, 20).Draw(t, "rarely") == 0 {
					s.Reset()
					open = nil
				}
			},
			"": func(t *rapid.T) {
				if s.Len() != len(open) {
					t.Fatalf("%d sessions, want %d", s.Len(), len(open))
				}
			},
		})
	})
}

func TestSessionsComeAndGoWithoutGrowing(t *testing.T) {
	var s state.Sessions[int64]
	one := &state.Fold[int64]{
		Init: func(acc *int64) { *acc = 0 }, Add: func(acc *int64) error { *acc++; return nil },
		Merge: func(acc, other *int64) error { *acc += *other; return nil },
	}
	keys := make([][]byte, 3000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "a key that is not so short, %d", i*7919%len(keys))
	}
	var last []byte
	round := func(n int) {
		last = last[:0]
		for k := range 1000 {
			key := keys[(n*1000+k)%len(keys)]
			if _, _, err := s.Add(state.Hash(key), key, int64(n)*10, 5, math.MinInt64, one); err != nil {
				t.Fatal(err)
			}
		}
		fired := 0
		err := s.Fire(int64(n)*10+5, func(key []byte, _ state.Span, acc *int64) error {
			if bytes.Compare(last, key) >= 0 || *acc != 1 {
				t.Fatalf("%q after %q with %d records", key, last, *acc)
			}
			last = append(last[:0], key...)
			fired++
			return nil
		})
		if err != nil || fired != 1000 || s.Len() != 0 {
			t.Fatal(fired, s.Len(), err)
		}
	}
	for n := range 20 {
		round(n)
	}
	n := 20
	if got := testing.AllocsPerRun(20, func() { round(n); n++ }); got > 10 { // moving the keys, now and then
		t.Errorf("%.0f allocations for 1,000 sessions", got)
	}
}
