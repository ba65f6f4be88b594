package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// windowPlan is what a member makes of what it reads.
type windowPlan struct {
	size, every        time.Duration
	disorder, lateness time.Duration
	splits, keys       int
	room               int // for state in a vote, bytes; what does not fit lies in the store
}

func (p windowPlan) String() string {
	return fmt.Sprintf("windows of %s each %s, disorder %s, lateness %s, %d keys in %d splits, %d bytes of state in a vote",
		p.size, p.every, p.disorder, p.lateness, p.keys, p.splits, p.room)
}

// Where the records that are too late go.
const lateAlias = "late"

// drawWindows makes two in five members such that make windows, one at least. It has a source of its own, so that the rest of
// a seed's plan does not depend on what windows may be.
func (p *plan) drawWindows() {
	rnd := rand.New(rand.NewPCG(p.seed, 3))
	ms := func(of ...int) time.Duration { return time.Duration(of[rnd.IntN(len(of))]) * time.Millisecond }
	lucky := rnd.IntN(len(p.pipelines))
	for i := range p.pipelines {
		pl := &p.pipelines[i]
		pl.drain = rnd.IntN(2) == 0
		for j, m := range pl.members {
			if rnd.IntN(5) > 1 && (i != lucky || j > 0) {
				continue
			}
			w := windowPlan{
				size: ms(200, 400, 1000), disorder: ms(0, 30, 100), lateness: ms(0, 0, 150, 600),
				splits: 1 + rnd.IntN(3), keys: []int{6, 20, 60}[rnd.IntN(3)], room: []int{450, 450, 1 << 16}[rnd.IntN(3)],
			}
			w.every = w.size / time.Duration([]int{1, 1, 2, 4}[rnd.IntN(4)])
			pl.windows[m] = w
			pl.resources[m] = slices.Concat(pl.resources[m], []string{lateAlias})
			pl.kinds[m+"/"+lateAlias] = []string{"memory", "memory", "file"}[rnd.IntN(3)]
		}
	}
}

// atStop is what an operator wants who stops the pipeline.
func (pl pipelinePlan) atStop() unisinkv1.DesiredState {
	if pl.drain {
		return unisinkv1.DesiredState_DESIRED_STATE_DRAINING
	}
	return unisinkv1.DesiredState_DESIRED_STATE_STOPPING
}

// windows are what a seat with windows has that outlives its processes: what there is to read, and the disk of its state.
type windows struct {
	seat *seat
	plan windowPlan
	disk *crashfs.Mem

	mu     sync.Mutex // guards the rest
	rnd    *rand.Rand
	source []check.Reading
	split  int // of the last record
}

func newWindows(s *seat, p windowPlan, seed uint64) *windows {
	return &windows{seat: s, plan: p, disk: crashfs.NewMem("/state"), rnd: rand.New(rand.NewPCG(seed, uint64(1000+len(s.w.seats))))}
}

// judged says what the windows must come to.
func (w *windows) judged() check.Windows {
	w.mu.Lock()
	defer w.mu.Unlock()
	return check.Windows{
		Size: w.plan.size.Milliseconds(), Every: w.plan.every.Milliseconds(),
		Disorder: w.plan.disorder.Milliseconds(), Lateness: w.plan.lateness.Milliseconds(),
		Splits: w.plan.splits, Late: lateAlias, Source: slices.Clone(w.source),
	}
}

// longestRun is how many records of one split the source delivers at once.
const longestRun = 8

// run are the records from an offset on that are of one split. The source goes on for ever, and all who read it read the same.
func (w *windows) run(from int64) []check.Reading {
	w.mu.Lock()
	defer w.mu.Unlock()
	for int64(len(w.source)) < from+longestRun {
		w.source = append(w.source, w.draw())
	}
	all := w.source[from : from+longestRun]
	n := slices.IndexFunc(all, func(r check.Reading) bool { return r.Split != all[0].Split })
	if n < 0 {
		n = longestRun
	}
	return slices.Clone(all[:n])
}

// draw makes the next record: each is ten milliseconds of event time behind the last, its split some behind the others, and
// it as much out of order as it may be; but for a few, which come later than that. Called with mu held.
func (w *windows) draw() check.Reading {
	if w.rnd.IntN(3) == 0 {
		w.split = w.rnd.IntN(w.plan.splits)
	}
	disorder, long := int(w.plan.disorder.Milliseconds()), int((3*w.plan.size + w.plan.lateness).Milliseconds())
	r := check.Reading{
		Split: w.split, Key: fmt.Sprintf("k%d", w.rnd.IntN(w.plan.keys)), Value: 1 + w.rnd.Int64N(1000),
		Time: int64(10*len(w.source) - 40*w.split - w.rnd.IntN(disorder+1)),
	}
	if w.rnd.IntN(25) == 0 {
		r.Time -= int64(w.rnd.IntN(long))
	}
	return r
}

// splitsAt is how far each split has been read when the source has been read up to an offset.
func (w *windows) splitsAt(offset int64) []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := make([]int64, w.plan.splits)
	for _, r := range w.source[:min(offset, int64(len(w.source)))] {
		at[r.Split]++
	}
	return at
}

