package participant_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// stateOf votes for epoch 7.1, of one record, with state that is durable when ready says so.
func (st *stage) stateOf(ready func(ctx context.Context) error) {
	st.t.Helper()
	b, err := st.run.Branch(st.t.Context(), "out")
	if err != nil {
		st.t.Fatal(err)
	}
	if err := b.(interface{ Write(record string) error }).Write("a"); err != nil {
		st.t.Fatal(err)
	}
	err = st.run.Vote(st.t.Context(), participant.Barrier{Generation: 7, N: 1}, participant.Contribution{
		Parts: []participant.StatePart{{ID: "solo.window.7.1.1", Operator: "window", Store: "dir:/state"}}, Ready: ready,
	})
	if err != nil {
		st.t.Fatal(err)
	}
}

func TestE4_TheVoteLeavesWhenTheStateIsDurable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		durable := make(chan struct{})
		st.stateOf(func(ctx context.Context) error {
			select {
			case <-durable:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		none(t, "vote before its state is durable", 4*time.Second, st.voted)
		close(durable)
		v := get(t, "vote", st.voted)
		if v.GetKind() != unisinkv1.VoteKind_VOTE_KIND_YES || len(v.GetParts()) != 1 || len(v.GetBranches()) != 1 {
			t.Errorf("vote %v, want yes with the branch and the part", v)
		}
	})
}

func TestE4_StateThatIsNotDurableIsANo(t *testing.T) {
	full := errors.New("the disk is full")
	for name, c := range map[string]struct {
		ready func(ctx context.Context) error
		says  string
	}{
		"E4/its store fails":       {func(context.Context) error { return full }, "the disk is full"},
		"E4/its store hangs":       {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, "not prepared within 5s"},
		"E4/its store is no store": {func(context.Context) error { return errors.Join(full, participant.ErrMisconfigured) }, "the disk is full"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := onStage(t)
				st.start(7, 2, false)
				st.stateOf(c.ready)
				v := get(t, "vote", st.voted)
				if v.GetKind() != unisinkv1.VoteKind_VOTE_KIND_NO || len(v.GetParts()) != 0 ||
					!strings.Contains(v.GetReason(), "state of epoch 7.1 is not durable") || !strings.Contains(v.GetReason(), c.says) {
					t.Errorf("vote %v, want no because %q", v, c.says)
				}
				none(t, "second vote", time.Minute, st.voted)
				// The branch was prepared beside it, and is rolled back at the close.
				st.close(7, 0)
				get(t, "halt", st.halted)
				st.restore(&unisinkv1.Restore{Generation: 8})
				want(t, "after the restore", commits(st.store), []string{"roll back 7.1"})
			})
		})
	}
}

func TestE4_ACloseEndsTheWaitForTheState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := onStage(t)
		st.start(7, 2, false)
		ended := make(chan struct{})
		st.stateOf(func(ctx context.Context) error {
			defer close(ended)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		st.close(7, 0)
		get(t, "end of the wait", ended)
		get(t, "halt", st.halted)
		none(t, "vote of a closed generation", time.Minute, st.voted)
	})
}
