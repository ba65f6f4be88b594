package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

const (
	progressEvery = 5 * time.Second
	drainIn       = 90 * time.Second
	longPause     = time.Minute
	maxBrokers    = 10
)

// trial is one run of torture.
type trial struct {
	cast
	c   Config
	dir string
	rng *rand.Rand // of the nemesis alone

	points
	quota   quotas
	done    tally
	records atomic.Int64

	mu      sync.Mutex // guards the two below; held for memory only
	strikes []strike
	doing   string
}

// tally is what the nemesis has done so far.
type tally struct {
	brokers       int // kills
	resolverKills int
	zombies       int // stops
	acts          int
}

// cast is who takes part, and who looks on.
type cast struct {
	kafka  *services.KafkaCluster
	group  *group
	worker *worker
	client *kgo.Client
	line   *timeline
	watch  *watcher

	// nil where only Kafka and files are written
	database *database
	resolver *resolverIs
}

// Run runs torture to its verdict. Whatever happens, no process outlives it.
func Run(ctx context.Context, c Config) (report *Report, err error) {
	if c.Seed == 0 {
		c.Seed = rand.Uint64N(1_000_000)
	}
	if c.Pause == 0 {
		c.Pause = min(longPause, time.Duration(c.Minutes*12*float64(time.Second)))
	}
	r := &trial{c: c, dir: c.Dir, rng: rand.New(rand.NewPCG(c.Seed, 0)), quota: c.quotas()}
	report = &Report{Minutes: c.Minutes, Seed: c.Seed, Kafka: services.KafkaCurrent, Sinks: c.Sinks}
	if c.Sinks == allSinks {
		report.Mode = c.Mode
	}
	temporary := r.dir == ""
	if temporary {
		r.dir, err = os.MkdirTemp("", "unisink-torture-")
	} else {
		err = os.MkdirAll(r.dir, 0o700)
	}
	if err != nil {
		return report, fmt.Errorf("make a directory to work in: %w", err)
	}
	if r.dir, err = filepath.Abs(r.dir); err != nil {
		return report, err
	}
	defer func() {
		if temporary && err == nil && report.Verdict == clean {
			err = os.RemoveAll(r.dir)
			return
		}
		report.Dir = r.dir
	}()
	r.say("seed %d, %s in %s", c.Seed, time.Duration(c.Minutes*float64(time.Minute)), r.dir)
	crew := child.New()
	defer func() { err = errors.Join(err, crew.End()) }()
	if err := r.setUp(ctx, crew); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, r.group.ask.Close(), r.kafka.Close()) }()
	defer r.client.Close()
	if r.database != nil {
		defer func() { err = errors.Join(err, r.database.Close()) }()
	}
	if err := r.perform(ctx, report); err != nil {
		return report, err
	}
	return report, r.finish(ctx, crew, report)
}

func (r *trial) say(format string, args ...any) {
	fmt.Fprintf(r.c.Out, "torture: "+format+"\n", args...)
}

// setUp builds the binaries and starts the broker and the group.
func (r *trial) setUp(ctx context.Context, crew *child.Crew) (err error) {
	if r.c.Binary, err = rig.Build(ctx, r.c.Binary, r.dir, "unisink"); err != nil {
		return err
	}
	if r.c.FaultsBin, err = rig.Build(ctx, r.c.FaultsBin, r.dir, "unisink-faults", "-tags", "faults"); err != nil {
		return err
	}
	if r.points, err = knownPoints(ctx, r.c); err != nil {
		return err
	}
	r.say("starting Apache Kafka %s (fetched first where it never was) and %d nodes", services.KafkaCurrent, nodeCount)
	if r.kafka, err = services.Kafka(ctx, services.KafkaConfig{Dir: filepath.Join(r.dir, "kafka")}); err != nil {
		return err
	}
	if r.client, err = kgo.NewClient(kgo.SeedBrokers(r.kafka.Addrs()...)); err != nil {
		return errors.Join(fmt.Errorf("make a client of the broker: %w", err), r.kafka.Close())
	}
	if err = rig.MakeTopics(ctx, r.client, topicIn, topicOut); err == nil {
		r.group, err = startGroup(ctx, crew, r.c.Binary, r.dir)
	}
	if err != nil {
		r.client.Close()
		return errors.Join(err, r.kafka.Close())
	}
	if r.c.Sinks == allSinks {
		if err := r.setUpAll(ctx, crew); err != nil {
			r.client.Close()
			return errors.Join(err, r.group.ask.Close(), r.kafka.Close())
		}
	}
	r.worker = newWorker(crew, r.c.FaultsBin, filepath.Join(r.dir, "pipeline.log"), r.pipelineArgs(), r.group.addresses())
	r.worker.chance = r.cornered
	var logs []string
	for _, n := range r.group.nodes {
		logs = append(logs, n.log)
	}
	r.line = newTimeline(logs...)
	r.watch = newWatcher(r.group.nodes)
	return nil
}

