package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant"
)

// Database is one PostgreSQL database as a participant.Resource: several tables, one branch per
// transaction. A finisher, who calls Commit, Rollback, Inspect and List alone, need not open it. It is
// safe for concurrent use.
type Database struct {
	o         Options
	finishers chan struct{} // a token per connection that is lent by with
	tables    tableCache    // what Options.Tables are on the server

	work sync.WaitGroup // goroutines; Close waits

	mu       sync.Mutex // guards what follows; held for memory only
	pool     *pgxpool.Pool
	cached   bool // its connections keep what they have prepared
	id       identity
	t        *tenure // nil before Open
	branches map[string]*Branch
	closed   bool
	stop     context.CancelFunc // of the goroutines

	hook func(step string) // tests
}

// New makes a database. Nothing is connected before Describe, Open or a call by handle.
func New(o Options) (*Database, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	return &Database{o: o, finishers: make(chan struct{}, o.Finishers), branches: map[string]*Branch{}}, nil
}

// Options returns the settings with their defaults.
func (d *Database) Options() Options { return d.o }

// reached tells a test where we are.
func (d *Database) reached(step string) {
	if d.hook != nil {
		d.hook(step)
	}
}

// Describe connects and tells the database's identity: the server's system identifier and the
// database's oid, which survive a change of name or address.
func (d *Database) Describe(ctx context.Context) (participant.Description, error) {
	id, err := d.known(ctx)
	if err != nil {
		return participant.Description{}, err
	}
	return participant.Description{
		Kind: Kind, Identity: id.String(), Text: fmt.Sprintf("database %s at %s", id.database, id.where), CanList: true,
	}, nil
}

// Open makes the schema where it is missing and the role may, checks that the server can hold what
// will be prepared, raises the member's fence and ends what older generations still write. Branches
// that are prepared stay for their handles.
func (d *Database) Open(ctx context.Context, o participant.Opening) error {
	if o.Generation == 0 || o.Generation > math.MaxInt64 {
		return fmt.Errorf("open for generation %d: %w", o.Generation, participant.ErrBug)
	}
	if err := checkGID(fmt.Sprintf("%s.%s.%d.%d", holder(o), o.Resource, o.Generation, uint64(math.MaxUint64))); err != nil {
		return err
	}
	id, err := d.known(ctx)
	if err != nil {
		return err
	}
	if err := d.furnish(ctx, id); err != nil {
		return err
	}
	if err := d.capacity(ctx, id, o); err != nil {
		return err
	}
	if _, err := d.tables.renew(ctx, d); err != nil {
		return err
	}
	t := &tenure{id: id, holder: holder(o), generation: o.Generation}
	first, second := d.raise, d.clear
	if mutant.On("postgres/raise-first") {
		first, second = d.clearBefore, d.raise
	}
	if err := first(ctx, t); err != nil {
		return err
	}
	d.reached("open: between raise and clear")
	d.succeed(ctx, t)
	if err := second(ctx, t); err != nil {
		return err
	}
	return d.prune(ctx)
}

// clearBefore is the wrong order: it ends older backends by the row as it is, before it is raised.
func (d *Database) clearBefore(ctx context.Context, t *tenure) error {
	before := &tenure{id: t.id, holder: t.holder, generation: t.generation}
	if err := d.standing(ctx, before); err != nil {
		return err
	}
	return d.clear(ctx, before)
}

// succeed puts a tenure in the place of the one before, whose branches are dropped.
func (d *Database) succeed(ctx context.Context, t *tenure) {
	d.mu.Lock()
	old := d.branches
	d.branches = map[string]*Branch{}
	d.t = t
	start := d.stop == nil && !d.closed
	var life context.Context
	if start {
		life, d.stop = context.WithCancel(context.WithoutCancel(ctx))
		d.work.Go(func() { d.tidy(life) })
	}
	d.mu.Unlock()
	for _, b := range old {
		b.end(ctx, fmt.Errorf("generation %d of %s is open, this branch is of %d: %w", t.generation, t.holder, b.t.generation, participant.ErrFenced))
	}
}

// tidyEvery is how often markers past their retention are removed, beside once at Open.
const tidyEvery = time.Hour

// tidy removes old markers until the database is closed.
func (d *Database) tidy(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := d.prune(ctx); err != nil && ctx.Err() == nil {
				d.o.Logger.WarnContext(ctx, "old markers were not removed", obs.Err(err))
			}
		}
	}
}

// Begin returns a *Branch; its transaction begins with the first statement.
func (d *Database) Begin(ctx context.Context, name participant.BranchName) (participant.Branch, error) {
	if err := checkGID(name.String()); err != nil {
		return nil, err
	}
	d.mu.Lock()
	t, closed := d.t, d.closed
	d.mu.Unlock()
	if t == nil || closed {
		return nil, fmt.Errorf("begin %s: the database is not open: %w", name, participant.ErrBug)
	}
	if name.Txn == "" && name.Generation != t.generation {
		return nil, fmt.Errorf("begin %s: generation %d is open here: %w", name, t.generation, participant.ErrFenced)
	}
	b := newBranch(d, t, name)
	d.mu.Lock()
	earlier := d.branches[b.gid]
	d.branches[b.gid] = b
	d.mu.Unlock()
	if earlier != nil {
		earlier.end(ctx, fmt.Errorf("%w: it was begun again", errDropped))
	}
	return b, nil
}

// forget lets go of a branch that has voted or ended.
func (d *Database) forget(b *Branch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.branches[b.gid] == b {
		delete(d.branches, b.gid)
	}
}

// start runs a goroutine that Close waits for; not after Close.
func (d *Database) start(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.work.Go(f)
	return true
}

// Close drops what is not prepared and ends connections and goroutines; nothing is published.
func (d *Database) Close() error {
	d.mu.Lock()
	old, stop, pool := d.branches, d.stop, d.pool
	d.branches, d.closed = map[string]*Branch{}, true
	d.mu.Unlock()
	if stop != nil {
		stop()
	}
	for _, b := range old {
		b.end(context.Background(), fmt.Errorf("%w: the database was closed", errDropped))
	}
	d.work.Wait()
	if pool != nil {
		pool.Close()
	}
	return nil
}

func obsSlots(n int) slog.Attr { return slog.Int("slots", n) }
func obsLimit(n int) slog.Attr { return slog.Int("limit", n) }
