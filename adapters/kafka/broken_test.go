package kafka

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// The broker goes away in the middle of an epoch, at each step of it, and comes back a moment later: the epoch is
// whole, or it says no in one sentence; what was prepared before is there, and the next generation goes on.
func TestABrokerThatGoesAwayInAnEpoch(t *testing.T) {
	for _, when := range []string{"before the first record", "after some", "before the vote"} {
		t.Run(when, func(t *testing.T) {
			r := newRig(t)
			var away atomic.Bool
			r.b.Cluster().Control(func(kmsg.Request) (kmsg.Response, error, bool) {
				r.b.Cluster().KeepControl()
				return nil, errors.New("away"), away.Load() // the connection is cut
			})
			s := r.opened(1)
			kept := r.prepared(s, branchName(1, 1), 5)
			back := make(chan struct{})
			leave := func(at string) {
				if at == when {
					away.Store(true)
					time.AfterFunc(200*time.Millisecond, func() { away.Store(false); close(back) })
				}
			}
			leave("before the first record")
			br, err := s.Begin(t.Context(), branchName(1, 2))
			if err != nil {
				t.Fatal(err)
			}
			b := br.(*Branch)
			write := func(n int) {
				records := make([]stream.Record, n)
				for i := range records {
					records[i] = stream.Record{Value: []byte("v")}
				}
				if err := b.Write(t.Context(), records); err != nil {
					t.Logf("told at the write: %v", err) // Prepare says it too
				}
			}
			write(3)
			leave("after some")
			write(4)
			leave("before the vote")
			v, err := b.Prepare(t.Context())
			for err != nil && t.Context().Err() == nil { // not known: it is asked again
				v, err = b.Prepare(t.Context())
			}
			<-back
			seen := 5
			switch v.Kind {
			case participant.Yes:
				r.commit(s, v.Handle, participant.Committed)
				seen += 7
			case participant.No:
				if strings.ContainsAny(v.Reason.Error(), "\n\r") {
					t.Errorf("the reason is no sentence: %v", v.Reason)
				}
			default:
				t.Fatalf("vote %+v, %v", v, err)
			}
			t.Logf("vote %d, %v", v.Kind, v.Reason)
			r.commit(s, kept, participant.Committed)
			next := r.opened(2)
			r.commit(next, r.prepared(next, branchName(2, 1), 2), participant.Committed)
			r.sees(seen + 2)
			if left, err := next.List(t.Context(), opening(1).Namespace); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
