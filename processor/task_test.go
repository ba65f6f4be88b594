package processor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/processortest"
)

func TestZ5_RecordsFetchedBeforeARestoreAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		src := processortest.NewSource("in", "0")
		src.Batch = 1
		r := newRig(t, src, sums(t), "one", "two")
		task := newTask(r.build(), "test", 0, nil)
		run, err := r.scope.Begin(ctx, task)
		r.must(err)
		src.Append("0", record("1", "a", 100, 1))
		synctest.Wait()
		order(t, task, 1, false)
		r.must(r.scope.Decide(ctx))
		order(t, task, 2, false) // not decided: held back from here, with record 2 in the loop and record 3 fetched
		synctest.Wait()
		src.Append("0", record("2", "a", 1100, 2), record("3", "a", 2100, 4))
		synctest.Wait()
		if _, err := run.Contribution(ctx, 2); err != nil {
			t.Fatal(err)
		}
		r.must(task.Halted(ctx, "test"))

		_, err = r.scope.Begin(ctx, task) // the same process goes on
		r.must(err)
		src.End()
		synctest.Wait()
		order(t, task, 1, true)
		r.must(r.scope.Decide(ctx))
		r.must(r.scope.Finish(ctx))
		r.must(task.Halted(ctx, "final"))
		r.expect("one", "a=0 1", "a=1000 2", "a=2000 4")
		if c := task.p.Counters(); c.Records != 3 {
			t.Errorf("%+v, want three records", c)
		}
	})
}

func TestWhatCannotFinishHoldsTheSourceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		src := processortest.NewSource("in", "0")
		src.Batch = 1
		r := newRig(t, src, sums(t), "one", "two")
		task := newTask(r.build(), "test", 0, nil)
		_, err := r.scope.Begin(ctx, task)
		r.must(err)
		order(t, task, 1, false)
		order(t, task, 2, false)
		for i := range 10 {
			src.Append("0", record(fmt.Sprint(i), "a", int64(i)*1000, 1))
		}
		synctest.Wait()
		if c := task.p.Counters(); c.Records != 1 {
			t.Errorf("%d records were taken while two epochs are open; the second one fires and must wait", c.Records)
		}
		r.must(r.scope.Decide(ctx))
		synctest.Wait()
		if c := task.p.Counters(); c.Records != 1 {
			t.Errorf("%d records were taken before anything is proven", c.Records)
		}
		r.must(r.scope.Finish(ctx))
		synctest.Wait()
		if c := task.p.Counters(); c.Records != 10 {
			t.Errorf("%d records were taken after an epoch is proven, want 10", c.Records)
		}
		r.must(task.Halted(ctx, "test"))
	})
}

func TestAnEpochThatWasHeldBackTakesWhatEverySplitHasAtHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		splits := []string{"0", "1", "2", "3"}
		src := processortest.NewSource("in", splits...)
		r := newRig(t, src, passing(t), "one", "two")
		task := newTask(r.build(), "test", 0, nil)
		run, err := r.scope.Begin(ctx, task)
		r.must(err)
		order(t, task, 1, false)
		order(t, task, 2, false) // two epochs are open: the next is held back
		synctest.Wait()
		for _, split := range splits {
			src.Append(split, record(split, "a", 1, 1))
		}
		time.Sleep(100 * time.Millisecond)
		order(t, task, 3, false) // by the clock, while the loop waits for a branch
		r.must(r.scope.Decide(ctx))
		r.must(r.scope.Finish(ctx))
		c, err := run.Contribution(ctx, 3)
		r.must(err)
		if len(c.Positions) != len(splits) {
			t.Errorf("the epoch has records of %d splits, and %d had some", len(c.Positions), len(splits))
		}
		r.must(task.Halted(ctx, "test"))
	})
}

func TestASourceThatFailsEndsTheGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broker is gone")
		src := processortest.NewSource("in", "0")
		r := newRig(t, src, sums(t), "one", "two")
		task := newTask(r.build(), "test", 0, nil)
		run, err := r.scope.Begin(t.Context(), task)
		r.must(err)
		src.Fail(broken)
		<-run.Done()
		if err := run.Err(); !errors.Is(err, broken) || !strings.Contains(err.Error(), `source "in"`) {
			t.Errorf("got %v", err)
		}
		r.must(task.Halted(t.Context(), "failed"))
	})
}

