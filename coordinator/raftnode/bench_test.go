package raftnode

import (
	"os"
	"testing"
	"time"
)

// TestBench prints the table of Bench when RAFTNODE_BENCH is set to a duration.
func TestBench(t *testing.T) {
	d, err := time.ParseDuration(os.Getenv("RAFTNODE_BENCH"))
	if err != nil {
		t.Skip("set RAFTNODE_BENCH=10s to measure")
	}
	rows, err := Bench(t.Context(), BenchConfig{Dir: t.TempDir(), Callers: benchCallers(), Duration: d})
	for _, r := range rows {
		t.Logf("%4d callers: %8.0f/s p50 %8s p99 %8s | raw %8.0f/s p50 %8s p99 %8s | x%.2f, latency x%.2f, %.3f syncs/txn",
			r.Callers, r.DecisionsPerS, r.P50, r.P99, r.RawPerS, r.RawP50, r.RawP99,
			r.DecisionsPerS/r.RawPerS, float64(r.P50)/float64(r.RawP50), r.SyncsPerTxn)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func benchCallers() []int {
	if os.Getenv("RAFTNODE_CALLERS") == "512" {
		return []int{512}
	}
	return []int{1, 16, 128, 512}
}