// process is the task of a new process, and what ends its way to its state.
func (w *windows) process(l *life, resources map[string]participant.Resource) (worker, func(), error) {
	dead := new(atomic.Bool)
	dir, err := state.OpenDirOn(&mortalFS{w.disk, dead}, "/state/parts")
	if err != nil {
		return nil, nil, err
	}
	for alias, r := range resources {
		resources[alias] = &writable{Resource: r, to: w.seat.targets[alias]}
	}
	in := processor.From("in", &scripted{w: w, l: l}, read).Key(func(dst []byte, r *amount) []byte { return append(dst, r.key...) })
	sums := aggregate.Avg(func(r *amount) int64 { return r.value })
	of := processor.Tumbling(in, w.plan.size, sums)
	if w.plan.every < w.plan.size {
		of = processor.Sliding(in, w.plan.size, w.plan.every, sums)
	}
	of = of.Disorder(w.plan.disorder).AllowedLateness(w.plan.lateness).IdleAfter(0).Late(lateAlias, resources[lateAlias], writeLate)
	for _, alias := range []string{"a", "b"} {
		if r, ok := resources[alias]; ok {
			of = of.To(alias, r, writeResult)
		}
	}
	p, err := of.Pipeline(w.seat.pipeline, processor.MemberName(w.seat.name), processor.KeyGroups(8), processor.StateStore(&slowStore{dir, w.seat}))
	if err != nil {
		return nil, nil, err
	}
	return &windower{clerk: clerk{life: l, w: w.seat.w}, Task: p.Task(0, w.seat.w.nodes.logger), room: w.plan.room}, func() {
		dead.Store(true)
		if w.seat.w.draw(2) == 0 {
			w.disk.Reboot() // the power fails, and not the process alone
		}
	}, nil
}

// amount is a record as the windows see it.
type amount struct {
	key   []byte
	value int64
}

func read(in *stream.Record, out *amount) (err error) {
	out.key = in.Key
	out.value, err = strconv.ParseInt(string(in.Value), 10, 64)
	return err
}

func writeResult(r *processor.Result[aggregate.Mean], out *stream.Record) error {
	out.Value = append(out.Value, check.WindowResult(string(r.Key), r.Window.Start, r.Window.End, r.Value.Count, r.Value.Sum, r.Update)...)
	return nil
}

func writeLate(in *stream.Record, _ *amount, out *stream.Record) error {
	out.Value = append(out.Value, check.LateRecord(int(in.Partition), in.Offset)...)
	return nil
}

// windower is the product's own task of a pipeline with windows, whose history is kept.
type windower struct {
	clerk
	participant.Task
	room int

	next  int64    // where it begins
	parts []string // of the state that it begins with
}

// Restore implements participant.Task.
func (t *windower) Restore(ctx context.Context, r participant.Restore) error {
	t.seen.Store(r.Generation)
	t.next, t.parts = readTo(r.Positions), nil
	for _, p := range r.Parts {
		id := p.ID
		if p.Store != "" {
			id += stored
		}
		t.parts = append(t.parts, id)
	}
	return t.Task.Restore(ctx, r)
}

// stored is behind the id of a part that lies in the store.
const stored = " (stored)"

// readTo is how far a source has been read, over all its splits.
func readTo(at []participant.Position) int64 {
	n := int64(0)
	for _, p := range at {
		n += p.Offset
	}
	return n
}

// Start implements participant.Task.
func (t *windower) Start(ctx context.Context, s participant.Start) error {
	t.keep(check.Event{Kind: check.Started, Offset: t.next, Records: t.parts}, check.Epoch{Generation: s.Generation})
	s.InlineLimit = min(s.InlineLimit, t.room)
	s.Run = &watchedRun{s.Run, t}
	return t.Task.Start(ctx, s)
}

// Barrier implements participant.Task.
func (t *windower) Barrier(ctx context.Context, b participant.Barrier) error {
	t.ordered(b)
	return t.Task.Barrier(ctx, b)
}

// Halted implements participant.Task.
func (t *windower) Halted(ctx context.Context, why string) error {
	defer t.halted(why)
	return t.Task.Halted(ctx, why)
}

// watchedRun notes each vote.
type watchedRun struct {
	participant.Run
	t *windower
}

func (r *watchedRun) Vote(ctx context.Context, b participant.Barrier, c participant.Contribution) error {
	e := check.Event{Kind: check.Voted, Offset: readTo(c.Positions)}
	if b.Drain {
		e.Op = "drain"
	}
	r.t.keep(e, check.Epoch{Generation: b.Generation, N: b.N})
	return r.Run.Vote(ctx, b, c)
}

// writable is a resource whose branches take records as a pipeline has them.
type writable struct {
	participant.Resource
	to target
}

func (r *writable) Begin(ctx context.Context, name participant.BranchName) (participant.Branch, error) {
	b, err := r.Resource.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	return &writableBranch{b, r.to}, nil
}

type writableBranch struct {
	participant.Branch
	to target
}

