package participant_test

import (
	"testing"
	"time"
)

// A new leader gives every member one lease to come back. A member that had been waiting for a
// leader for long, and had grown patient, would miss it, and its generation would be closed.
func TestAMemberLooksForALeaderSeveralTimesWithinALeaseHoweverLongNoneWasThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const lease = 3 * time.Second
		st := onStage(t)
		last := time.Now()
		for range 100 {
			st.hangUp() // before any welcome: whoever answers does not lead
			get(t, "attach", st.attached)
			if waited := time.Since(last); waited > lease/4 {
				t.Fatalf("the member came %s after its last attempt, and has a lease of %s", waited, lease)
			}
			last = time.Now()
		}
	})
}
