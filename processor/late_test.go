package processor

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/processor/processortest"
)

// What is dropped is said, also when it was a drain that fired the windows early; and not for every
// record.
func TestLateRecordsThatGoNowhereAreToldOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		src := processortest.NewSource("in", "0")
		r := newRig(t, src, sums(t), "one", "two")
		var log bytes.Buffer
		task := newTask(r.build(), "test", 0, slog.New(slog.NewTextHandler(&log, nil)))
		_, err := r.scope.Begin(ctx, task)
		r.must(err)
		src.Append("0", record("1", "a", 5000, 1), record("2", "a", 100, 1), record("3", "a", 200, 1))
		synctest.Wait()
		for n := uint64(1); n <= 3; n++ {
			src.Append("0", record("late", "a", 300, 1))
			synctest.Wait()
			order(t, task, n, false)
			synctest.Wait()
			r.must(r.scope.Decide(ctx))
			r.must(r.scope.Finish(ctx))
		}
		if n := strings.Count(log.String(), "are in no output"); n != 1 {
			t.Errorf("told %d times within a minute:\n%s", n, log.String())
		}
		time.Sleep(2 * time.Minute)
		src.Append("0", record("later", "a", 400, 1))
		synctest.Wait()
		order(t, task, 4, false)
		synctest.Wait()
		if n := strings.Count(log.String(), "are in no output"); n != 2 || !strings.Contains(log.String(), "late=6") {
			t.Errorf("after a minute:\n%s", log.String())
		}
		r.must(task.Halted(ctx, "test"))
	})
}

func TestSkippedRecordsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		src := processortest.NewSource("in", "0")
		r := newRig(t, src, passing(t, func(s *Stream[reading]) *Stream[reading] { return s.SkipBad() }), "one", "two")
		var log bytes.Buffer
		task := newTask(r.build(), "test", 0, slog.New(slog.NewTextHandler(&log, nil)))
		_, err := r.scope.Begin(ctx, task)
		r.must(err)
		for n := uint64(1); n <= 2; n++ {
			src.Append("0", record("bad", "a", 300, 1), record("1", "a", 300, 1))
			synctest.Wait()
			order(t, task, n, false)
			synctest.Wait()
			r.must(r.scope.Decide(ctx))
			r.must(r.scope.Finish(ctx))
		}
		if n := strings.Count(log.String(), "bad records were skipped"); n != 1 || !strings.Contains(log.String(), "skipped=1 new=1") {
			t.Errorf("told %d times within a minute:\n%s", n, log.String())
		}
		r.must(task.Halted(ctx, "test"))
	})
}

// A pipeline that takes every record for bad goes on, and nothing else would show it.
func TestDeadLettersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		src := processortest.NewSource("in", "0")
		r := newRig(t, src, burying(encodeSum), "one", "late", "dead")
		var log bytes.Buffer
		task := newTask(r.build(), "test", 0, slog.New(slog.NewTextHandler(&log, nil)))
		_, err := r.scope.Begin(ctx, task)
		r.must(err)
		for n := uint64(1); n <= 2; n++ {
			src.Append("0", record("no map", "a", 300, 1), record("1", "a", 300, 1))
			synctest.Wait()
			order(t, task, n, false)
			synctest.Wait()
			r.must(r.scope.Decide(ctx))
			r.must(r.scope.Finish(ctx))
		}
		if n := strings.Count(log.String(), "bad records went to dead letters"); n != 1 || !strings.Contains(log.String(), "dead_letters=1 new=1") {
			t.Errorf("told %d times within a minute:\n%s", n, log.String())
		}
		r.must(task.Halted(ctx, "test"))
	})
}