// Write implements processor.Writer.
func (b *writableBranch) Write(ctx context.Context, records []stream.Record) error {
	for _, r := range records {
		if err := b.to.write(ctx, b.Branch, string(r.Value)); err != nil {
			return err
		}
	}
	return nil
}

// slowStore is a store of state that takes its time, and is as sick as the other resources of its seat.
type slowStore struct {
	state.Store
	s *seat
}

func (s *slowStore) Put(ctx context.Context, id string, body []byte) error {
	return s.around(ctx, "put", id, func() error { return s.Store.Put(ctx, id, body) })
}

func (s *slowStore) Get(ctx context.Context, id string) (body []byte, err error) {
	err = s.around(ctx, "get", id, func() error { body, err = s.Store.Get(ctx, id); return err })
	return body, err
}

func (s *slowStore) Delete(ctx context.Context, id string) error {
	return s.around(ctx, "delete", id, func() error { return s.Store.Delete(ctx, id) })
}

func (s *slowStore) around(ctx context.Context, call participanttest.Call, id string, do func() error) error {
	time.Sleep(time.Duration(100+s.s.w.draw(2900)) * time.Microsecond)
	s.s.mu.Lock()
	hook := s.s.hook
	s.s.mu.Unlock()
	if hook == nil {
		return do()
	}
	if err := hook(ctx, call, participanttest.Before, id); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return hook(ctx, call, participanttest.After, id)
}

// scripted is a process's way to the source of its seat: a record each so often, some of one split at a time.
type scripted struct {
	w *windows
	l *life

	next  int64
	at    []int64 // by split
	batch stream.Batch
}

func (s *scripted) split(i int) stream.Split {
	return stream.Split{Resource: "in", ID: fmt.Sprintf("%s.%d", s.w.seat.name, i)}
}

// Describe implements processor.Source.
func (s *scripted) Describe(context.Context) (participant.Description, error) {
	return participant.Description{Kind: "script", Identity: s.w.seat.id(), Text: "script of " + s.w.seat.id()}, nil
}

// Splits implements processor.Source.
func (s *scripted) Splits() []stream.Split {
	var all []stream.Split
	for i := range s.w.plan.splits {
		all = append(all, s.split(i))
	}
	return all
}

// Open implements processor.Source. Where it goes on must be a place between two records.
func (s *scripted) Open(_ context.Context, from []stream.Position) error {
	s.next, s.at = 0, make([]int64, s.w.plan.splits)
	for _, p := range from {
		i := slices.Index(s.Splits(), p.Split)
		if i < 0 {
			return fmt.Errorf("%w: nobody knows split %s", participant.ErrMisconfigured, p.Split.ID)
		}
		s.next, s.at[i] = s.next+p.Offset, p.Offset
	}
	if want := s.w.splitsAt(s.next); !slices.Equal(s.at, want) {
		s.w.seat.w.complain("%s is to go on at %d of its splits, and was never there: at record %d they are at %d", s.w.seat.id(), s.at, s.next, want)
		return fmt.Errorf("%w: no such place", participant.ErrMisconfigured)
	}
	return nil
}

// Poll implements processor.Source.
func (s *scripted) Poll(ctx context.Context) (*stream.Batch, error) {
	if s.w.seat.w.draw(30) == 0 {
		pause(ctx, s.w.seat.every)
		return nil, ctx.Err() // nothing came
	}
	run := s.w.run(s.next)
	if pause(ctx, time.Duration(len(run))*s.w.seat.every); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	i := run[0].Split
	s.batch = stream.Batch{Split: s.split(i), Records: s.batch.Records[:0], HighWater: -1}
	for _, r := range run {
		s.batch.Records = append(s.batch.Records, stream.Record{
			Topic: "in", Partition: int32(i), Offset: s.at[i], Time: r.Time, Key: []byte(r.Key), Value: strconv.AppendInt(nil, r.Value, 10),
		})
		s.at[i]++
		s.next++
	}
	s.batch.Next = stream.Position{Split: s.batch.Split, Offset: s.at[i], LeaderEpoch: -1, Opaque: []byte(planted)}
	return &s.batch, nil
}

// Close implements processor.Source.
func (s *scripted) Close() error { return nil }

// windowTally counts what became of windows.
type windowTally struct{ results, updates, late, restores, stored int }

// visible counts what became visible, once for all resources that show the same.
func (y *windowTally) visible(e check.Event) {
	for _, r := range e.Records {
		switch {
		case strings.HasPrefix(r, "late:"):
			y.late++
		case e.Branch.Resource == "b" || !strings.Contains(r, "@"):
		case strings.HasSuffix(r, "+"):
			y.updates++
		default:
			y.results++
		}
	}
}

// started counts a generation that began with the state of windows.
func (y *windowTally) started(e check.Event) {
	if len(e.Records) > 0 {
		y.restores++
	}
	if slices.ContainsFunc(e.Records, func(id string) bool { return strings.HasSuffix(id, stored) }) {
		y.stored++
	}
}

func (y windowTally) String() string {
	return fmt.Sprintf("%d results of windows and %d updates of them, %d late records, state restored %d times, %d times from a store",
		y.results, y.updates, y.late, y.restores, y.stored)
}
