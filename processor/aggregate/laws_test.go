package aggregate

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

type reading struct{ value int64 }

func value(r *reading) int64 { return r.value }

// TestAggregatesMergeAndSurviveASnapshot: an accumulator that was cut in two, or went through a
// snapshot, is that of all records; after an error it is what it was.
func TestAggregatesMergeAndSurviveASnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOf(rapid.OneOf(rapid.Int64Range(-100, 100), rapid.Int64())).Draw(t, "values")
		cut := rapid.IntRange(0, len(values)).Draw(t, "cut")
		laws(t, Count[reading](), values, cut)
		laws(t, Sum(value), values, cut)
		laws(t, Min(value), values, cut)
		laws(t, Max(value), values, cut)
		laws(t, Avg(value), values, cut)
		laws(t, Summarize(value), values, cut)
	})
}

func laws[A comparable](t *rapid.T, agg Of[reading, A], values []int64, cut int) {
	var whole, left, right, back A
	agg.Init(&whole)
	agg.Init(&left)
	agg.Init(&right)
	failed := false
	for i, v := range values {
		part := &left
		if i >= cut {
			part = &right
		}
		for _, acc := range []*A{&whole, part} {
			before := *acc
			if err := agg.Add(acc, &reading{value: v}); err != nil {
				failed = true
				if !errors.Is(err, ErrOverflow) || *acc != before {
					t.Fatalf("%s: %v left %v of %v", agg.Name(), err, *acc, before)
				}
			}
		}
	}
	before := left
	if err := agg.Merge(&left, &right); err != nil {
		if !errors.Is(err, ErrOverflow) || left != before {
			t.Fatalf("%s: %v left %v of %v", agg.Name(), err, left, before)
		}
		failed = true
	}
	if !failed && left != whole {
		t.Fatalf("%s: merged %v, whole %v", agg.Name(), left, whole)
	}
	code := agg.Encode(nil, &whole)
	if err := agg.Decode(code, &back); err != nil || back != whole {
		t.Fatalf("%s: %v came back as %v, %v", agg.Name(), whole, back, err)
	}
	if err := agg.Decode(append(code, 0), &back); err == nil {
		t.Fatalf("%s: a longer accumulator was taken", agg.Name())
	}
	if err := agg.Decode(code[:len(code)-1], &back); err == nil {
		t.Fatalf("%s: a shorter accumulator was taken", agg.Name())
	}
}

func TestMeansOfNothing(t *testing.T) {
	if (Mean{}).Avg() != 0 || (Mean{Sum: 3, Count: 2}).Avg() != 1.5 || (Summary{Sum: 3, Count: 2}).Avg() != 1.5 {
		t.Error("wrong mean")
	}
}
