package processor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/checkpoint"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
)

// task is a pipeline as a member runs it. Between Start and Halted two goroutines work: one asks the
// source, the other takes the steps of the epoch loop.
type task struct {
	p     *Pipeline
	log   *slog.Logger
	snap  *checkpoint.Snapshots
	loop  *epochLoop
	gen   uint64
	stop  context.CancelFunc // nil when nothing runs
	group sync.WaitGroup
	// grace is how long a barrier may wait after a step that was held back; see catchUp.
	grace time.Duration

	late, skipped, dead lost

	mu       sync.Mutex // guards barriers; never held across a call
	barriers []participant.Barrier
	ordered  chan struct{} // one token: there is a barrier
}

// polled is what one Poll brought. The batch is the source's again when the token goes back.
type polled struct {
	batch  *stream.Batch
	waited int64 // milliseconds
	err    error
}

// Task is the pipeline as a participant's task, for those who run the member themselves. A nil
// logger discards.
func (p *Pipeline) Task(shard uint32, log *slog.Logger) participant.Task {
	return newTask(p, p.name, shard, log)
}

func newTask(p *Pipeline, name string, shard uint32, log *slog.Logger) *task {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &task{
		p: p, log: log, ordered: make(chan struct{}, 1),
		snap: checkpoint.New(checkpoint.Config{
			Scope: fmt.Sprintf("%s.%d.", name, shard), Member: p.settings.member,
			Operator: p.operatorID, KeyGroups: p.settings.keyGroups, Store: p.settings.store,
		}),
	}
}

// Restore builds a new epoch loop at the restore point. Whatever the old one held is dropped with it.
func (t *task) Restore(ctx context.Context, r participant.Restore) error {
	t.halt()
	from := make([]stream.Position, 0, len(r.Positions))
	op := t.p.newOperator()
	loop := newEpochLoop(op, t.p.sinks, t.snap)
	carrier, err := carriers(ctx, t.p.sinks)
	if err != nil {
		return err
	}
	loop.out.carrier = carrier
	if d, ok := t.p.source.(Drainer); ok {
		loop.drained = d.Drained
	}
	for _, p := range r.Positions {
		split := stream.Split{Resource: p.Resource, ID: p.Split}
		from = append(from, stream.Position{Split: split, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Opaque: p.Opaque})
		loop.positions[split] = &place{at: p, highWater: -1}
	}
	if err := t.p.source.Open(ctx, from); err != nil {
		return fmt.Errorf("open source %q: %w", t.p.sourceName, err)
	}
	splits := t.p.source.Splits()
	if err := sameSource(from, splits); err != nil {
		return fmt.Errorf("restore point %d.%d: %w", r.RestoreGeneration, r.RestoreN, err)
	}
	if err := t.snap.Claim(ctx, r.Namespace.Name); err != nil {
		return fmt.Errorf("state of operator %q: %w", t.p.operatorID, err)
	}
	if r.Fresh {
		op.reset(splits)
		t.snap.Clear()
	} else {
		err := t.snap.Load(ctx, r, func(meta []byte) (state.Keyed, error) { return op.keyed(), op.restore(meta, splits) })
		if errors.Is(err, state.ErrFormat) {
			err = fmt.Errorf("%w: %w", participant.ErrMisconfigured, err) // it will not be better the next time
		}
		if err != nil {
			return fmt.Errorf("state of operator %q at restore point %d.%d: %w", t.p.operatorID, r.RestoreGeneration, r.RestoreN, err)
		}
	}
	if err := t.snap.Sweep(ctx, r.Generation, r.KeptParts); err != nil {
		// Rubbish that stays is found again at the next restore.
		t.log.WarnContext(ctx, "state parts that nothing names could not be deleted", obs.Gen(r.Generation), obs.Err(err))
	}
	t.loop, t.gen = loop, r.Generation
	t.show()
	return nil
}

