package kafka

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

func TestP1_ZombieOfAnOlderGeneration(t *testing.T) {
	t.Run("P1/initialises none of its successor's ids and prepares nothing", func(t *testing.T) {
		r := newRig(t)
		zombie := r.opened(1)
		paused := r.begin(zombie, branchName(1, 1), 10)
		next := r.opened(2)
		h := r.prepared(next, branchName(2, 1), 10)

		// It wakes up, goes on with what it had, and begins another.
		v, err := paused.Prepare(t.Context())
		if err != nil || v.Kind != participant.No || !errors.Is(v.Reason, participant.ErrFenced) {
			t.Errorf("prepare of the zombie: %v, %v; want no, fenced", v, err)
		}
		again, err := zombie.Begin(t.Context(), branchName(1, 2))
		if err != nil {
			t.Fatal(err)
		}
		if err := again.(*Branch).Write(t.Context(), []stream.Record{{Value: []byte("zombie")}}); err != nil {
			t.Log(err)
		}
		if v, err := again.Prepare(t.Context()); err != nil || v.Kind != participant.No || !errors.Is(v.Reason, participant.ErrFenced) {
			t.Errorf("second prepare of the zombie: %v, %v; want no, fenced", v, err)
		}

		r.commit(next, h, participant.Committed)
		r.sees(10)
	})
	t.Run("P1/what was prepared before is finished by its decision", func(t *testing.T) {
		r := newRig(t)
		zombie := r.opened(1)
		decided, dead := r.prepared(zombie, branchName(1, 1), 10), r.prepared(zombie, branchName(1, 2), 10)
		next := r.opened(2)
		r.sees(0)
		r.commit(next, decided, participant.Committed)
		r.rollback(next, dead, participant.RolledBack)
		r.sees(10)
		// Both ids are fenced now: the zombie's own client can produce no more with them.
		b, err := zombie.Begin(t.Context(), branchName(1, 3)) // the third slot, never used
		if err != nil {
			t.Fatal(err)
		}
		if v, err := b.Prepare(t.Context()); err != nil || v.Kind != participant.ReadOnly {
			t.Errorf("prepare: %v, %v", v, err)
		}
		left, err := r.a.ListTransactions(t.Context(), opening(1).Namespace)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range left {
			if l.Name.Generation == 1 && (l.State != stateEmpty || l.Epoch < 2) {
				t.Errorf("%s is %s at epoch %d: not fenced", l.ID, l.State, l.Epoch)
			}
		}
	})
	t.Run("P1/an older generation cannot be opened again", func(t *testing.T) {
		r := newRig(t)
		next := r.opened(2)
		for _, s := range []*Sink{next, r.sink()} {
			if err := s.Open(t.Context(), opening(1)); !errors.Is(err, participant.ErrFenced) {
				t.Errorf("open generation 1 after 2: %v, want fenced", err)
			}
		}
		if err := next.Open(t.Context(), opening(2)); err != nil {
			t.Errorf("open the same generation again: %v", err)
		}
	})
}

func TestIdleOlderIdsAreFencedOnce(t *testing.T) {
	r := newRig(t)
	first := r.opened(1)
	for n := uint64(1); n <= 3; n++ {
		r.commit(first, r.prepared(first, branchName(1, n), 1), participant.Committed)
	}
	var inits atomic.Int64
	r.b.Cluster().ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if id := req.(*kmsg.InitProducerIDRequest).TransactionalID; id != nil {
			if n, ours := parseSlotID(*id); ours && n.Generation == 1 {
				inits.Add(1)
			}
		}
		return nil, nil, false
	})
	for g := uint64(2); g <= 5; g++ {
		s := r.opened(g)
		r.commit(s, r.prepared(s, branchName(g, 1), 1), participant.Committed)
	}
	ids, err := r.a.ListTransactions(t.Context(), opening(1).Namespace)
	if err != nil {
		t.Fatal(err)
	}
	var old int64
	for _, id := range ids {
		if id.Name.Generation == 1 {
			old++
		}
	}
	// Twice where the coordinator shows no outcome: in Open, and before the first branch.
	if old == 0 || inits.Load() < old || inits.Load() > 2*old {
		t.Errorf("%d ids of the first generation were initialised %d times by four later ones", old, inits.Load())
	}
}

