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
		r, made := newReports(time.Second), atomic.Int64{}
		ctx, cancel := context.WithCancel(t.Context())
		for range manyReports {
			r.add(ctx, func(ctx context.Context) {
				<-ctx.Done() // its own limit, not the caller's end
				made.Add(1)
			})
		}
		cancel()
		synctest.Wait()
		if n := made.Load(); n != 0 {
			t.Errorf("%d reports ended with their caller", n)
		}
		began := time.Now()
		r.wait()
		if n := made.Load(); n != manyReports || time.Since(began) != time.Second {
			t.Errorf("%d reports were made within %s", n, time.Since(began))
		}
	})
}

func TestAReportWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, gate := newReports(time.Minute), make(chan struct{})
		for range manyReports {
			r.add(t.Context(), func(context.Context) { <-gate })
		}
		var more atomic.Bool
		go r.add(t.Context(), func(context.Context) { more.Store(true) })
		synctest.Wait()
		if more.Load() {
			t.Error("more reports were under way than may be")
		}
		close(gate)
		synctest.Wait()
		r.wait()
		if !more.Load() {
			t.Error("a report that waited for room was not made")
		}
	})
}
