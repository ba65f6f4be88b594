package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/ground"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/house"
	"github.com/unisink/unisink/tests/jepsen-style/check"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

const (
	clock         = "15:04:05.000"
	progressEvery = 5 * time.Second
)

// Config of a run.
type Config struct {
	Minutes float64       // of faults
	Seed    uint64        // of the plan; 0: drawn
	Pause   time.Duration // longest one of a teller between two transactions
	Calm    time.Duration // between two faults of one lane, about
	Dir     string        // to work in and to keep; empty: a temporary one, kept if the run fails
	Out     string        // directory of the report
	Binary  string        // unisink; empty: built
	Faults  string        // kinds, comma-separated; empty: all
	Few     bool          // a run with too few faults passes too
	Log     io.Writer     // for progress
}

// run is one run.
type run struct {
	c   Config
	dir string
	cast
	nemesis *nemesis
	began   time.Time // of the storm
}

// cast is who takes part, and who looks on.
type cast struct {
	ground  *ground.Ground
	crew    *child.Crew
	kafka   *services.KafkaCluster
	client  *kgo.Client
	group   *group
	book    *house.Book
	house   *house.House
	scribe  *scribe
	workers *workers
}

// Run runs everything to its verdict. Whatever happens, no process, mount or network outlives it.
func Run(ctx context.Context, c Config) (report *Report, err error) {
	if c.Seed == 0 {
		c.Seed = rand.Uint64N(1_000_000) + 1
	}
	r := &run{c: c, dir: c.Dir}
	report = &Report{Seed: c.Seed, Minutes: c.Minutes, Kafka: services.KafkaCurrent, Binary: c.Binary}
	temporary := r.dir == ""
	if temporary {
		r.dir, err = os.MkdirTemp("", "unisink-blackbox-")
	} else {
		err = os.MkdirAll(r.dir, 0o700)
	}
	if err != nil {
		return report, fmt.Errorf("make a directory to work in: %w", err)
	}
	if r.dir, err = filepath.Abs(r.dir); err != nil {
		return report, err
	}
	report.Dir = r.dir
	defer func() {
		if temporary && err == nil && report.Verdict == passed {
			report.Dir = ""
			err = os.RemoveAll(r.dir)
		}
	}()
	r.say("seed %d, %s of faults, working in %s", c.Seed, time.Duration(c.Minutes*float64(time.Minute)), r.dir)
	r.crew = child.New()
	if r.ground, err = ground.Take(ctx); err != nil {
		return report, errors.Join(err, r.crew.End())
	}
	// Processes first: they have files open on the disks.
	defer func() { err = errors.Join(err, r.crew.End(), r.ground.Close()) }() //nolint:contextcheck // what was made goes also when ctx is over
	if err := r.setUp(ctx, report); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, r.group.ask.Close(), r.kafka.Close()) }()
	defer r.client.Close()
	if err := r.perform(ctx, report); err != nil {
		return report, fmt.Errorf("%w; seed %d, logs in %s", err, c.Seed, r.dir)
	}
	return report, r.judge(report)
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.c.Log, "jepsen: "+format+"\n", args...)
}

func (r *run) socket() string { return filepath.Join(r.ground.Dir(), "house.sock") }

func (r *run) history() string { return filepath.Join(r.dir, "history.jsonl") }

// setUp builds the binary and starts everything but the workers.
func (r *run) setUp(ctx context.Context, report *Report) (err error) {
	able := r.ground.Able()
	if !able.Networks {
		report.NotRun = append(report.NotRun, "cuts: no network namespaces here: "+able.NoNetworks)
	}
	if !able.Disks {
		report.NotRun = append(report.NotRun, "power losses and full disks: no loop devices here: "+able.NoDisks)
	}
	for _, n := range report.NotRun {
		r.say("not run: %s", n)
	}
	if r.c.Binary, err = rig.Build(ctx, r.c.Binary, r.dir, "unisink"); err != nil {
		return err
	}
	r.say("starting Apache Kafka %s (fetched first where it never was) and %d nodes", services.KafkaCurrent, nodeCount)
	if r.book, err = house.NewBook(r.history()); err != nil {
		return err
	}
	if r.house, err = house.Open(r.book, r.socket()); err != nil {
		return err
	}
	if r.kafka, err = services.Kafka(ctx, services.KafkaConfig{Dir: filepath.Join(r.dir, "kafka")}); err != nil {
		return err
	}
	if err := r.setUpGroup(ctx); err != nil {
		return errors.Join(err, r.kafka.Close())
	}
	return nil
}