// sameSource refuses positions of a source by another name. A source that did not mind would go on from
// them under its own name, the old ones would be voted for beside the new for ever, and the next restart would
// read again from whichever comes last.
func sameSource(from []stream.Position, splits []stream.Split) error {
	for _, p := range from {
		if !slices.ContainsFunc(splits, func(s stream.Split) bool { return s.Resource == p.Split.Resource }) && len(splits) > 0 {
			return otherSource(p.Split.Resource, splits[0].Resource)
		}
	}
	return nil
}

// Start lets the two goroutines go.
func (t *task) Start(ctx context.Context, s participant.Start) error {
	if t.loop == nil || t.gen != s.Generation {
		return fmt.Errorf("%w: generation %d is started and %d was restored", participant.ErrBug, s.Generation, t.gen)
	}
	t.loop.run, t.loop.limit = s.Run, s.InlineLimit
	t.grace = min(s.EpochInterval/4, mostGrace)
	// The generation outlives the call that starts it, and ends with Halted.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop = stop
	batches, back := make(chan polled), make(chan struct{})
	t.group.Go(func() { t.read(ctx, batches, back) })
	t.group.Go(func() {
		if err := t.work(ctx, s.Run, batches, back); err != nil && ctx.Err() == nil && !errors.Is(err, participant.ErrClosed) {
			s.Run.Fail(err)
		}
	})
	return nil
}

// Barrier queues the order; the loop takes it between two batches.
func (t *task) Barrier(_ context.Context, b participant.Barrier) error {
	t.mu.Lock()
	t.barriers = append(t.barriers, b)
	t.mu.Unlock()
	select {
	case t.ordered <- struct{}{}:
	default:
	}
	return nil
}

// Halted stops both goroutines and waits for them; what they held is dropped.
func (t *task) Halted(context.Context, string) error {
	t.halt()
	return nil
}

func (t *task) halt() {
	if t.stop != nil {
		t.stop()
		t.group.Wait()
		t.snap.Wait()
		t.stop = nil
	}
	t.mu.Lock()
	t.barriers = nil
	t.mu.Unlock()
	select {
	case <-t.ordered:
	default:
	}
	t.loop = nil
}

// read asks the source for one batch after the other. The next one is fetched only when the loop is
// done with the last, whose memory is the source's; sources fetch ahead on their own.
func (t *task) read(ctx context.Context, batches chan<- polled, back <-chan struct{}) {
	for {
		asked := time.Now()
		b, err := t.p.source.Poll(ctx)
		p := polled{batch: b, waited: time.Since(asked).Milliseconds(), err: err}
		select {
		case batches <- p:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
		select {
		case <-back:
		case <-ctx.Done():
			return
		}
	}
}

// work takes the loop's steps until the generation is over, its last barrier was voted for, or a step fails.
func (t *task) work(ctx context.Context, run participant.Run, batches <-chan polled, back chan<- struct{}) error {
	for {
		// A barrier that is there goes first: it has waited for at most one batch.
		final, err := t.orders(ctx)
		if err != nil || final {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-run.Done():
			return nil
		case <-t.ordered: // and to the top, where it is taken
		case ids := <-run.Retired():
			if err := t.snap.Retired(ctx, ids); err != nil {
				t.log.WarnContext(ctx, "retired state parts could not be deleted", obs.Gen(t.gen), obs.Err(err))
			}
		case p := <-batches:
			began := time.Now()
			if err := t.take(ctx, p, back); err != nil {
				return err
			}
			if time.Since(began) >= heldBack && t.waiting() {
				if err := t.catchUp(ctx, run, batches, back); err != nil {
					return err
				}
			}
		}
	}
}

// take takes a step and gives the token back, if there is anybody left to give it to.
func (t *task) take(ctx context.Context, p polled, back chan<- struct{}) error {
	if err := t.step(ctx, p); err != nil || p.err != nil {
		return err // or the source has ended
	}
	select {
	case back <- struct{}{}:
	case <-ctx.Done():
	}
	return nil
}

const (
	// heldBack is a step that took so long that more than one batch may have come meanwhile.
	heldBack = time.Millisecond
	// atHand is how soon a batch comes that the source has already.
	atHand = time.Millisecond
	// mostGrace bounds how long a barrier is kept waiting for what the source has at hand.
	mostGrace = 50 * time.Millisecond
)

// waiting reports whether a barrier is queued.
func (t *task) waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.barriers) > 0
}