// perform runs everything to the verdict.
func (r *trial) perform(ctx context.Context, report *Report) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	write, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	aside, stopAside := context.WithCancel(ctx)
	defer stopAside()

	var all, observers errgroup.Group
	guarded := func(f func() error) func() error {
		return func() error {
			err := f()
			if err != nil {
				cancel(err) // the others stop at once
			}
			return err
		}
	}
	observers.Go(func() error { r.watch.run(aside); return nil })
	observers.Go(func() error { r.progress(aside); return nil })
	all.Go(guarded(func() error { return rig.Generate(write, r.client, topicIn, r.c.Rate, r.c.Seed, &r.records) }))
	all.Go(guarded(func() error { return r.worker.supervise(ctx) }))
	all.Go(guarded(func() error {
		if err := r.nemesis(ctx); err != nil {
			return err
		}
		stopWriting()
		return r.drain(ctx)
	}))
	err := all.Wait()
	stopAside()
	_ = observers.Wait() // they return no error
	if err != nil {
		return r.explain(err)
	}
	return r.check(ctx, report)
}

// nemesis does act after act, in an order drawn from the seed, until the time is up and everything
// was done once. It gives up on the rest when that takes twice as long.
func (r *trial) nemesis(ctx context.Context) error {
	if err := r.awaitDecision(ctx, "the start"); err != nil {
		return err
	}
	length := time.Duration(r.c.Minutes * float64(time.Minute))
	began := time.Now()
	for round := 0; ; round++ {
		deck := r.deck(round)
		r.rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		if len(deck) == 0 {
			return nil
		}
		for _, a := range deck {
			past := time.Since(began)
			if (round > 0 && past > length && r.killedEnough()) || past > 2*length+2*time.Minute {
				return nil
			}
			r.mu.Lock()
			r.doing = a.String()
			r.mu.Unlock()
			if err := r.do(ctx, a); err != nil {
				return err
			}
		}
	}
}

// killedEnough reports that as many kills count as the run must have, at the moments that matter most too.
func (r *trial) killedEnough() bool {
	r.mu.Lock()
	strikes := slices.Clone(r.strikes)
	r.mu.Unlock()
	var so Report
	so.judge(r.line, strikes)
	return so.counted() >= r.quota.kills && so.Moments[roundOpen] >= r.quota.moments && so.Moments[unfinished] >= r.quota.moments
}

// deck is what is done in one round: in the first everything that is wanted, in later ones
// everything again but the long stops.
func (r *trial) deck(round int) []act {
	var deck []act
	add := func(n int, what string) {
		for range n {
			deck = append(deck, act{what: what})
		}
	}
	for _, p := range r.led {
		if round > 0 && r.c.Sinks == allSinks {
			break // once each; its kills are wanted at all moments
		}
		deck = append(deck, act{what: killAtPoint, point: p})
	}
	q := r.quota
	if round > 0 {
		q = q.again(maxBrokers - r.done.brokers)
	}
	add(q.pauses, stopPipeline)
	add(q.brokers, killBroker)
	add(q.leaders, killLeader)
	add(q.leaderStops, stopLeader)
	add(q.strikes, killPipeline)
	add(q.databases, killDatabase)
	add(q.resolvers, killResolver)
	if r.c.Acts != "" {
		wanted := strings.Split(r.c.Acts, ",")
		deck = slices.DeleteFunc(deck, func(a act) bool { return !slices.Contains(wanted, a.what) })
	}
	return deck
}

// drain lets everything that was written come out, and the pipeline end.
func (r *trial) drain(ctx context.Context) error {
	r.mu.Lock()
	r.doing = "draining"
	r.mu.Unlock()
	patience := rig.Patience{Limit: drainIn, Answer: answerIn}
	if err := rig.AllRead(ctx, r.group.ask, pipelineName, r.records.Load(), patience); err != nil {
		return err
	}
	return rig.Drain(ctx, r.group.ask, pipelineName, patience)
}