func (r *run) setUpGroup(ctx context.Context) (err error) {
	if r.client, err = kgo.NewClient(kgo.SeedBrokers(r.kafka.Addrs()...)); err != nil {
		return fmt.Errorf("make a client of the broker: %w", err)
	}
	if err := rig.MakeTopics(ctx, r.client, topicIn, topicOut); err != nil {
		return err
	}
	if r.group, err = newGroup(ctx, r.ground, r.crew, r.c.Binary, r.dir); err != nil {
		return err
	}
	r.scribe = newScribe(r.book, r.group.nodes)
	r.nemesis = &nemesis{r: r}
	r.workers, err = newWorkers(ctx, r)
	return err
}

// perform runs everything until nothing is left to be seen.
func (r *run) perform(ctx context.Context, report *Report) error {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() { cancel(nil) }
	defer stop()
	var all errgroup.Group
	guarded := func(f func() error) {
		all.Go(func() error {
			err := f()
			if err != nil {
				cancel(err) // the others stop at once
			}
			return err
		})
	}
	for _, n := range r.group.nodes {
		guarded(func() error { return n.run(ctx) })
	}
	guarded(func() error {
		defer stop() // the nodes end with it
		if err := r.group.bootstrap(ctx); err != nil {
			return err
		}
		return r.withWorkers(ctx, report)
	})
	looking, stopLooking := context.WithCancel(ctx)
	defer stopLooking()
	guarded(func() error { return r.scribe.run(looking) })
	guarded(func() error { return r.resumeHalted(looking) })
	guarded(func() error { r.progress(looking); return nil })
	if err := all.Wait(); err != nil {
		return errors.Join(err, r.house.Close(), r.book.Close())
	}
	return errors.Join(r.house.Close(), r.book.Close())
}

func (r *run) withWorkers(ctx context.Context, report *Report) error {
	var all errgroup.Group
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	guarded := func(f func() error) {
		all.Go(func() error {
			err := f()
			if err != nil {
				cancel(err)
			}
			return err
		})
	}
	for _, k := range r.workers.all() {
		guarded(func() error { return k.run(working) })
	}
	writing, stopWriting := context.WithCancel(working)
	defer stopWriting()
	guarded(func() error { return r.workers.write(writing, r.client, r.c.Seed) })
	guarded(func() error {
		if err := r.storm(working); err != nil {
			return err
		}
		return r.end(working, stopWriting, report)
	})
	return all.Wait()
}

// storm runs the nemesis for as long as was asked for.
func (r *run) storm(ctx context.Context) error {
	if err := r.decides(ctx, settleIn); err != nil {
		return fmt.Errorf("before anything was broken: %w", err)
	}
	r.began = time.Now()
	limit, cancel := context.WithTimeout(ctx, time.Duration(r.c.Minutes*float64(time.Minute)))
	defer cancel()
	able, calm := r.ground.Able(), r.c.Calm
	var lanes errgroup.Group
	lanes.Go(func() error {
		return r.nemesis.lane(limit, 0, newPlan(r.c.Seed, 0, only(nodeFaults(), r.c.Faults), able, calm),
			func(ctx context.Context) error { return r.group.healthy(ctx, recoverIn) })
	})
	lanes.Go(func() error {
		return r.nemesis.lane(limit, 1, newPlan(r.c.Seed, 1, only(workerFaults(), r.c.Faults), able, calm*3/2), func(context.Context) error { return nil })
	})
	if err := lanes.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// decides waits until both pipelines and a transfer are decided after now.
func (r *run) decides(ctx context.Context, limit time.Duration) error {
	before := r.scribe.decisions()
	return rig.Await(ctx, limit, "both pipelines and the tellers to decide", func() error {
		now := r.scribe.decisions()
		for _, s := range scopes() {
			if now[s] == before[s] {
				return errors.New(s + " does not")
			}
		}
		return nil
	})
}

// transfers stands for what is run by hand where scopes are counted.
const transfers = "transfers"

func scopes() []string { return []string{ordersPipeline + "/0", linesPipeline + "/0", transfers} }

// progress prints a line every few seconds.
func (r *run) progress(ctx context.Context) {
	for rig.Sleep(ctx, progressEvery) == nil {
		if r.began.IsZero() {
			continue
		}
		c, t := r.book.Count(), r.nemesis.tally()
		epochs, hand, leaders := r.scribe.totals()
		r.nemesis.mu.Lock()
		doing := strings.Join(r.nemesis.doing[:], " · ")
		r.nemesis.mu.Unlock()
		r.say("%4.0fs  kills %d (%d in open rounds)  cuts %d  power losses %d  leaders %d  calls %d (%d unknown)  transfers %d  epochs %d  %s",
			time.Since(r.began).Seconds(), t.kills, t.inRound, t.cuts, t.powers, leaders, c.Calls, c.Unknown, hand, epochs, doing)
	}
}

func (r *run) bounds() check.Bounds {
	return check.Bounds{
		Resources:    map[string]map[string][]string{ordersPipeline + "/0": nil, linesPipeline + "/0": nil},
		DecideWithin: decideIn, Grace: 3 * time.Second, Share: 0.8,
	}
}
