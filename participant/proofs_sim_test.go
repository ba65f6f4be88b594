package participant_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"

	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// commit runs a transaction of two branches, which must be committed.
func commit(t *testing.T, c *participant.Client, txn string) {
	t.Helper()
	a, b := participanttest.NewStore("a"), participanttest.NewStore("b")
	out, err := c.RunTxn(t.Context(), txn, []participant.TxnBranch{handBranch(t, c, a, txn, "a", "1"), handBranch(t, c, b, txn, "b", "1")})
	if err != nil || out != participant.OutcomeCommitted {
		t.Fatalf("outcome %s, %v", out, err)
	}
	want(t, "visible", append(a.Records(), b.Records()...), []string{"1", "1"})
}

// Proofs gather behind their callers' backs, and are told together.
func TestTheProofsOfManyTransactionsShareEntries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := coordinatortest.Start(t, 3)
		c, eye := cluster.Client(), cluster.Client()
		for range 10 {
			commit(t, c, newTxn(t))
		}
		if n := len(inDoubt(t, eye)); n != 10 {
			t.Fatalf("%d transactions are in doubt, want those of the last moment", n)
		}
		before, err := cluster.Status(cluster.Leader())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond)
		after, err := cluster.Status(cluster.Leader())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(inDoubt(t, eye)); n != 0 {
			t.Errorf("%d transactions are in doubt after their proofs were told", n)
		}
		// How many they share is a matter of who comes first; each would have one of its own otherwise.
		if n := after.GetAppliedIndex() - before.GetAppliedIndex(); n < 1 || n > 10 {
			t.Errorf("20 proofs took %d entries", n)
		}
		cluster.AssertSameState()
	})
}

// A leader that dies with the proofs, or with its answer to them, does not lose them.
func TestProofsOutliveALeader(t *testing.T) {
	for what, wait := range map[string]time.Duration{"before they are told": 0, "while they are told": 100 * time.Millisecond} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cluster := coordinatortest.Start(t, 3)
				c, eye := cluster.Client(), cluster.Client()
				commit(t, c, newTxn(t))
				leader := cluster.Leader()
				if wait > 0 {
					go func() {
						time.Sleep(wait) // at that moment they leave
						cluster.Isolate(leader)
					}()
				} else {
					cluster.Crash(leader)
				}
				time.Sleep(8 * time.Second)
				if n := len(inDoubt(t, eye)); n != 0 {
					t.Errorf("%d transactions are in doubt", n)
				}
				if wait > 0 {
					cluster.Heal(leader)
				} else {
					cluster.Restart(leader)
				}
				time.Sleep(2 * time.Second)
				cluster.AssertSameState()
			})
		})
	}
}

// A client that is closed tells what it knows, and does not wait for company.
func TestACloseTellsTheProofs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := coordinatortest.Start(t, 1)
		c, err := participant.NewClient(participant.ClientConfig{Coordinators: cluster.Addresses(), Dial: cluster.Dial})
		if err != nil {
			t.Fatal(err)
		}
		commit(t, c, newTxn(t))
		began := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("closed after %s", took)
		}
		if n := len(inDoubt(t, cluster.Client())); n != 0 {
			t.Errorf("%d transactions are in doubt", n)
		}
	})
}

// older is a node of the version before ResolveAll.
type older struct {
	unisinkv1.UnimplementedTransactionsServer
	unisinkv1.UnimplementedClusterServer

	mu    sync.Mutex
	tried int
	told  map[string]int
}

func (o *older) Status(context.Context, *unisinkv1.StatusRequest) (*unisinkv1.StatusResponse, error) {
	return &unisinkv1.StatusResponse{Namespace: "test", Incarnation: 1}, nil
}

func (o *older) GetTransaction(context.Context, *unisinkv1.GetTransactionRequest) (*unisinkv1.GetTransactionResponse, error) {
	return nil, grpcerr.New(codes.NotFound, grpcerr.NotFound, "unknown", nil)
}

func (o *older) Commit(context.Context, *unisinkv1.CommitRequest) (*unisinkv1.CommitResponse, error) {
	return &unisinkv1.CommitResponse{Outcome: unisinkv1.Outcome_OUTCOME_COMMITTED}, nil
}

func (o *older) ResolveAll(ctx context.Context, req *unisinkv1.ResolveAllRequest) (*unisinkv1.ResolveAllResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tried++
	return o.UnimplementedTransactionsServer.ResolveAll(ctx, req)
}

func (o *older) Resolve(_ context.Context, req *unisinkv1.ResolveRequest) (*unisinkv1.ResolveResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told[req.GetTxn()+" "+req.GetResource()+" "+req.GetProof().GetVerdict().String()]++
	return &unisinkv1.ResolveResponse{}, nil
}

func TestANodeOfAnOlderVersionIsToldEachProof(t *testing.T) {
	bubble(t, func(t *testing.T) {
		node := &older{told: map[string]int{}}
		at, server := bufconn.Listen(1<<16), grpc.NewServer()
		unisinkv1.RegisterTransactionsServer(server, node)
		unisinkv1.RegisterClusterServer(server, node)
		go func() { _ = server.Serve(at) }() // ends with Stop
		defer server.Stop()
		c, err := participant.NewClient(participant.ClientConfig{
			Coordinators: []string{"old:1"}, Dial: func(ctx context.Context, _ string) (net.Conn, error) { return at.DialContext(ctx) },
		})
		if err != nil {
			t.Fatal(err)
		}
		txn := newTxn(t)
		commit(t, c, txn)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		node.mu.Lock()
		defer node.mu.Unlock()
		for _, name := range []string{"a", "b"} {
			if n := node.told[txn+" "+name+" VERDICT_COMMITTED"]; n != 1 {
				t.Errorf("the proof of %s was told %d times: %v", name, n, node.told)
			}
		}
		if node.tried != 1 {
			t.Errorf("all at once was tried %d times", node.tried)
		}
	})
}