func TestSilenceIsMeasuredWhileTheSourceIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		src := processortest.NewSource("in", "0", "1")
		r := newRig(t, src, sums(t, func(w *Windowed[reading, int64]) *Windowed[reading, int64] {
			return w.IdleAfter(5 * time.Second)
		}), "one", "two")
		task := newTask(r.build(), "test", 0, nil)
		run, err := r.scope.Begin(ctx, task)
		r.must(err)
		src.Append("0", record("1", "a", 0, 1), record("2", "a", 1000, 1))
		synctest.Wait()
		time.Sleep(4 * time.Second)
		if task.p.Counters().Fired != 0 {
			t.Error("fired before the other split was idle")
		}
		time.Sleep(2 * time.Second)
		r.must(run.Await(ctx, func(_, _ bool, lag int64) bool { return lag == 0 }))
		if task.p.Counters().Fired != 0 {
			t.Error("fired although every split is silent")
		}
		src.Append("0", record("3", "a", 1001, 1))
		synctest.Wait()
		if task.p.Counters().Fired != 1 {
			t.Error("not fired although the only split that speaks is past the end")
		}
		r.must(task.Halted(ctx, "test"))
	})
}

func TestTheCoordinatorHearsOfWorkOncePerEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		src := processortest.NewSource("in", "0")
		r := newRig(t, src, sums(t), "one", "two")
		task := newTask(r.build(), "test", 0, nil)
		run, err := r.scope.Begin(ctx, task)
		r.must(err)
		worked := func() (w bool) {
			synctest.Wait()
			r.must(run.Await(ctx, func(work, _ bool, _ int64) bool { w = work; return true }))
			return w
		}
		if worked() {
			t.Error("work before the first record")
		}
		src.Append("0", record("1", "a", 0, 1))
		if !worked() {
			t.Error("no work after a record")
		}
		order(t, task, 1, false)
		if worked() {
			t.Error("work after the barrier")
		}
		src.End()
		r.must(run.Await(ctx, func(work, ended bool, _ int64) bool { return work && ended }))
		r.must(task.Halted(ctx, "test"))
	})
}

// TestCrashesOfTheWholeProcessLoseNothing runs the real goroutines and kills them at many moments.
func TestCrashesOfTheWholeProcessLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		src := processortest.NewSource("in", "0", "1")
		r := newRig(t, src, sums(t), "one", "two")
		const records = 400
		for i := range records {
			src.Append(fmt.Sprint(i%2), record(fmt.Sprint(i), fmt.Sprintf("k%d", i%3), int64(i)*100, 1))
		}
		src.End()
		for life := 0; ; life++ {
			task := newTask(r.build(), "test", 0, nil)
			run, err := r.scope.Begin(ctx, task)
			r.must(err)
			for n := uint64(1); n <= uint64(life%3); n++ {
				order(t, task, n, false)
				r.must(r.scope.Decide(ctx))
				r.must(r.scope.Finish(ctx))
			}
			if life == 10 {
				r.must(run.Await(ctx, func(_, ended bool, _ int64) bool { return ended }))
				order(t, task, uint64(life%3)+1, true)
				r.must(r.scope.Decide(ctx))
				r.must(r.scope.Finish(ctx))
				r.must(task.Halted(ctx, "done"))
				break
			}
			r.must(task.Halted(ctx, "killed"))
		}
		total, seen := 0, map[string]bool{}
		for _, v := range r.values("one") {
			var n int
			window, count, _ := strings.Cut(v, " ")
			if _, err := fmt.Sscan(count, &n); err != nil || seen[window] {
				t.Fatalf("result %q: %v, seen before: %v", v, err, seen[window])
			}
			seen[window] = true
			total += n
		}
		if total != records {
			t.Errorf("the windows hold %d records, want %d", total, records)
		}
	})
}

func order(t *testing.T, task *task, n uint64, drain bool) {
	t.Helper()
	err := task.Barrier(context.Background(), participant.Barrier{Generation: task.gen, N: n, Final: drain, Drain: drain})
	if err != nil {
		t.Fatal(err)
	}
}