func TestOpenOfANewerGenerationDropsWhatIsNotPrepared(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	h := r.prepared(s, branchName(1, 1), 10)
	open := r.begin(s, branchName(1, 2), 10)
	if err := s.Open(t.Context(), opening(2)); err != nil {
		t.Fatal(err)
	}
	if err := open.Write(t.Context(), numbered(1)); !errors.Is(err, participant.ErrFenced) {
		t.Errorf("write to a branch of generation 1: %v, want fenced", err)
	}
	if v, err := open.Prepare(t.Context()); err != nil || v.Kind != participant.No {
		t.Errorf("prepare a branch of generation 1: %v, %v; want no", v, err)
	}
	listed, err := s.List(t.Context(), opening(1).Namespace)
	if err != nil || len(listed) != 1 || !listed[0].Handle.Same(h) {
		t.Errorf("the cluster holds %v, %v; want the prepared branch alone", listed, err)
	}
	r.commit(s, h, participant.Committed)
	r.commit(s, r.prepared(s, branchName(2, 1), 10), participant.Committed)
	r.sees(20)
}

func TestZ4_OlderWorkIsResolvedBeforePositionsAreRead(t *testing.T) {
	r := newRig(t)
	gone := r.opened(1)
	listed, dead := r.prepared(gone, branchName(1, 1), 10), r.prepared(gone, branchName(1, 2), 7)

	// Restore: open, commit what the ledger lists, roll back the rest, and only then read on.
	s := r.opened(2)
	r.commit(s, listed, participant.Committed)
	found, err := s.List(t.Context(), opening(2).Namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range found {
		if l.Name.Generation != 1 || !l.Handle.Same(dead) || l.Since.IsZero() {
			t.Errorf("listed %v of %s", l.Handle.Name, l.Name)
		}
		r.rollback(s, l.Handle, participant.RolledBack)
	}
	in := source(t, SourceConfig{Name: "in", Brokers: []string{r.b.Addr()}, Topics: []string{"totals"}, Bounded: true})
	if err := in.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if values, _ := drain(t, in, -1); len(values) != 10 {
		t.Errorf("the source reads %d records behind resolved work, want the 10 committed", len(values))
	}
}

func TestListedHandleTellsACommitFromARollback(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	r.prepared(s, branchName(1, 1), 10)
	listed, err := s.List(t.Context(), opening(1).Namespace)
	if err != nil || len(listed) != 1 {
		t.Fatalf("listed %v, %v", listed, err)
	}
	r.commit(s, listed[0].Handle, participant.Committed)
	r.rollback(s, listed[0].Handle, participant.Committed) // what is committed is never "rolled back"
	r.sees(10)
}

func TestSourceReadsWhatIsCommittedAndStopsBeforeWhatIsNot(t *testing.T) {
	r := newRig(t)
	s := r.opened(1)
	gone := r.prepared(s, branchName(1, 1), 10)
	r.rollback(s, gone, participant.RolledBack)
	r.commit(s, r.prepared(s, branchName(1, 2), 10), participant.Committed)
	undecided := r.prepared(s, branchName(1, 3), 10)

	bounded := func() (int, map[string]stream.Position) {
		in := source(t, SourceConfig{Name: "in", Brokers: []string{r.b.Addr()}, Topics: []string{"totals"}, Bounded: true})
		if err := in.Open(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		values, at := drain(t, in, -1)
		return len(values), at
	}
	if n, _ := bounded(); n != 10 {
		t.Errorf("read %d records, want the 10 committed", n)
	}
	r.commit(s, undecided, participant.Committed)
	n, at := bounded()
	if n != 20 {
		t.Errorf("read %d records, want the 20 committed", n)
	}
	// Positions are behind the markers: nothing is left to read, and lag is nothing.
	ends, err := r.a.EndOffsets(t.Context(), "totals", true)
	if err != nil {
		t.Fatal(err)
	}
	for p, end := range ends {
		if got := at[splitID("totals", p)].Offset; got != end {
			t.Errorf("position %d of partition %d, want its end %d", got, p, end)
		}
	}
}
