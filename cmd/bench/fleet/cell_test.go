package fleet

import (
	"errors"
	"testing"

	"github.com/unisink/unisink/participant"
)

func TestADecisionIsToldOnceAndWhatIsPreparedIsForgotten(t *testing.T) {
	ctx := t.Context()
	w := &Writer{Name: "w"}
	c := newCell("w", w)
	if err := c.Open(ctx, participant.Opening{Generation: 7}); err != nil {
		t.Fatal(err)
	}
	prepare := func(n uint64) participant.Handle {
		t.Helper()
		b, err := c.Begin(ctx, participant.BranchName{Namespace: participant.Namespace{Name: "x", Incarnation: 1}, Pipeline: "p", Member: "all", Resource: resource, Generation: 7, N: n})
		if err != nil {
			t.Fatal(err)
		}
		v, err := b.Prepare(ctx)
		if err != nil || v.Kind != participant.Yes {
			t.Fatal(v, err)
		}
		return v.Handle
	}
	first, second := prepare(1), prepare(2)
	for range 2 {
		if p, err := c.Commit(ctx, first); err != nil || p.Verdict != participant.Committed {
			t.Errorf("got %+v (%v)", p, err)
		}
	}
	if p, err := c.Rollback(ctx, first); err != nil || p.Verdict != participant.Committed {
		t.Errorf("what is committed was rolled back: %+v (%v)", p, err)
	}
	if p, err := c.Rollback(ctx, second); err != nil || p.Verdict != participant.RolledBack {
		t.Errorf("got %+v (%v)", p, err)
	}
	if _, err := c.Commit(ctx, second); !errors.Is(err, participant.ErrUnknownHandle) {
		t.Errorf("what was rolled back is committed (%v)", err)
	}
	if w.Count() != 1 || len(c.prepared) != 0 {
		t.Errorf("%d decisions told, %d branches kept", w.Count(), len(c.prepared))
	}
	if err := c.Open(ctx, participant.Opening{Generation: 6}); !errors.Is(err, participant.ErrFenced) {
		t.Errorf("an older generation was opened (%v)", err)
	}
}
