package participant

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestReportsOutliveTheirCallerAndAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		r := newReports(time.Second, func(ctx context.Context, batch []report) {
			<-ctx.Done() // its own limit, not the caller's end
			told.Add(int64(len(batch)))
		})
		ctx, cancel := context.WithCancel(t.Context())
		for range manyReports {
			r.add(ctx, "t", "r", Proof{})
		}
		cancel()
		synctest.Wait()
		if n := told.Load(); n != 0 {
			t.Errorf("%d reports ended with their caller", n)
		}
		began := time.Now()
		r.wait()
		if n := told.Load(); n != manyReports || time.Since(began) != time.Second {
			t.Errorf("%d reports were made within %s", n, time.Since(began))
		}
	})
}

// A second batch waits for the first, and is not told later than it would be alone.
func TestReportsTakeNoLongerThanTheirLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReports(time.Second, func(ctx context.Context, _ []report) { <-ctx.Done() })
		r.add(t.Context(), "1", "r", Proof{})
		time.Sleep(300 * time.Millisecond)
		r.add(t.Context(), "2", "r", Proof{})
		began := time.Now()
		r.wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("waited %s", took)
		}
	})
}

func TestWhatComesTogetherIsToldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]report
		var at []time.Duration
		began := time.Now()
		r := newReports(time.Second, func(_ context.Context, batch []report) {
			batches, at = append(batches, batch), append(at, time.Since(began))
			time.Sleep(5 * time.Millisecond)
		})
		for i := range 10 {
			r.add(t.Context(), string(rune('a'+i)), "r", Proof{})
			time.Sleep(15 * time.Millisecond)
		}
		r.wait()
		if len(batches) != 2 || len(batches[0]) != 7 || len(batches[1]) != 3 || batches[1][0].txn != "h" || at[0] != gatherReports || at[1] != 150*time.Millisecond {
			t.Errorf("told %v at %v", batches, at)
		}
		r.add(t.Context(), "z", "r", Proof{}) // after the end nothing gathers
		synctest.Wait()
		if len(batches) != 3 {
			t.Errorf("told %v", batches)
		}
		r.wait()
	})
}

func TestABatchThatIsLargeGathersNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var told []int
		r := newReports(time.Second, func(_ context.Context, batch []report) { told = append(told, len(batch)) })
		for range manyReports / 2 {
			r.add(t.Context(), "t", "r", Proof{})
		}
		synctest.Wait()
		if len(told) != 1 || told[0] != manyReports/2 || time.Since(began) != 0 {
			t.Errorf("told %v after %s", told, time.Since(began))
		}
		r.wait()
	})
}

func TestAReportWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var told atomic.Int64
		r := newReports(time.Minute, func(_ context.Context, batch []report) { <-gate; told.Add(int64(len(batch))) })
		for range manyReports {
			r.add(t.Context(), "t", "r", Proof{})
		}
		var room atomic.Bool
		go func() { r.add(t.Context(), "more", "r", Proof{}); room.Store(true) }()
		synctest.Wait()
		if room.Load() {
			t.Error("more reports were under way than may be")
		}
		close(gate)
		time.Sleep(gatherReports)
		synctest.Wait()
		if !room.Load() {
			t.Error("a report that waited for room was not taken")
		}
		r.wait()
		if n := told.Load(); n != manyReports+1 {
			t.Errorf("%d reports were made", n)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		r.add(ended, "late", "r", Proof{})
		r.wait()
		if n := told.Load(); n != manyReports+2 {
			t.Errorf("%d reports were made", n)
		}
	})
}
