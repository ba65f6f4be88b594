package server

import (
	"fmt"
	"testing"
	"time"
)

func TestACallerAsksAtAPaceAndIsToldItsTurn(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	q := newQuota(10, 5)
	for i := range 5 {
		if wait, ok := q.take("a", start); !ok {
			t.Fatalf("question %d of the first burst waits %s", i+1, wait)
		}
	}
	for i := range 3 {
		want := time.Duration(i+1) * 100 * time.Millisecond
		if wait, ok := q.take("a", start); ok || wait != want {
			t.Fatalf("question %d too many: %t, wait %s, want %s", i+1, ok, wait, want)
		}
	}
	if _, ok := q.take("b", start); !ok {
		t.Error("another caller waits for the first one")
	}
	for i := range 3 { // those who waited come back in their turn
		if wait, ok := q.take("a", at(time.Duration(i+1)*100*time.Millisecond)); !ok {
			t.Errorf("turn %d had not come, %s more", i+1, wait)
		}
	}
	for i := range 6 { // an hour of silence is worth one burst
		if _, ok := q.take("a", at(time.Hour)); ok != (i < 5) {
			t.Errorf("question %d after an hour: %t", i+1, ok)
		}
	}
}

func TestWhoAsksAThousandAtOnceLeavesNoThousandTurnsBehind(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	q := newQuota(10, 5)
	for range 1000 {
		if wait, ok := q.take("a", now); !ok && wait > time.Second {
			t.Fatalf("told to wait %s", wait)
		}
	}
}

func TestIdleCallersAreForgotten(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	q := newQuota(10, 5)
	for i := range 10 * fewCallers {
		q.take(fmt.Sprint(i), now.Add(time.Duration(i)*100*time.Millisecond))
	}
	if len(q.callers) > 2*fewCallers {
		t.Errorf("%d callers are kept", len(q.callers))
	}
}
