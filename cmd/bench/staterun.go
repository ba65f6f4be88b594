package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/cmd/bench/orders"
	"github.com/unisink/unisink/cmd/bench/worker"
	"github.com/unisink/unisink/internal/child"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// stateRun is one pipeline with its state, over any number of processes.
type stateRun struct {
	lab     *lab
	c       StateConfig
	name    string // of the pipeline, its output topic, its log and its directory of state
	from    string
	orders  orders.Orders
	bounded bool
	rate    int

	time      *timeline
	proc      *child.Process
	instances int
	began     time.Time // the first process

	peak     int64     // most resident bytes of a process
	restarts []float64 // seconds, process started to first new decision
	points   []point   // where each process but the first had to go on
}

// point is a restore point: all that a restarted process may read again lies behind it.
type point struct {
	epoch     epochID
	positions map[string]int64
}

func (r *stateRun) file(kind string) string { return filepath.Join(r.lab.dir, r.name+kind) }

func (r *stateRun) trace(instance int) string { return r.file(fmt.Sprintf("-%d.trace", instance)) }

func (r *stateRun) task() task { return task{Name: r.name} }

// begin makes the output topic, and starts to watch and the first process.
func (r *stateRun) begin(ctx context.Context) error {
	if err := r.lab.topic(ctx, r.name, r.c.Settings.Partitions); err != nil {
		return err
	}
	r.time = r.lab.watchEpochs(ctx, r.name)
	r.began = time.Now()
	return r.start()
}

// start starts a process.
func (r *stateRun) start() (err error) {
	r.instances++
	args := []string{
		"bench", "held", "--name", r.name, "--from", r.from, "--to", r.name, "--epoch", r.c.Epoch.String(), "--window", r.orders.Window.String(),
		"--disorder", orders.Disorder.String(), "--rate", fmt.Sprint(r.rate), "--state", r.file(".state"), "--trace", r.trace(r.instances),
		"--report", r.lab.report(r.task()), "--brokers", strings.Join(r.lab.brokers, ","), "--log-level", "warn",
	}
	for _, a := range r.lab.coordinators() {
		args = append(args, "--coordinator", a)
	}
	if r.bounded {
		args = append(args, "--bounded")
	}
	if p := r.c.Settings.Profiles; p != "" {
		args = append(args, "--profile", filepath.Join(p, fmt.Sprintf("%s-%d", r.name, r.instances)))
	}
	r.proc, err = r.lab.crew.Start(child.Spec{Name: "the pipeline " + r.name, Path: r.lab.c.Exe, Args: args, Log: r.file(".log")})
	return err
}

// decided is the newest decided epoch and how many records lie before its positions; none before the first.
func (r *stateRun) decided(ctx context.Context) (p point, records int64, err error) {
	list, err := r.lab.client.Pipelines().ListEpochs(ctx, &unisinkv1.ListEpochsRequest{Scope: r.scope(), Limit: 1})
	if err != nil || len(list.GetEpochs()) == 0 {
		return point{}, 0, nil //nolint:nilerr // the pipeline is not declared yet; it is asked again
	}
	p, records = pointOf(list.GetEpochs()[0])
	return p, records, nil
}

func pointOf(e *unisinkv1.EpochRecord) (p point, records int64) {
	p = point{epoch: epochID{e.GetEpoch().GetGeneration(), e.GetEpoch().GetN()}, positions: map[string]int64{}}
	for _, at := range e.GetPositions() {
		p.positions[at.GetSplit()] = at.GetOffset()
		records += at.GetOffset()
	}
	return p, records
}

func (r *stateRun) scope() *unisinkv1.Scope { return &unisinkv1.Scope{Pipeline: r.name} }

// stateWait bounds how long nothing at all may be decided.
const stateWait = 2 * time.Minute

