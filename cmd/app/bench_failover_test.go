package app_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/unisink/unisink/cmd/bench/decisions"
)

func TestBenchFailoverKillsLeadersAndAsksForWhatWasTold(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	cmd := exec.CommandContext(t.Context(), "unisink", "bench", "failover", "--quick", "-o", "json")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var got decisions.FailoverResult
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %q", err, out.String())
	}
	if got.Kills == 0 || len(got.Each) != got.Kills || got.Told == 0 || got.Lost != 0 || got.Errors != 0 {
		t.Errorf("got %+v", got)
	}
}
