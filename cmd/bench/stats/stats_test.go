package stats_test

import (
	"math"
	"testing"

	"github.com/unisink/unisink/cmd/bench/stats"
)

func TestMedianAndQuantile(t *testing.T) {
	if m := stats.Median([]float64{3, 1, 2}); m != 2 {
		t.Errorf("median %v", m)
	}
	if m := stats.Median([]float64{4, 1}); m != 2.5 {
		t.Errorf("median of two %v", m)
	}
	if !math.IsNaN(stats.Median(nil)) || !math.IsNaN(stats.Quantile(nil, 0.5)) {
		t.Error("nothing has a median")
	}
	v := make([]float64, 100)
	for i := range v {
		v[i] = float64(100 - i)
	}
	if q := stats.Quantile(v, 0.99); q != 100 {
		t.Errorf("quantile %v", q)
	}
}

func TestValuesHaveAMedianAndASlowEnd(t *testing.T) {
	values := make([]float64, 200)
	for i := range values {
		values[len(values)-1-i] = float64(i) // not sorted
	}
	if p50, p99 := stats.MiddleAndEnd(values); p50 != 99.5 || p99 != 198 {
		t.Errorf("of 0 to 199: %v and %v, want 99.5 and 198", p50, p99)
	}
	if values[0] != 199 {
		t.Error("the values were sorted in place")
	}
	if p50, p99 := stats.MiddleAndEnd(nil); p50 != 0 || p99 != 0 {
		t.Errorf("of nothing: %v and %v", p50, p99)
	}
}
