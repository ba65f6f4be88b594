package app_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/unisink/unisink/cmd/bench/pairs"
)

func TestBenchPostgresMeasuresBothSidesAndCountsTheirRows(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real services; left out by -short")
	}
	cmd := exec.CommandContext(t.Context(), "unisink", "bench", "postgres", "--quick", "--nodes", "1", "--clients", "2", "-o", "json")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var got pairs.Result
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %q", err, out.String())
	}
	if len(got.Rows) != 1 || got.CutOff != "" || got.Pgbench == "" {
		t.Fatalf("got %+v", got)
	}
	if r := got.Rows[0]; r.Clients != 2 || r.Passes != 1 || r.PerS <= 0 || r.BarePerS <= 0 || r.Ratio <= 0 || r.P50 <= 0 || r.P99 < r.P50 || r.BareMean <= 0 {
		t.Errorf("%+v lacks a figure", r)
	}
}
