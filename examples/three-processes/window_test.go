package main

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// feed adds the numbers from n to end, and sets the state back to its own snapshot before each of cuts.
func feed(t require, s *sums, n, end int64, cuts map[int64]bool) (*sums, []*total) {
	var fired []*total
	for ; n < end; n++ {
		if cuts[n] {
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatalf("%v", err)
			}
			s = newSums()
			if err := json.Unmarshal(text, s); err != nil {
				t.Fatalf("%v", err)
			}
		}
		now, err := s.add(recordAt(n))
		if err != nil {
			t.Fatalf("%v", err)
		}
		fired = append(fired, now...)
	}
	return s, fired
}

type require interface{ Fatalf(string, ...any) }

func TestARestoreChangesNoResult(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.Int64Range(1, 300).Draw(t, "records")
		cuts := map[int64]bool{}
		for _, n := range rapid.SliceOf(rapid.Int64Range(0, end)).Draw(t, "restores") {
			cuts[n] = true
		}
		whole, want := feed(t, newSums(), 0, end, nil)
		cut, got := feed(t, newSums(), 0, end, cuts)
		if got, want := append(got, cut.drain()...), append(want, whole.drain()...); !reflect.DeepEqual(got, want) {
			t.Fatalf("%d results with restores, %d without", len(got), len(want))
		}
	})
}

func TestEveryRecordFiresOnceAlsoOverADrain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.Int64Range(1, 300).Draw(t, "records")
		s, fired := feed(t, newSums(), 0, end, nil)
		fired = append(fired, s.drain()...)
		times := make([]int, end)
		for _, r := range fired {
			for _, n := range r.Numbers {
				times[n]++
			}
		}
		for n, k := range times {
			if k != 1 {
				t.Fatalf("record %d fired %d times", n, k)
			}
		}
		if s.drain() != nil {
			t.Fatalf("something was left")
		}
	})
}

func TestALateRecordIsAnErrorAndNotALoss(t *testing.T) {
	s := newSums()
	s.advance(stream.Watermark(epochMillis + 1000))
	if _, err := s.add(record{N: 1, Key: "k0", At: epochMillis}); !errors.Is(err, participant.ErrBug) {
		t.Errorf("error %v, want a bug of the source", err)
	}
}
