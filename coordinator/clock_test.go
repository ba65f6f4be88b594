package coordinator_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator"
	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// The clock of a node was two minutes ahead and is set right. The stamps of entries do not go back, and a client may announce
// what is to be decided within seconds all the same.
func TestWhatIsAnnouncedAfterTheClockWasSetBackIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var off atomic.Int64
		c := coordinatortest.StartWith(t, 1, func(cfg *coordinator.Config) {
			cfg.Seams.Raft.Skew = func() time.Duration { return time.Duration(off.Load()) }
		})
		cl := c.Client()
		announce := func() string {
			t.Helper()
			txn, err := participant.NewTxnID()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cl.Begin(t.Context(), txn, []string{"out"}, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			return txn
		}
		off.Store(int64(2 * time.Minute))
		announce()
		off.Store(0)
		time.Sleep(time.Second)
		txn := announce()
		time.Sleep(3 * time.Minute)
		got, err := cl.Transactions().GetTransaction(t.Context(), &unisinkv1.GetTransactionRequest{Txn: txn})
		if err != nil || got.GetTransaction().GetOutcome() != unisinkv1.Outcome_OUTCOME_ABORTED {
			t.Errorf("long after its deadline it is %v, %v", got, err)
		}
	})
}
