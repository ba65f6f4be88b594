package app_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/unisink/unisink/cmd/bench"
	"github.com/unisink/unisink/internal/services/servicestest"
)

// measured runs a bench command as a user does, on a real broker that others use too.
func measured(t *testing.T, into any, args ...string) {
	t.Helper()
	brokers := strings.Join(servicestest.Kafka(t), ",")
	cmd := exec.CommandContext(t.Context(), "unisink", append(args, "--brokers", brokers, "--quick", "-o", "json")...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
}

func TestBenchPipelineMeasuresWhatItHasChecked(t *testing.T) {
	var got struct {
		Rows []bench.PipelineRow `json:"rows"`
	}
	measured(t, &got, "bench", "pipeline", "--records", "30000", "--latency", "1s", "--epoch", "100ms", "--epoch", "0s", "--nodes", "1")
	if len(got.Rows) != 4 {
		t.Fatalf("%d rows, want two jobs with and without transactions", len(got.Rows))
	}
	for i, r := range got.Rows {
		if r.Job != bench.Jobs()[i/2] || r.Transactional != (i%2 == 0) || r.Passes != 1 {
			t.Errorf("row %d is %+v", i, r)
		}
		if r.RecordsPerS <= 0 || r.CPUPerMillion <= 0 || r.VisibleP50 <= 0 || r.VisibleP99 < r.VisibleP50 {
			t.Errorf("%+v lacks a figure", r)
		}
	}
}

func TestBenchRecoverKillsAndSeesEveryRecordOnce(t *testing.T) {
	var got struct {
		Rows []bench.RecoverRow `json:"rows"`
	}
	measured(t, &got, "bench", "recover")
	events := []string{bench.EventKilled, bench.EventPaused, bench.EventLeader} // a user's broker is left alive
	if len(got.Rows) != len(events) {
		t.Fatalf("%d rows, want %v", len(got.Rows), events)
	}
	for i, r := range got.Rows {
		if r.Event != events[i] || r.Repeats != 1 || r.VisibleMedian <= 0 || r.UnblockedMedian <= 0 {
			t.Errorf("row %d is %+v", i, r)
		}
	}
}
