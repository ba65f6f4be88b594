// Package finish is leader only: it sees to work that nobody's next step would end by itself.
// Hand-run transactions past their deadline are aborted in the log, resolved history is retired,
// and what is unfinished is counted by age for those who must be alarmed. Branches of living
// members are finished by the members; what dead ones left comes back to them, or to a
// resolver, through the ledger's own lists.
package finish

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/obs"
)

// Proposer is the replicated log as this package needs it.
type Proposer interface {
	// Propose returns when the command was applied, refused, or its outcome is unknown.
	Propose(ctx context.Context, c ledger.Command) (ledger.Result, error)
	// View reads the state of this node.
	View(read func(*ledger.Machine))
}

// Config says how often; zero values take the defaults.
type Config struct {
	Log    Proposer
	Logger *slog.Logger
	// Retired is told which state parts may be deleted. It must not block.
	Retired func([]ledger.Retired)
	// Tick between looks at what is outstanding; default 1 s.
	Tick time.Duration
	// RetireEvery between two Retire commands; default 5 s. State of epochs that are no restore points any longer
	// stays in memory until then, so a Retire also comes, seen once a Tick, as soon as the epochs in memory have grown
	// by a tenth of what all scopes may keep, and by no less than a tenth of KeepInAll.
	RetireEvery time.Duration
	// KeepFor is how long resolved history stays readable, and ids of hand-run transactions are
	// answered; default 1 h.
	KeepFor time.Duration
	// KeepEpochs is the most resolved epochs of one scope that stay readable; default 100. A group with many scopes
	// keeps fewer of each, though at least 64, so that all of them together are about KeepInAll; default 50,000.
	KeepEpochs, KeepInAll uint32
	// ProposeTimeout bounds the wait for one command; default 5 s. Its end means unknown.
	ProposeTimeout time.Duration
}

// Ages is what is in doubt, as the last look found it.
type Ages struct {
	// Unfinished branches, and the age of the oldest.
	Unfinished int
	Oldest     time.Duration
	// Debts unpaid, and the age of the oldest.
	Debts      int
	OldestDebt time.Duration
	// Announced transactions that are undecided.
	Announced int
}

// Finisher is made once and runs while its node leads.
type Finisher struct {
	c    Config
	mu   sync.Mutex // guards ages; held for memory only
	ages Ages
}

// New fills in the defaults.
func New(c Config) *Finisher {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Tick, time.Second)
	def(&c.RetireEvery, 5*time.Second)
	def(&c.KeepFor, time.Hour)
	def(&c.ProposeTimeout, 5*time.Second)
	if c.KeepEpochs == 0 {
		c.KeepEpochs = 100
	}
	if c.KeepInAll == 0 {
		c.KeepInAll = 50_000
	}
	if c.Retired == nil {
		c.Retired = func([]ledger.Retired) {}
	}
	return &Finisher{c: c}
}

// Ages returns what the last look found; zero on a node that does not lead.
func (f *Finisher) Ages() Ages {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ages
}

// Run works while this node leads; it returns when ctx ends.
func (f *Finisher) Run(ctx context.Context) error {
	tick := time.NewTicker(f.c.Tick)
	defer tick.Stop()
	defer f.setAges(Ages{})
	lastRetire := time.Now()
	left, _ := f.epochs()
	for {
		more, err := f.look(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			f.c.Logger.WarnContext(ctx, "outstanding work not moved on; trying again", obs.Err(err))
		}
		now, most := f.epochs()
		left = min(left, now)
		if time.Since(lastRetire) >= f.c.RetireEvery || now-left >= most/10 {
			lastRetire = time.Now()
			if err := f.retire(ctx); err == nil {
				left, _ = f.epochs()
			} else if ctx.Err() == nil {
				f.c.Logger.WarnContext(ctx, "history not retired; trying again", obs.Err(err))
			}
		}
		if more && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look counts what is outstanding and aborts announced transactions whose deadline has passed. More says that there are
// more of those than one look takes, and nothing kept it from aborting its own.
func (f *Finisher) look(ctx context.Context, now time.Time) (more bool, err error) {
	var d ledger.Doubt
	var overdue []ledger.TxnID
	f.c.Log.View(func(m *ledger.Machine) { d, overdue = m.Doubt(), m.Overdue(now.UnixMilli(), atOneLook) })
	age := func(n int, since int64) time.Duration {
		if n == 0 {
			return 0
		}
		return max(0, now.Sub(time.UnixMilli(since)))
	}
	f.setAges(Ages{
		Unfinished: d.Unfinished, Oldest: age(d.Unfinished, d.UnfinishedSince),
		Debts: d.Debts, OldestDebt: age(d.Debts, d.DebtsSince), Announced: d.Announced,
	})
	// Side by side, so that they share entries: clients that died together have deadlines together.
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, id := range overdue {
		// Whether it is still undecided is judged by the entry, not by this look. One error stands for
		// all: what was not decided is found again by the next look.
		g.Go(func() error {
			return f.propose(ctx, ledger.PresumeAbort{Txn: id, Why: "undecided at its deadline"}, nil)
		})
	}
	err = g.Wait()
	return err == nil && len(overdue) == atOneLook, err
}

const (
	// atOnce is how many aborts are on their way to the log at the same time.
	atOnce = 64
	// atOneLook is how many transactions one look aborts, so that the ages stay fresh.
	atOneLook = 4096
)

// fewestEpochs of a scope stay readable where there are many: those of a minute, with an epoch each second. Of a slot that
// was first used within that time the ledger tells by them what became of it.
const fewestEpochs = 64

// keepEpochs is how many resolved epochs each of so many scopes keeps.
func (c *Config) keepEpochs(scopes int) uint32 {
	each := uint32(int(c.KeepInAll) / max(scopes, 1))
	return min(c.KeepEpochs, max(fewestEpochs, each))
}

// epochs is how many decided epochs are in memory, and how many all scopes may keep there; that is 10 at least.
func (f *Finisher) epochs() (now, most int) {
	f.c.Log.View(func(m *ledger.Machine) {
		scopes := m.ScopeCount()
		now, most = m.EpochCount(), max(10, int(f.c.KeepInAll), scopes*int(f.c.keepEpochs(scopes)))
	})
	return now, most
}

func (f *Finisher) retire(ctx context.Context) error {
	var scopes int
	f.c.Log.View(func(m *ledger.Machine) { scopes = m.ScopeCount() })
	return f.propose(ctx, ledger.Retire{KeepFor: f.c.KeepFor.Milliseconds(), KeepEpochs: f.c.keepEpochs(scopes)}, func(r ledger.Result) {
		if len(r.Retired) > 0 {
			f.c.Retired(r.Retired)
		}
	})
}

func (f *Finisher) propose(ctx context.Context, b ledger.Body, applied func(ledger.Result)) error {
	ctx, cancel := context.WithTimeout(ctx, f.c.ProposeTimeout)
	defer cancel()
	r, err := f.c.Log.Propose(ctx, ledger.Command{Actor: "coordinator", Body: b})
	if err != nil {
		return err
	}
	// A refusal says that somebody else was quicker, which is as good.
	if r.OK() && applied != nil {
		applied(r)
	}
	return nil
}

func (f *Finisher) setAges(a Ages) {
	f.mu.Lock()
	f.ages = a
	f.mu.Unlock()
}