// awaitDecided returns when so many records lie before what is decided.
func (r *stateRun) awaitDecided(ctx context.Context, want int) error {
	last, moved := int64(-1), time.Now()
	for {
		_, n, err := r.decided(ctx)
		switch {
		case err != nil:
			return err
		case n >= int64(want):
			return nil
		case !r.proc.Alive():
			return fmt.Errorf("the pipeline %s ended when %d of %d records were decided: %w; lower --rate if it was too fast\n%s", r.name, n, want, errOr(r.proc.Err()), r.lab.tail(r.name))
		case n != last:
			last, moved = n, time.Now()
		case time.Since(moved) > stateWait:
			return fmt.Errorf("the pipeline %s decided nothing for %s, at %d of %d records: %s\n%s", r.name, stateWait, n, want, r.lab.halted(ctx, r.task()), r.lab.tail(r.name))
		}
		if err := group.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// kill kills the process with -9, starts another at once, waits for its first decision, and notes where it had to go on.
func (r *stateRun) kill(ctx context.Context) error {
	g, err := r.lab.client.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: r.name})
	if err != nil || len(g.GetScopes()) != 1 {
		return fmt.Errorf("ask for the generation of %s: %w", r.name, errOr(err))
	}
	old := g.GetScopes()[0].GetGeneration()
	r.peak = max(r.peak, worker.PeakRSS(r.proc.PID()))
	if err := r.proc.Kill(); err != nil {
		return err
	}
	began := time.Now()
	if err := r.start(); err != nil {
		return err
	}
	for {
		if at, ok := r.time.firstAfter(old); ok {
			r.restarts = append(r.restarts, time.UnixMicro(at).Sub(began).Seconds())
			break
		}
		if !r.proc.Alive() {
			return fmt.Errorf("the pipeline %s ended after a kill: %w\n%s", r.name, errOr(r.proc.Err()), r.lab.tail(r.name))
		}
		if time.Since(began) > stateWait {
			return fmt.Errorf("the pipeline %s decided nothing for %s after a kill: %s\n%s", r.name, stateWait, r.lab.halted(ctx, r.task()), r.lab.tail(r.name))
		}
		if err := group.Sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	p, err := r.last(ctx, old)
	if err != nil {
		return err
	}
	r.points = append(r.points, p)
	r.lab.say("%s: killed at %d.%d, the next decision %.2f s after its restart", r.name, p.epoch.generation, p.epoch.n, last(r.restarts))
	return nil
}

// last is the last decided epoch up to a generation that is over: where the next one went on.
func (r *stateRun) last(ctx context.Context, generation uint64) (point, error) {
	list, err := r.lab.client.Pipelines().ListEpochs(ctx, &unisinkv1.ListEpochsRequest{Scope: r.scope(), Limit: 1000})
	if err != nil {
		return point{}, fmt.Errorf("ask for the epochs of %s: %w", r.name, err)
	}
	for _, e := range list.GetEpochs() {
		if e.GetEpoch().GetGeneration() <= generation {
			p, _ := pointOf(e)
			return p, nil
		}
	}
	return point{}, fmt.Errorf("the ledger has no epoch of %s any more up to generation %d", r.name, generation)
}

// finish waits for the end of the process, and checks that every process but the first has read from its restore point on:
// nothing before it, and nothing left out.
func (r *stateRun) finish(ctx context.Context) (worker.Report, []usage, error) {
	rep, err := r.lab.ended(ctx, r.task(), r.proc)
	if err = errors.Join(err, r.time.close()); err != nil {
		return rep, nil, err
	}
	r.peak = max(r.peak, rep.PeakRSS)
	uses := make([]usage, r.instances)
	for i := range uses {
		events, err := worker.ReadTrace(r.trace(i + 1))
		if err != nil {
			return rep, nil, err
		}
		var want *point
		if i > 0 {
			want = &r.points[i-1]
		}
		if uses[i], err = readTrace(events, want); err != nil {
			return rep, nil, fmt.Errorf("process %d of the pipeline %s: %w", i+1, r.name, err)
		}
	}
	return rep, uses, nil
}

// usage is what one process did with its state.
type usage struct {
	ordered map[epochID]int64 // when the barrier was, Unix microseconds
	put     map[epochID]int64 // bytes in the store
	entries map[epochID]int64 // that were held
	bytes   int64             // of all parts
	encoded int64             // entries in them
	got     int64             // bytes that were read back
}

// readTrace sums a trace up. Want is where the process had to go on; nil: it was the first.
func readTrace(events []worker.Event, want *point) (usage, error) {
	u := usage{ordered: map[epochID]int64{}, put: map[epochID]int64{}, entries: map[epochID]int64{}}
	opened := 0
	at := map[string]int64{} // where each split was opened
	for _, e := range events {
		switch e.What {
		case worker.Opened:
			opened++
			clear(at)
			for _, p := range e.Places {
				at[p.Split] = p.Offset
			}
			if want != nil && opened == 1 {
				if err := samePlaces(at, want.positions); err != nil {
					return u, err
				}
			}
		case worker.First:
			if p := e.Places[0]; p.Offset != at[p.Split] {
				return u, fmt.Errorf("%s was opened at offset %d, and the first record read was %d", p.Split, at[p.Split], p.Offset)
			}
		case worker.Ordered:
			u.ordered[epochID{e.Generation, e.N}] = e.AtUS
		case worker.Put:
			if strings.HasSuffix(e.Part, ".~group") {
				continue // whose the store is, put once
			}
			id, err := epochOf(e.Part)
			if err != nil {
				return u, err
			}
			u.put[id] += int64(e.Bytes)
			u.entries[id] = e.Entries
			u.bytes, u.encoded = u.bytes+int64(e.Bytes), e.Encoded
		case worker.Got:
			u.got += int64(e.Bytes)
		}
	}
	if opened == 0 {
		return u, errors.New("it has opened no source")
	}
	return u, nil
}

func samePlaces(opened, decided map[string]int64) error {
	for split, offset := range decided {
		if got, ok := opened[split]; !ok || got != offset {
			return fmt.Errorf("%s was opened at %d (given: %t), and the restore point says %d", split, got, ok, offset)
		}
	}
	if len(opened) != len(decided) {
		return fmt.Errorf("%d splits were opened at a position, and the restore point has %d", len(opened), len(decided))
	}
	return nil
}

// epochOf is the epoch whose snapshot a part was written for: the last numbers of its id are generation, n and index.
func epochOf(part string) (id epochID, err error) {
	f := strings.Split(part, ".")
	if len(f) < 3 {
		return id, fmt.Errorf("%q is no id of a state part", part)
	}
	f = f[len(f)-3:]
	if _, err := fmt.Sscan(f[0], &id.generation); err != nil {
		return id, fmt.Errorf("%q is no id of a state part: %w", part, err)
	}
	if _, err := fmt.Sscan(f[1], &id.n); err != nil {
		return id, fmt.Errorf("%q is no id of a state part: %w", part, err)
	}
	return id, nil
}
