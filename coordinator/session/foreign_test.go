package session

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// theirs is a vote with a handle of that name.
func theirs(gen, n uint64, name string) *unisinkv1.Vote {
	v := yes("sink", gen, n)
	v.Branches[0].Handle.Name = name
	return v
}

// Row L9. Whatever part of its name is another's, the vote is not counted and the scope halts.
func TestL9_AVoteWithTheHandleOfSomebodyElseHaltsTheScope(t *testing.T) {
	for name, says := range map[string]string{
		"other.orders.0.sink.out.1.1":                   "namespace other instead of test",
		"test~2.orders.0.sink.out.1.1":                  "namespace test~2 instead of test",
		"test.bills.0.sink.out.1.1":                     "scope bills/0 instead of orders/0",
		"test.orders.1.sink.out.1.1":                    "scope orders/1 instead of orders/0",
		"test.orders.0.source.out.1.1":                  "member source instead of sink",
		"test.orders.0.sink.in.1.1":                     "resource in instead of out",
		"test.orders.0.sink.out.2.1|4711|0":             "generation 2 instead of 1",
		"test.0190a0b0-0000-7000-8000-000000000000.out": "transaction 0190a0b0-0000-7000-8000-000000000000 instead of scope orders/0",
	} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "source", "sink")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				_, sink := running(ctx, w)
				_, err := w.now().Vote(ctx, &unisinkv1.VoteRequest{Scope: sink.req.GetScope(), Member: "sink", Instance: "b", Vote: theirs(1, 1, name)})
				if reason, _ := grpcerr.Reason(err); reason != grpcerr.Invalid || !strings.Contains(err.Error(), says) {
					t.Errorf("answered: %v", err)
				}
				w.within(5*time.Second, "halted", func() bool { return strings.Contains(w.halted(), says) })
				if w.log.count("Decide") != 0 {
					t.Error("it was decided")
				}
			})
		})
	}
}

// Row L9. A new leader hears votes when members attach again, and judges those as well.
func TestL9_ARepeatedVoteWithTheHandleOfSomebodyElseHaltsTheScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		running(ctx, w)
		w.fall()
		w.lead()
		req := attachRequest("sink", "b")
		req.Standing = &unisinkv1.Standing{
			Generation: 1, Phase: unisinkv1.Phase_PHASE_RUNNING, NewestBarrier: 1,
			Votes: []*unisinkv1.Vote{theirs(1, 1, "test.bills.0.sink.out.1.1")},
		}
		w.attach(req, 100)
		w.within(5*time.Second, "halted", func() bool { return strings.Contains(w.halted(), "scope bills/0 instead of orders/0") })
		if w.log.count("Decide") != 0 {
			t.Error("it was decided")
		}
	})
}

// Row L9. Names that an adapter has for itself are its affair, and those with a slot in the place of the epoch are own.
func TestL9_OwnHandlesAndThoseThatNameNoBranchAreCounted(t *testing.T) {
	for _, name := range []string{"test.orders.0.sink.out.1.1", "test.orders.0.sink.out.1.0|4711|3", "test.orders.0.sink.out.1.1#9", "stage-4711"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "source", "sink")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, sink := running(ctx, w)
			m := w.now()
			if _, err := m.Vote(ctx, &unisinkv1.VoteRequest{Scope: sink.req.GetScope(), Member: "sink", Instance: "b", Vote: theirs(1, 1, name)}); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Vote(ctx, &unisinkv1.VoteRequest{Scope: sink.req.GetScope(), Member: "source", Instance: "a", Vote: yes("source", 1, 1)}); err != nil {
				t.Fatal(err)
			}
			w.within(time.Second, "decided", func() bool { return w.log.count("Decide 1.1") == 1 })
		})
	}
}
