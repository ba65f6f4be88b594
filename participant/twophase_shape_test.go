package participant_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/journal"
)

// till is a service over any T, which notes what it is asked for.
type till[T any] struct {
	next  T
	calls []string
}

func (c *till[T]) Begin(context.Context) (T, error) { return c.next, nil }

func (c *till[T]) did(call string, t T) error {
	text, err := json.Marshal(t)
	c.calls = append(c.calls, call+" "+string(text))
	return err
}

func (c *till[T]) PreCommit(_ context.Context, t T) error { return c.did("pre-commit", t) }
func (c *till[T]) Commit(_ context.Context, t T) error    { return c.did("commit", t) }
func (c *till[T]) Abort(_ context.Context, t T) error     { return c.did("abort", t) }

func tillOf[T any](t testing.TB, c *till[T], path string) *participant.TwoPhaseResource[T] {
	t.Helper()
	r, err := participant.NewTwoPhase(c, participant.TwoPhaseConfig[T]{Kind: "till", Identity: "t1", Journal: journal.At(path)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ended is what a version of the program makes of a handle that another has written: its calls, and what it answers.
func ended[T any](t testing.TB, path string, h participant.Handle) (calls []string, commit, rollback error) {
	t.Helper()
	c := &till[T]{}
	r := tillOf(t, c, path)
	_, rollback = r.Rollback(t.Context(), h)
	if rollback == nil {
		return c.calls, errors.New("not tried"), nil
	}
	_, commit = r.Commit(t.Context(), h)
	return c.calls, commit, rollback
}

type sale struct {
	ID    string
	Lines []string
}

// A program is exchanged for another version of it while a transaction is unfinished, and T is another type now. Row O6:
// nobody may be asked to commit half of it, or nothing, which succeeds.
func TestATransactionOfAnotherShapeIsNeitherCommittedNorAborted(t *testing.T) {
	type (
		fewer struct{ ID string }
		more  struct {
			ID    string
			Lines []string
			Total int
		}
		renamed struct {
			Order string
			Lines []string
		}
		otherCase struct {
			Id    string //nolint:revive // it is what is tried
			Lines []string
		}
		deeper struct {
			ID    string
			Lines []struct{ Text string }
		}
	)
	for name, c := range map[string]struct {
		end  func(t testing.TB, path string, h participant.Handle) ([]string, error, error)
		says string
	}{
		"a field fewer":    {ended[fewer], `it has "Lines", which is unknown here`},
		"a field more":     {ended[more], `it lacks "Total"`},
		"a field renamed":  {ended[renamed], `it has "ID", which is unknown here`},
		"in another case":  {ended[otherCase], `it has "ID", which is unknown here`},
		"of another type":  {ended[deeper], "cannot unmarshal string"},
		"no object at all": {ended[string], "cannot unmarshal object"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal")
			r := tillOf(t, &till[sale]{next: sale{"s1", []string{"a"}}}, path)
			openDesk(t, r, 1)
			b, err := r.Begin(t.Context(), under(1, 1))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := participant.TransactionOf[sale](t.Context(), b); err != nil {
				t.Fatal(err)
			}
			h := voteOf(t, b).Handle
			calls, commit, rollback := c.end(t, path, h)
			for _, err := range []error{commit, rollback} {
				if !errors.Is(err, participant.ErrUndeterminable) {
					t.Fatalf("%v, want undeterminable", err)
				}
				for _, want := range []string{c.says, path, "participant_test.", "run the version that wrote it", "unisink txn resolve"} {
					if want == "participant_test." && name == "no object at all" {
						want = "no string of this program"
					}
					if !strings.Contains(err.Error(), want) {
						t.Errorf("it does not say %q: %v", want, err)
					}
				}
			}
			if len(calls) > 0 {
				t.Errorf("the service was asked for %q", calls)
			}
			if p, err := r.Commit(t.Context(), h); err != nil || p.Verdict != participant.Committed {
				t.Errorf("the version that wrote it: %+v, %v", p, err)
			}
			if _, _, err := c.end(t, path, h); err != nil {
				t.Errorf("the journal tells how it ended, for which nobody needs its T: %v", err)
			}
		})
	}
}

// What a type may become without a stop: fields in another order, and new ones that are left out while they are empty.
func TestATransactionIsReadByATypeThatWritesTheSame(t *testing.T) {
	type (
		reordered struct {
			Lines []string
			ID    string
		}
		grown struct {
			ID    string
			Lines []string
			Total int `json:",omitempty"`
		}
	)
	for name, end := range map[string]func(t testing.TB, path string, h participant.Handle) ([]string, error, error){
		"in another order": ended[reordered], "with omitempty": ended[grown], "as it was": ended[sale],
	} {
		path := filepath.Join(t.TempDir(), "journal")
		r := tillOf(t, &till[sale]{next: sale{"s1", []string{"a", "b"}}}, path)
		openDesk(t, r, 1)
		b, err := r.Begin(t.Context(), under(1, 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := participant.TransactionOf[sale](t.Context(), b); err != nil {
			t.Fatal(err)
		}
		calls, _, err := end(t, path, voteOf(t, b).Handle)
		if err != nil || len(calls) != 1 || !strings.Contains(calls[0], `"s1"`) || !strings.Contains(calls[0], `["a","b"]`) {
			t.Errorf("%s: the service was asked for %q, %v", name, calls, err)
		}
	}
}

// A T that its own program cannot read back is refused before anything is written under it, and not when it is decided.
func TestATransactionThatIsNotReadBackIsRefusedAtOnce(t *testing.T) {
	c := &till[map[string]any]{next: map[string]any{"id": int64(1234567890123456789)}} // read as a float
	r := tillOf(t, c, filepath.Join(t.TempDir(), "journal"))
	openDesk(t, r, 1)
	b, err := r.Begin(t.Context(), under(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = participant.TransactionOf[map[string]any](t.Context(), b)
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), `"id" reads differently here`) {
		t.Errorf("%v", err)
	}
	if len(c.calls) != 1 || !strings.HasPrefix(c.calls[0], "abort ") {
		t.Errorf("the service was asked for %q", c.calls)
	}
}