// check fills the report: the verdict of verify, what is left behind, what was done.
func (r *trial) check(ctx context.Context, report *Report) error {
	r.say("checking %d orders", r.records.Load())
	var err error
	var problem string
	if report.Verify, problem, err = rig.Verify(ctx, r.c.Binary, r.outputs()...); err != nil {
		return err
	}
	if problem != "" {
		report.Problems = append(report.Problems, problem)
	}
	var open, files []string
	if report.IDs, open, err = rig.LeftOpen(ctx, r.client, namespace); err != nil {
		return err
	}
	if files, err = rig.Staged(filepath.Join(r.dir, outputDir)); err != nil {
		return err
	}
	report.Left = append(open, files...)
	if r.c.Sinks == allSinks {
		if err := r.checkAll(ctx, report); err != nil {
			return err
		}
	}
	if report.Points, report.Torn, err = crashes(r.worker.log); err != nil {
		return err
	}
	if err := r.line.update(); err != nil {
		return err
	}
	report.Records = r.records.Load()
	report.Runs, report.Sudden = r.worker.count()
	report.Problems = append(report.Problems, r.worker.wrongEnds()...)
	r.mu.Lock()
	strikes := r.strikes
	r.mu.Unlock()
	report.judge(r.line, strikes)
	report.Decisions = timesOf(decisions(strikes))
	report.Restarts, err = measureRestarts(r.worker.log, r.worker.starts(), r.line)
	return err
}

// outputs are where verify looks.
func (r *trial) outputs() []string {
	args := []string{pipelineName, "--brokers", r.kafka.Addrs()[0], "--from", topicIn, "--to", topicOut, "--dir", filepath.Join(r.dir, outputDir)}
	if r.c.Sinks == allSinks {
		args = []string{filepath.Join(r.dir, specFile)}
	}
	for _, c := range r.group.addresses() {
		args = append(args, "--coordinator", c)
	}
	return args
}

// pipelineArgs run the pipeline.
func (r *trial) pipelineArgs() []string {
	if r.c.Sinks == allSinks {
		return []string{"run", filepath.Join(r.dir, specFile)}
	}
	return []string{
		"run", pipelineName, "--brokers", r.kafka.Addrs()[0], "--from", topicIn, "--to", topicOut,
		"--dir", filepath.Join(r.dir, outputDir), "--state", filepath.Join(r.dir, stateDir), "--epoch", r.c.Epoch.String(),
	}
}

// finish goes into the corners, and concludes.
func (r *trial) finish(ctx context.Context, crew *child.Crew, report *Report) error {
	want := r.led
	report.Elsewhere = r.others
	if r.c.Sinks == kafkaAndFiles && r.c.Acts == "" && r.c.Only == "" || slices.Contains(strings.Split(r.c.Acts, ","), intoCorners) {
		if err := r.kafka.Close(); err != nil {
			return err
		}
		if err := r.corner(ctx, crew, report); err != nil {
			return r.explain(err)
		}
		want = append(slices.Clone(want), r.cornered...)
	} else {
		for _, p := range missing(r.cornered, report.Points) {
			if report.Elsewhere[p] == "" {
				report.Elsewhere[p] = r.c.cornersOut()
			}
		}
	}
	panics, err := rig.Panics(r.dir)
	if err != nil {
		return err
	}
	report.Problems = append(report.Problems, panics...)
	report.Missing = missing(want, report.Points)
	report.Short = report.tooFew(r.quota)
	report.conclude()
	return nil
}

// decisions are the times from the kill of a pipeline to the next decision.
func decisions(strikes []strike) (all []time.Duration) {
	for _, s := range strikes {
		if s.What == killPipeline && s.NextDecisionMS > 0 {
			all = append(all, time.Duration(s.NextDecisionMS)*time.Millisecond)
		}
	}
	return all
}

// progress prints a line every few seconds.
func (r *trial) progress(ctx context.Context) {
	began := time.Now()
	for rig.Sleep(ctx, progressEvery) == nil {
		if r.line.update() != nil {
			continue // said by whoever needs it
		}
		epochs, generations, _ := r.line.totals()
		runs, _ := r.worker.count()
		r.mu.Lock()
		kills, stops, doing := 0, 0, r.doing
		for _, s := range r.strikes {
			if s.kill() {
				kills++
			} else {
				stops++
			}
		}
		r.mu.Unlock()
		hit, _, err := crashes(r.worker.log)
		if err != nil {
			continue // not there yet
		}
		r.say("%4.0fs  %d kills, %d stops  points %d/%d  epochs %d  generations %d  runs %d  orders %d  %s", time.Since(began).Seconds(), kills, stops,
			len(r.led)-len(missing(r.led, hit)), len(r.led), epochs, generations, runs, r.records.Load(), doing)
	}
}

// explain adds where to look.
func (r *trial) explain(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w; seed %d, logs in %s", err, r.c.Seed, r.dir)
}
