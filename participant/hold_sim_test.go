package participant_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPendingEpochsHoldTheTaskBackAndNeverSayNo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		st.epoch(7, 1, "a")
		get(t, "vote", st.voted)
		st.epoch(7, 2, "b")
		get(t, "vote", st.voted)
		branch := make(chan error, 1)
		go func() {
			_, err := st.run.Branch(t.Context(), "out")
			branch <- err
		}()
		none(t, "a third epoch", 40*time.Second, branch)
		none(t, "a vote", time.Second, st.voted)
		st.committed(7, 1)
		if err := get(t, "branch", branch); err != nil {
			t.Fatal(err)
		}
	})
}

// A member that takes no barriers (a sink) adds nothing to an old epoch while no leader is heard, and
// goes on as soon as one is: the barrier that ends the epoch comes behind what it has yet to take in.
func TestASinkIsHeldBackWhileNoLeaderIsHeardAndNoLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		if _, err := st.run.Branch(t.Context(), "out"); err != nil {
			t.Fatal(err)
		}
		old := time.Hour
		if testing.Short() {
			old = 5 * time.Minute // a hundred leases, and as many renewals for the race detector to look at
		}
		time.Sleep(old) // an old epoch alone is no reason
		if _, err := st.run.Branch(t.Context(), "out"); err != nil {
			t.Fatal(err)
		}
		st.mu.Lock()
		st.onRenew = func() error { return status.Error(codes.Unavailable, "gone") }
		st.mu.Unlock()
		get(t, "attach", st.attached)
		time.Sleep(4 * time.Second)
		branch := make(chan error, 1)
		go func() {
			_, err := st.run.Branch(t.Context(), "out")
			branch <- err
		}()
		none(t, "more of the epoch without a leader", time.Minute, branch)
		st.mu.Lock()
		st.onRenew = nil
		st.mu.Unlock()
		for len(st.attached) > 0 {
			<-st.attached
		}
		get(t, "the next attach", st.attached)
		st.welcome()
		if err := get(t, "branch", branch); err != nil {
			t.Fatal(err)
		}
	})
}