// catchUp takes what the source has at hand although a barrier waits, for a part of the epoch's time at
// most. While the loop was held back the clock has ordered that barrier. If it went first, so it would be
// with the next epoch, and each would have one batch, of one split, however many had come: they would grow
// older and older in the source.
func (t *task) catchUp(ctx context.Context, run participant.Run, batches <-chan polled, back chan<- struct{}) error {
	end, dry := time.NewTimer(t.grace), time.NewTimer(atHand)
	defer end.Stop()
	defer dry.Stop()
	for {
		select {
		case p := <-batches:
			if err := t.take(ctx, p, back); err != nil || p.err != nil {
				return err
			}
			dry.Reset(atHand)
		case <-dry.C:
			return nil
		case <-end.C:
			return nil
		case <-run.Done():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// orders votes for every barrier that is queued; final: the generation's last was among them.
func (t *task) orders(ctx context.Context) (final bool, err error) {
	for {
		t.mu.Lock()
		if len(t.barriers) == 0 {
			t.mu.Unlock()
			return false, nil
		}
		b := t.barriers[0]
		t.barriers = t.barriers[1:]
		t.mu.Unlock()
		if err := t.loop.barrier(ctx, b); err != nil {
			return false, err
		}
		t.show()
		t.tellLost(ctx)
		if b.Final {
			return true, nil
		}
	}
}

func (t *task) step(ctx context.Context, p polled) (err error) {
	switch {
	case errors.Is(p.err, io.EOF):
		err = t.loop.end(ctx)
	case p.err != nil:
		return fmt.Errorf("source %q: %w", t.p.sourceName, p.err)
	case p.batch == nil:
		err = t.loop.silence(ctx, p.waited)
	default:
		err = t.loop.batch(ctx, p.batch, p.waited)
	}
	t.show()
	return err
}

// lost counts records that are in no output of results, and when it was last told of them.
type lost struct {
	told uint64
	at   time.Time
}

// tellAgain is the least time between two warnings of records that are in no output.
const tellAgain = time.Minute

// tellLost warns of records that are in no output, or are dead letters: nothing else shows it.
func (t *task) tellLost(ctx context.Context) {
	c := t.loop.op.counts()
	if t.p.dropsLate && t.late.more(c.Late) {
		t.log.WarnContext(ctx, "records came after their window had fired and are in no output; give the pipeline a late output, more disorder or allowed lateness",
			obs.Pipeline(t.p.name), obs.Gen(t.gen), slog.Uint64("late", c.Late), slog.Uint64("new", t.late.tell(c.Late)))
	}
	if t.skipped.more(c.Skipped) {
		t.log.WarnContext(ctx, "bad records were skipped and are in no output; send them to dead letters to see which, and why",
			obs.Pipeline(t.p.name), obs.Gen(t.gen), slog.Uint64("skipped", c.Skipped), slog.Uint64("new", t.skipped.tell(c.Skipped)))
	}
	if t.dead.more(c.DeadLettered) {
		t.log.WarnContext(ctx, "bad records went to dead letters, which say why",
			obs.Pipeline(t.p.name), obs.Gen(t.gen), slog.Uint64("dead_letters", c.DeadLettered), slog.Uint64("new", t.dead.tell(c.DeadLettered)))
	}
}

// more reports whether there is something to tell, and it is time.
func (l *lost) more(n uint64) bool {
	return n > l.told && (l.at.IsZero() || time.Since(l.at) >= tellAgain)
}

// tell notes that n are told of, and returns how many of them are new.
func (l *lost) tell(n uint64) uint64 {
	before := l.told
	l.told, l.at = n, time.Now()
	return n - before
}

// show publishes what tools may see.
func (t *task) show() {
	s := t.loop.status()
	if t.loop.whole {
		s.EndIn = &EndIn{Generation: t.gen, N: t.loop.through}
	}
	t.p.status.Store(&s)
}
