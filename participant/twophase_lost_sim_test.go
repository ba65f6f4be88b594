package participant_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

// counting is a desk that the counter can write to.
type counting struct {
	*participant.TwoPhaseResource[string]
	desk *deskService
}

type countingBranch struct {
	participant.Branch
	desk *deskService
}

func (c counting) Begin(ctx context.Context, name participant.BranchName) (participant.Branch, error) {
	b, err := c.TwoPhaseResource.Begin(ctx, name)
	return countingBranch{b, c.desk}, err
}

func (b countingBranch) Write(line string) error {
	id, err := participant.TransactionOf[string](context.Background(), b.Branch)
	if err == nil {
		b.desk.write(id, line)
	}
	return err
}

// Row L1. A process is killed with work that is begun and not decided, and its journal goes before the next one starts.
// The scope is halted and says what is missing, until a person lets the journal go; and nobody is told that nothing was
// left.
func TestL1_APipelineWhoseJournalIsLostIsHalted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGroup(t, ledger.Settings{EpochInterval: 100}, "solo")
		d, path := newDesk(), filepath.Join(t.TempDir(), "journal")
		run := func(change func(*participant.MemberConfig)) *process {
			r := counting{twoPhase(t, d, path, func(c *participant.TwoPhaseConfig[string]) { c.Kind = "memory" }), d}
			return g.run("solo", participanttest.NewStore("unused"), func(c *participant.MemberConfig) {
				c.Resources["out"] = r
				if change != nil {
					change(c)
				}
			})
		}
		halted := func() (why string) {
			g.view(func(m *ledger.Machine) { why = m.Halted(ledger.ScopeID{Pipeline: pipeline}) })
			return why
		}
		p := run(nil)
		within(t, 10*time.Second, "epochs", func() bool { return g.newest().Final > 3 })
		was := g.newest().Generation
		p.kill()
		p = run(nil) // with its journal it goes on
		within(t, 10*time.Second, "epochs of the next generation", func() bool { n := g.newest(); return n.Generation > was && n.Final > 3 })
		if why := halted(); why != "" {
			t.Fatalf("halted: %s", why)
		}
		p.kill()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		p = run(nil)
		within(t, 10*time.Second, "the halt", func() bool { return halted() != "" })
		for _, want := range []string{path, "put it back", "--allow-moved"} {
			if why := halted(); !strings.Contains(why, want) {
				t.Errorf("it does not say %q: %s", want, why)
			}
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("the journal was made anew")
		}
		p.kill()
		owed := 0
		g.view(func(m *ledger.Machine) { owed = len(m.Outstanding().Debts) })
		if owed == 0 {
			t.Error("the sweep of what is not known any more counts as done")
		}
		g.apply(ledger.Resume{Scope: ledger.ScopeID{Pipeline: pipeline}, Why: "looked in the service"})
		was = g.newest().Generation
		run(func(c *participant.MemberConfig) { c.AllowChangedResources = true })
		within(t, 30*time.Second, "epochs with a new journal", func() bool { n := g.newest(); return n.Generation > was && n.Final > 3 })
	})
}
