package participant_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/unisink/unisink/participant"
)

// table is a journal that is no file: one in a database, say.
type table struct {
	mu   sync.Mutex // guards rows
	rows map[string][]byte
}

func (j *table) Update(_ context.Context, key string, change func([]byte) ([]byte, error)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, err := change(j.rows[key])
	switch {
	case err != nil:
		return err
	case now == nil:
		delete(j.rows, key)
	default:
		j.rows[key] = now
	}
	return nil
}

func (j *table) Entries(_ context.Context, prefix string) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := maps.Clone(j.rows)
	maps.DeleteFunc(out, func(k string, _ []byte) bool { return !strings.HasPrefix(k, prefix) })
	return out, nil
}

// truncate is what somebody does to it who tidies up.
func (j *table) truncate() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.rows)
}

func (j *table) in(c *participant.TwoPhaseConfig[string]) { c.Journal = j }

// lostJournal are the ways in which a journal goes, each with what does it.
func lostJournal(t *testing.T, run func(t *testing.T, d *deskService, process func() *participant.TwoPhaseResource[string], lose func())) {
	t.Helper()
	t.Run("a file is deleted", func(t *testing.T) {
		d, path := newDesk(), filepath.Join(t.TempDir(), "journal")
		process := func() *participant.TwoPhaseResource[string] { return twoPhase(t, d, path) }
		run(t, d, process, func() {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("a directory is deleted and made again", func(t *testing.T) {
		d, dir := newDesk(), filepath.Join(t.TempDir(), "journals")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		process := func() *participant.TwoPhaseResource[string] { return twoPhase(t, d, filepath.Join(dir, "journal")) }
		run(t, d, process, func() {
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("a table is emptied", func(t *testing.T) {
		d, j := newDesk(), &table{rows: map[string][]byte{}}
		process := func() *participant.TwoPhaseResource[string] { return twoPhase(t, d, "", j.in) }
		run(t, d, process, j.truncate)
	})
}

// gone checks that an error says that the journal is.
func gone(t *testing.T, at string, err error, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("%s: %v, want %v", at, err, class)
		return
	}
	if !strings.Contains(err.Error(), "journal") {
		t.Errorf("%s: it does not speak of the journal: %v", at, err)
	}
}

// Row L1. The journal is lost under a process that is running. Whatever comes next says so, and nothing is promised or
// done on its word.
func TestL1_AJournalThatIsLostIsToldByWhateverComesNext(t *testing.T) {
	lostJournal(t, func(t *testing.T, d *deskService, process func() *participant.TwoPhaseResource[string], lose func()) {
		r := process()
		openDesk(t, r, 7)
		decided := voteOf(t, beginDesk(t, d, r, under(7, 1), "decided")).Handle
		written := beginDesk(t, d, r, under(7, 2), "written")
		fresh := beginDesk(t, d, r, under(7, 3))
		lose()

		_, err := participant.TransactionOf[string](t.Context(), fresh)
		gone(t, "begin", err, participant.ErrMisconfigured)
		if d.last != 2 {
			t.Errorf("the service was asked to begin %d times, want twice", d.last)
		}
		v := voteOf(t, written)
		if v.Kind != participant.No {
			t.Fatalf("the vote is %d, want no", v.Kind)
		}
		gone(t, "vote", v.Reason, participant.ErrMisconfigured)
		if d.state["t2"] != "cancelled" {
			t.Errorf("what was written is %q", d.state["t2"])
		}
		if _, err := r.List(t.Context(), under(7, 1).Namespace); err == nil {
			t.Error("it lists as if nothing had been begun")
		} else {
			gone(t, "list", err, participant.ErrMisconfigured)
		}
		p, err := r.Commit(t.Context(), decided)
		if err == nil {
			t.Errorf("commit: %+v", p)
		} else if !errors.Is(err, participant.ErrMisconfigured) { // of the file itself, if that is not there
			gone(t, "commit", err, participant.ErrUndeterminable)
		}
		if got := d.sees(); len(got) > 0 {
			t.Errorf("readers see %q", got)
		}
	})
}

// The next process finds no journal where its generation's forerunner surely had one. It makes none before a person has
// allowed it; then what is decided is committed from its handle.
func TestL1_AJournalThatIsLostIsNotMadeAnewWithoutAWord(t *testing.T) {
	lostJournal(t, func(t *testing.T, d *deskService, process func() *participant.TwoPhaseResource[string], lose func()) {
		before := process()
		openDesk(t, before, 7)
		decided := voteOf(t, beginDesk(t, d, before, under(7, 1), "decided")).Handle
		beginDesk(t, d, before, under(7, 2), "and not decided")
		lose()

		r := process()
		o := participant.Opening{Namespace: under(1, 1).Namespace, Scope: "p/0", Member: "m", Resource: "desk", Generation: 8, Held: 7}
		err := r.Open(t.Context(), o)
		gone(t, "open", err, participant.ErrMisconfigured)
		for _, want := range []string{"generation 7", "was added while that generation ran", "see in the service what is left there", "once with --allow-moved"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("it does not say %q: %v", want, err)
			}
		}
		if _, err := r.Commit(t.Context(), decided); err == nil {
			t.Error("committed as if nothing had happened")
		}
		if _, err := process().List(t.Context(), o.Namespace); err == nil {
			t.Error("a resolver lists as if nothing had been begun")
		}
		o.Held = 0
		if err := process().Open(t.Context(), o); err != nil { // a person has allowed it
			t.Errorf("open: %v", err)
		}
	})
}

func TestAJournalThatAPersonLetsGoIsMadeAnew(t *testing.T) {
	d, path := newDesk(), filepath.Join(t.TempDir(), "journal")
	before := twoPhase(t, d, path)
	openDesk(t, before, 7)
	decided := voteOf(t, beginDesk(t, d, before, under(7, 1), "decided")).Handle
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r := twoPhase(t, d, path)
	openDesk(t, r, 8) // the member says of no generation that it had it open
	if p, err := r.Commit(t.Context(), decided); err != nil || p.Verdict != participant.Committed {
		t.Errorf("%+v, %v", p, err)
	}
	if got := d.sees(); len(got) != 1 {
		t.Errorf("readers see %q", got)
	}
}

// A backup of the ledger was restored: the namespace has a new incarnation, and the journal is what it was.
func TestAJournalOfBeforeABackupWasRestoredIsNotTakenForALostOne(t *testing.T) {
	d, path := newDesk(), filepath.Join(t.TempDir(), "journal")
	openDesk(t, twoPhase(t, d, path), 7)
	o := participant.Opening{Namespace: under(1, 1).Namespace, Scope: "p/0", Member: "m", Resource: "desk", Generation: 1000, Held: 7}
	o.Namespace.Incarnation = 2
	other := o
	other.Member = "m2"
	gone(t, "open by one who was never there", twoPhase(t, d, path).Open(t.Context(), other), participant.ErrMisconfigured)
	other = o
	other.Namespace.Name = "another"
	gone(t, "open in another namespace", twoPhase(t, d, path).Open(t.Context(), other), participant.ErrMisconfigured)
	if err := twoPhase(t, d, path).Open(t.Context(), o); err != nil {
		t.Errorf("open: %v", err)
	}
}

// The group and the journal were lost together, a backup was restored, and a person has let the journal go: what the backup has as decided is committed.
func TestWhatWasDecidedBeforeABackupIsCommittedWithANewJournal(t *testing.T) {
	d, path := newDesk(), filepath.Join(t.TempDir(), "journal")
	before := twoPhase(t, d, path)
	openDesk(t, before, 7)
	decided := voteOf(t, beginDesk(t, d, before, under(7, 1), "decided")).Handle
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r := twoPhase(t, d, path)
	o := participant.Opening{Namespace: under(1, 1).Namespace, Scope: "p/0", Member: "m", Resource: "desk", Generation: 1000}
	o.Namespace.Incarnation = 2
	if err := r.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if p, err := r.Commit(t.Context(), decided); err != nil || p.Verdict != participant.Committed {
		t.Errorf("%+v, %v", p, err)
	}
}
