package participant_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func slowPrepare(d time.Duration) participanttest.Hook {
	return func(ctx context.Context, call participanttest.Call, when participanttest.When, _ string) error {
		if call == participanttest.CallPrepare && when == participanttest.Before {
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
}

func failing(which participanttest.Call) participanttest.Hook {
	return func(_ context.Context, call participanttest.Call, when participanttest.When, _ string) error {
		if call == which && when == participanttest.Before {
			return errors.New("refused")
		}
		return nil
	}
}

func blockFirstCommit(until <-chan struct{}) participanttest.Hook {
	var once sync.Once
	return func(ctx context.Context, call participanttest.Call, when participanttest.When, _ string) error {
		if call == participanttest.CallCommit && when == participanttest.Before {
			once.Do(func() {
				select {
				case <-until:
				case <-ctx.Done():
				}
			})
			return ctx.Err()
		}
		return nil
	}
}

// left prepares a branch as a process that is gone did, and returns its handle.
func left(t *testing.T, store *participanttest.Store, name participant.BranchName, record string) participant.Handle {
	t.Helper()
	m := store.Process()
	if err := m.Open(t.Context(), participant.Opening{
		Namespace: name.Namespace, Scope: name.Scope(), Member: name.Member, Resource: name.Resource, Generation: name.Generation,
	}); err != nil {
		t.Fatal(err)
	}
	b, err := m.Begin(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.(*participanttest.MemoryBranch).Write(record); err != nil {
		t.Fatal(err)
	}
	v, err := b.Prepare(t.Context())
	if err != nil || v.Kind != participant.Yes {
		t.Fatalf("prepare %s: %v, %v", name, v, err)
	}
	m.Crash()
	return v.Handle
}

func own(generation, n uint64) participant.BranchName {
	return participant.BranchName{
		Namespace: participant.Namespace{Name: "test", Incarnation: 1}, Pipeline: pipeline, Member: "solo", Resource: "out",
		Generation: generation, N: n,
	}
}

func unfinished(generation, n uint64, h participant.Handle) *unisinkv1.Unfinished {
	return &unisinkv1.Unfinished{
		Epoch: &unisinkv1.Epoch{Generation: generation, N: n}, Member: "solo", Resource: "out",
		Handle: &unisinkv1.Handle{Kind: h.Kind, Version: h.Version, Identity: h.Identity, Alias: h.Alias, Name: h.Name, Text: h.Text, Body: h.Body},
	}
}

func TestRestoreCommitsExactlyWhatIsListed(t *testing.T) {
	t.Run("P4/an epoch of an older generation is not decided by a newer one", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			st := onStage(t)
			left(t, st.store, own(1, 1), "never decided")
			h := left(t, st.store, own(2, 1), "decided")
			r := st.restore(&unisinkv1.Restore{Generation: 3, Unfinished: []*unisinkv1.Unfinished{unfinished(2, 1, h)}})
			want(t, "restored", commits(st.store), []string{"commit 2.1", "roll back 1.1"})
			if p := r.GetProofs(); len(p) != 1 || p[0].GetEpoch().GetGeneration() != 2 || p[0].GetProof().GetVerdict() != unisinkv1.Verdict_VERDICT_COMMITTED {
				t.Errorf("proofs with ready: %v", p)
			}
		})
	})
	t.Run("P7/two prepared for one epoch are judged by handle", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			st := onStage(t)
			left(t, st.store, own(1, 1), "first")
			h := left(t, st.store, own(1, 1), "second")
			left(t, st.store, own(1, 1), "third")
			st.restore(&unisinkv1.Restore{Generation: 2, Unfinished: []*unisinkv1.Unfinished{unfinished(1, 1, h)}})
			want(t, "readers see", st.store.Records(), []string{"second"})
			want(t, "left", st.store.Prepared(), nil)
		})
	})
	t.Run("P6/in the order of the list", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			st := onStage(t)
			h1, h2, h3 := left(t, st.store, own(1, 1), "a"), left(t, st.store, own(1, 2), "b"), left(t, st.store, own(2, 1), "c")
			st.memory.SetHook(failEveryOther(participanttest.CallCommit))
			st.restore(&unisinkv1.Restore{Generation: 3, Unfinished: []*unisinkv1.Unfinished{
				unfinished(1, 1, h1), unfinished(1, 2, h2), unfinished(2, 1, h3),
			}})
			want(t, "readers see", st.store.Records(), []string{"a", "b", "c"})
		})
	})
	t.Run("L9/what is another's stays", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			st := onStage(t)
			var others []participant.BranchName
			for _, change := range []func(*participant.BranchName){
				func(n *participant.BranchName) { n.Pipeline = "orders-eu" },
				func(n *participant.BranchName) { n.Pipeline = "order" },
				func(n *participant.BranchName) { n.Shard = 1 },
				func(n *participant.BranchName) { n.Member = "solo2" },
				func(n *participant.BranchName) { n.Resource = "out2" },
				func(n *participant.BranchName) { n.Namespace = participant.Namespace{Name: "test", Incarnation: 2} },
				func(n *participant.BranchName) { n.Namespace = participant.Namespace{Name: "test-eu", Incarnation: 1} },
			} {
				n := own(1, 1)
				change(&n)
				others = append(others, n)
				left(t, st.store, n, "another's")
			}
			newer := own(9, 1) // than the ledger, which was restored from a backup
			st.store.Plant(newer, "newer")
			others = append(others, newer)
			left(t, st.store, own(1, 1), "dead")
			st.restore(&unisinkv1.Restore{Generation: 3})
			want(t, "rolled back", commits(st.store), []string{"roll back 1.1"})
			if n := len(st.store.Prepared()); n != len(others) {
				t.Errorf("%d of others' branches are left: %q", n, st.store.Prepared())
			}
		})
	})
	t.Run("L3/what was being prepared while the first list was made", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			st := onStage(t)
			left(t, st.store, own(1, 1), "dead")
			late := false
			st.memory.SetHook(serial(func(_ context.Context, call participanttest.Call, when participanttest.When, _ string) error {
				if call == participanttest.CallList && when == participanttest.After && !late {
					late = true
					st.store.Plant(own(1, 2), "late")
				}
				return nil
			}))
			st.restore(&unisinkv1.Restore{Generation: 3})
			want(t, "left", st.store.Prepared(), nil)
		})
	})
	t.Run("L2/debts are paid by listing", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			st := onStage(t)
			r := st.restore(&unisinkv1.Restore{Generation: 3, Debts: []*unisinkv1.Debt{
				{Generation: 1, Member: "solo", Resource: "out"},
				{Generation: 1, Member: "other", Resource: "out"},
				{Generation: 2, Member: "solo", Resource: "gone"},
			}})
			if len(r.GetSwept()) != 1 || r.GetSwept()[0].GetMember() != "solo" || r.GetSwept()[0].GetResource() != "out" {
				t.Errorf("swept %v", r.GetSwept())
			}
		})
	})
	t.Run("Z4/before the task gets its positions", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			st := onStage(t)
			h := left(t, st.store, own(1, 1), "a")
			st.memory.SetHook(slowly(participanttest.CallCommit, 5*time.Second))
			st.order(&unisinkv1.Order{Order: &unisinkv1.Order_Restore{Restore: &unisinkv1.Restore{
				Generation: 2, RestorePoint: &unisinkv1.Epoch{Generation: 1, N: 1},
				Positions:  []*unisinkv1.Position{{Resource: "in", Split: "0", Offset: 42, LeaderEpoch: 3}},
				Parts:      []*unisinkv1.StatePart{{Id: "p1", Operator: "w", Body: []byte("state")}},
				Unfinished: []*unisinkv1.Unfinished{unfinished(1, 1, h)}, KeptParts: []string{"p1"},
			}}})
			none(t, "the task was restored before its own transaction ended", 4*time.Second, st.restored)
			r := get(t, "restore", st.restored)
			want(t, "by then", commits(st.store), []string{"commit 1.1"})
			if r.Generation != 2 || r.RestoreGeneration != 1 || r.RestoreN != 1 || r.Fresh || len(r.Positions) != 1 ||
				r.Positions[0].Offset != 42 || r.Positions[0].LeaderEpoch != 3 || string(r.Parts[0].Body) != "state" || r.KeptParts[0] != "p1" {
				t.Errorf("restore point %+v", r)
			}
		})
	})
	t.Run("a resource that the process lacks halts the scope", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			st := onStage(t)
			u := unfinished(1, 1, left(t, st.store, own(1, 1), "a"))
			u.Resource = "elsewhere"
			st.order(&unisinkv1.Order{Order: &unisinkv1.Order_Restore{Restore: &unisinkv1.Restore{Generation: 2, Unfinished: []*unisinkv1.Unfinished{u}}}})
			v := get(t, "demand to close", st.voted)
			if v.GetKind() != unisinkv1.VoteKind_VOTE_KIND_LOST || v.GetReasonClass() != unisinkv1.ErrorClass_ERROR_CLASS_MISCONFIGURED {
				t.Errorf("demand %v", v)
			}
		})
	})
}

func TestARestoreIsCutShortByTheClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		h := left(t, st.store, own(1, 1), "a")
		st.memory.SetHook(failing(participanttest.CallCommit))
		list := []*unisinkv1.Unfinished{unfinished(1, 1, h)}
		st.order(&unisinkv1.Order{Order: &unisinkv1.Order_Restore{Restore: &unisinkv1.Restore{Generation: 2, Unfinished: list}}})
		none(t, "ready", 10*time.Second, st.readied)
		st.close(2, 0)
		none(t, "halt of a task that was never restored", 10*time.Second, st.halted)
		st.memory.SetHook(nil)
		st.restore(&unisinkv1.Restore{Generation: 3, Unfinished: list})
		want(t, "restored", commits(st.store), []string{"commit 1.1"})
	})
}

func slowly(which participanttest.Call, d time.Duration) participanttest.Hook {
	return func(ctx context.Context, call participanttest.Call, when participanttest.When, _ string) error {
		if call == which && when == participanttest.Before {
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
}

func failEveryOther(which participanttest.Call) participanttest.Hook {
	calls := 0
	return serial(func(_ context.Context, call participanttest.Call, when participanttest.When, _ string) error {
		if call != which || when != participanttest.Before {
			return nil
		}
		if calls++; calls%2 == 1 {
			return errors.New("refused this time")
		}
		return nil
	})
}
