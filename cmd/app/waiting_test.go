package app

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// said is what was logged and not taken yet.
type said struct {
	mu   sync.Mutex // guards text; held for memory only
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
	return s.text.String()
}

// A process that waits looks as if it hung, so it says what for: once, when that changes, and now and then.
func TestWhatIsWaitedForIsToldOnceAndThenSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log said
		var what atomic.Value
		what.Store("")
		var lasting atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			tellWaiting(ctx, slog.New(slog.NewTextHandler(&log, nil)), remindEvery, func() string { return what.Load().(string) }, func() { lasting.Add(1) })
		}()
		after := func(d time.Duration, says ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			var got []string
			for line := range strings.Lines(log.take()) {
				_, text, _ := strings.Cut(strings.TrimSpace(line), "msg=")
				got = append(got, text)
			}
			if !slices.Equal(got, says) {
				t.Errorf("after %s more it says %q, want %q", d, got, says)
			}
		}
		after(time.Hour)
		what.Store("a leader")
		after(400 * time.Millisecond) // most waits are short
		after(2*time.Second, `waiting for="a leader"`)
		after(remindEvery - time.Minute)
		after(time.Minute, `"still waiting" for="a leader" since=5m0s`)
		what.Store("a person")
		after(2*time.Second, `waiting for="a person"`)
		after(2*remindEvery, `"still waiting" for="a person" since=5m0s`, `"still waiting" for="a person" since=10m0s`)
		what.Store("")
		after(time.Hour)
		what.Store("a person") // the same again, later, is news
		after(2*time.Second, `waiting for="a person"`)
		if n := lasting.Load(); n != 6 {
			t.Errorf("it was told %d times that the waiting lasts, want 6", n)
		}
		cancel()
		<-ended
	})
}
