package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/participant/resolver"
)

// More transactions by hand are in doubt than one answer names, and the first of them cannot be finished at all. The others
// are, none is taken for one whose resource was set back, and an operator sees all of them.
func TestMoreByHandThanOneAnswerNamesIsFinished(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		const hopeless, others = 1200, 40
		decide := func(txn string, h participant.Handle) {
			if _, err := r.cl.Commit(t.Context(), txn, []participant.HandBranch{{Resource: "out", Handle: h}}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range hopeless {
			decide(hands(t), participant.Handle{Kind: participanttest.Kind, Version: 2, Identity: "out", Alias: "out", Name: fmt.Sprint("of-the-future-", i)})
		}
		for range others {
			txn := hands(t)
			decide(txn, r.stores["out"].Plant(r.byHand(txn), txn))
		}
		away := &atomic.Bool{}
		away.Store(true)
		r.resolve(func(c *resolver.Config) {
			c.SweepInterval = time.Second
			c.Resources[0].Finisher.(*participanttest.Memory).SetHook(func(_ context.Context, call participanttest.Call, _ participanttest.When, _ string) error {
				if call == participanttest.CallCommit && away.Load() {
					return errors.New("not now")
				}
				return nil
			})
		})
		turns := 30 * time.Second
		if testing.Short() {
			turns = 10 * time.Second // five times through all of them; under the race detector a second takes a quarter of one
		}
		time.Sleep(turns)
		if found := r.told().GetInDoubt(); len(found) > 0 {
			t.Errorf("%d things that are to be finished were found in doubt: %v", len(found), found[0])
		}
		away.Store(false)
		r.until(40*time.Second, "all that can be finished is", func() bool { return len(r.stores["out"].Records()) == others })
		x, err := resolver.New(resolver.Config{Client: r.cl, Resources: []resolver.Resource{{Name: "out", Finisher: r.stores["out"].Process()}}})
		if err != nil {
			t.Fatal(err)
		}
		done, err := x.Finish(t.Context(), "")
		if err != nil || len(done) != hopeless {
			t.Fatalf("an operator sees %d, %v; want %d", len(done), err, hopeless)
		}
	})
}

// metered counts what comes over a connection.
type metered struct {
	net.Conn
	bytes *atomic.Int64
}

func (m metered) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	m.bytes.Add(int64(n))
	return n, err
}

// A look asks what is prepared. What is decided and not finished, which may be more than a message holds, does not come along.
func TestALookIsNotSentAllThatIsToBeFinished(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		const unfinished, size = 200, 8 << 10
		for i := range unfinished {
			r.Decide(ledger.Commit{Txn: ledger.TxnID(hands(t)), Branches: []ledger.HandBranch{{Resource: "out", Handle: ledger.Handle{
				Kind: participanttest.Kind, Version: 2, Identity: "out", Alias: "out", Name: fmt.Sprint("of-the-future-", i), Body: make([]byte, size),
			}}}})
		}
		var came atomic.Int64
		cl, err := participant.NewClient(participant.ClientConfig{Coordinators: r.Addresses(), Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := r.Dial(ctx, addr)
			return metered{conn, &came}, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cl.Close() }() // nothing is under way on it
		x, err := resolver.New(resolver.Config{Client: cl, Resources: []resolver.Resource{{Name: "out", Finisher: r.stores["out"].Process()}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Look(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if n := came.Load(); n == 0 || n > unfinished*size/10 {
			t.Errorf("%d bytes came, of %d that all handles have", n, unfinished*size)
		}
	})
}
