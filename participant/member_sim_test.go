package participant_test

import (
	"errors"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/participant/participanttest"
)

func quick() ledger.Settings { return ledger.Settings{EpochInterval: 100, PrepareTimeout: 5000} }

func TestAScopeOfOneCommitsExactlyOnceAndStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, store := newGroup(t, quick(), "solo"), participanttest.NewStore("s")
		p := g.run("solo", store, nil)
		time.Sleep(3 * time.Second)
		g.desire(ledger.Stopping)
		if err := p.wait(t, 5*time.Second); err != nil {
			t.Fatalf("run: %v", err)
		}
		exactlyOnce(t, store, "solo", 250)
		inOrder(t, store)
		if left := store.Prepared(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if epochs := count(store.Trail(), "commit "); epochs < 25 {
			t.Errorf("%d epochs in 3 s of 100 ms", epochs)
		}
	})
}

func TestAScopeOfTwoCommitsExactlyOnceAndStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, store := newGroup(t, quick(), "one", "two"), participanttest.NewStore("s")
		one, two := g.run("one", store, nil), g.run("two", store, nil)
		time.Sleep(3 * time.Second)
		g.desire(ledger.Stopping)
		if err := errors.Join(one.wait(t, 5*time.Second), two.wait(t, 5*time.Second)); err != nil {
			t.Fatalf("run: %v", err)
		}
		exactlyOnce(t, store, "one", 250)
		exactlyOnce(t, store, "two", 250)
		if left := store.Prepared(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if epochs := count(store.Trail(), "commit "); epochs < 50 {
			t.Errorf("%d branches in 3 s of 100 ms", epochs)
		}
	})
}
