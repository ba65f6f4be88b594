package participant_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/unisink/unisink/internal/branchname"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// restored is a node of a group that was restored twice, with announced transactions that are aborted.
type restored struct {
	unisinkv1.UnimplementedTransactionsServer
	unisinkv1.UnimplementedClusterServer

	mu      sync.Mutex
	aborted []string
	proven  []string
	at      time.Time // of the decisions
}

func (g *restored) Status(context.Context, *unisinkv1.StatusRequest) (*unisinkv1.StatusResponse, error) {
	return &unisinkv1.StatusResponse{Namespace: "test", Incarnation: 3}, nil
}

func (g *restored) ListTransactions(_ context.Context, q *unisinkv1.ListTransactionsRequest) (*unisinkv1.ListTransactionsResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	got := &unisinkv1.ListTransactionsResponse{}
	for _, txn := range g.aborted {
		if txn > q.GetAfter() && !slices.Contains(g.proven, txn) {
			got.Transactions = append(got.Transactions, &unisinkv1.Transaction{
				Txn: txn, Outcome: unisinkv1.Outcome_OUTCOME_ABORTED, DecidedAtMs: g.at.UnixMilli(), Branches: []*unisinkv1.TransactionBranch{{Resource: "s"}},
			})
		}
	}
	return got, nil
}

func (g *restored) Resolve(_ context.Context, q *unisinkv1.ResolveRequest) (*unisinkv1.ResolveResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.proven = append(g.proven, q.GetTxn())
	return &unisinkv1.ResolveResponse{}, nil
}

// tookBack returns what was proven so far, and forgets it.
func (g *restored) tookBack() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	proven := g.proven
	g.proven = nil
	return proven
}

// A backup was restored since a transaction was announced: its branch may be prepared under the namespace's earlier incarnation,
// by its own name or under that of a process. It is left alone, and that the newest one lists nothing proves nothing.
func TestL1_ASweepProvesNothingOfWhatWasPreparedBeforeARestore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := newTxn(t), newTxn(t)
		g := &restored{at: time.Now(), aborted: slices.Sorted(slices.Values([]string{first, second}))}
		at, server := bufconn.Listen(1<<16), grpc.NewServer()
		unisinkv1.RegisterTransactionsServer(server, g)
		unisinkv1.RegisterClusterServer(server, g)
		go func() { _ = server.Serve(at) }() // ends with Stop
		defer server.Stop()
		c, err := participant.NewClient(participant.ClientConfig{
			Coordinators: []string{"restored:1"}, Dial: func(ctx context.Context, _ string) (net.Conn, error) { return at.DialContext(ctx) },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		store, then := participanttest.NewStore("s"), participant.Namespace{Name: "test", Incarnation: 2}
		resources := map[string]participant.Resource{"s": store.Process()}
		sweep := func(proven []string, waits ...string) {
			t.Helper()
			before := store.Prepared()
			done, err := c.Sweep(t.Context(), resources, time.Second)
			if len(waits) == 0 && err != nil || len(waits) > 0 && !errors.Is(err, participant.ErrUnfinished) {
				t.Errorf("swept: %+v, %v", done, err)
			}
			for _, x := range waits {
				if said := fmt.Sprint(err); !strings.Contains(said, x) || !strings.Contains(said, "before a backup was restored") {
					t.Errorf("swept: %s, want a word of %s", said, x)
				}
			}
			want(t, "proven", g.tookBack(), proven)
			want(t, "prepared", store.Prepared(), before)
		}
		end := func(h participant.Handle) {
			t.Helper()
			if _, err := resources["s"].Rollback(t.Context(), h); err != nil {
				t.Fatal(err)
			}
		}
		named := participant.BranchName{Namespace: then, Txn: first, Resource: "s"}
		h := store.Plant(named, "paid")
		sweep([]string{second}, named.String(), "txn resolve "+first+" --force accept-loss --branch s")
		end(h)

		own := participant.BranchName{Namespace: then, Pipeline: branchname.HandPipeline, Member: "teller", Resource: "s", Generation: 1764, N: 3}
		h = store.Plant(own, "paid")
		sweep(nil, own.String(), first, second)
		end(h)
		sweep(g.aborted)

		time.Sleep(70 * time.Second)
		store.Plant(own, "another's")
		sweep(g.aborted)
	})
}
