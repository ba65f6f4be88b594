package app_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/cmd/bench"
	"github.com/unisink/unisink/cmd/bench/worker"
	"github.com/unisink/unisink/internal/services/servicestest"
)

// measured runs a bench command as a user does, on a real broker that others use too.
func measured(t *testing.T, into any, args ...string) {
	t.Helper()
	measuredAt(t, strings.Join(servicestest.Kafka(t), ","), into, args...)
}

func measuredAt(t *testing.T, brokers string, into any, args ...string) {
	t.Helper()
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
	var got bench.PipelineResult
	profiles := t.TempDir()
	measured(t, &got, "bench", "pipeline", "--records", "30000", "--latency", "1s", "--epoch", "100ms", "--epoch", "0s", "--nodes", "1", "--profile", profiles)
	want := []struct {
		job           string
		transactional bool
		watched       bool
	}{
		{worker.Pass, true, true},
		{worker.Pass, false, true},
		{worker.Window, true, true},
		{worker.Window, false, true},
		{worker.YAML, true, false},
		{worker.YAML, false, false},
		{worker.Loop, false, false},
	}
	if len(got.Rows) != len(want) || got.CutOff != "" {
		t.Fatalf("%d rows, want %d; cut off: %q", len(got.Rows), len(want), got.CutOff)
	}
	for i, r := range got.Rows {
		if w := want[i]; r.Job != w.job || r.Transactional != w.transactional || w.watched != (r.VisibleP50 > 0) || r.Passes != 1 {
			t.Errorf("row %d is %+v, want %+v", i, r, w)
		}
		if r.RecordsPerS <= 0 || r.CPUPerMillion <= 0 || r.VisibleP99 < r.VisibleP50 {
			t.Errorf("%+v lacks a figure", r)
		}
	}
	for _, kind := range []string{"cpu", "heap"} {
		files, err := filepath.Glob(filepath.Join(profiles, "window-yaml-100ms-*."+kind))
		if err != nil || len(files) != 1 {
			t.Errorf("%d profiles of the %s of YAML at 100ms (%v), want 1", len(files), kind, err)
		}
	}
}

func TestBenchPipelineShowsWhatItHasWhenTheTimeIsOver(t *testing.T) {
	b, err := devkafka.Start(devkafka.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var got bench.PipelineResult
	measuredAt(t, b.Addr(), &got, "bench", "pipeline", "--short", "--records", "1000", "--nodes", "1", "--within", "1ns", "--job", worker.Loop)
	if len(got.Rows) != 0 {
		t.Errorf("%d rows although nothing was begun", len(got.Rows))
	}
	if !strings.Contains(got.CutOff, "pass 1 of 1") {
		t.Errorf("cut off: %q", got.CutOff)
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

// The embedded broker will do: it is the pipeline that is killed.
func TestBenchStateMakesTheSameWithKillsAndReadsFromTheRestorePoint(t *testing.T) {
	if testing.Short() {
		t.Skip("starts pipelines and kills them; left out by -short")
	}
	b, err := devkafka.Start(devkafka.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var got bench.StateResult
	measuredAt(t, b.Addr(), &got, "bench", "state", "--nodes", "1")
	if len(got.Rows) != 3 || got.CutOff != "" {
		t.Fatalf("%d rows, cut off: %q", len(got.Rows), got.CutOff)
	}
	plain, killed, held := got.Rows[0], got.Rows[1], got.Rows[2]
	if plain.Kills != 0 || killed.Kills != 1 || plain.Digest != killed.Digest || plain.Results != killed.Results || plain.Records != 20_000 {
		t.Errorf("%+v and %+v", plain, killed)
	}
	if held.Shape != bench.ShapeHeld || held.Results != 30_000 || held.Store.ChangedShare <= 0 || held.Store.Share <= 0 || held.RestoredMB <= 0 {
		t.Errorf("%+v lacks a figure", held)
	}
	for _, r := range got.Rows {
		if r.Epochs.Count < 5 || r.Epochs.P50 <= 0 || r.Epochs.P99 < r.Epochs.P50 || len(r.Restarts) != r.Kills || r.PeakRSSMB <= 0 {
			t.Errorf("%+v lacks a figure", r)
		}
	}
}

func TestBenchShowsWhatItHasWhenItIsInterrupted(t *testing.T) {
	b, err := devkafka.Start(devkafka.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cmd := exec.CommandContext(t.Context(), "unisink", "bench", "pipeline", "--short", "--records", "1000", "--passes", "1000", "--nodes", "1",
		"--job", worker.Loop, "--brokers", b.Addr(), "-o", "json")
	var out bytes.Buffer
	cmd.Stdout = &out
	progress, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(progress); lines.Scan(); {
		said = append(said, lines.Text())
		if strings.Contains(lines.Text(), "pass 2 of 1000") {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	var got bench.PipelineResult
	if jerr := json.Unmarshal(out.Bytes(), &got); jerr != nil {
		t.Fatalf("%v: %q\n%s", jerr, out.String(), strings.Join(said, "\n"))
	}
	if err == nil || len(got.Rows) != 1 || got.Rows[0].Passes < 2 || got.Rows[0].Passes >= 1000 || got.CutOff == "" {
		t.Errorf("ended with %v and %+v", err, got)
	}
}
