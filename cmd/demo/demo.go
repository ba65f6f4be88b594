package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/verify"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Config of a demo.
type Config struct {
	// Exe is this binary; it is started again for each process.
	Exe string
	// Dir for everything; empty: a temporary one, which is removed at the end.
	Dir string
	// Rate of orders per second; default 2000.
	Rate int
	// Epoch interval; default 200 ms.
	Epoch time.Duration
	// Kafka is EmbeddedKafka (the default) or RealKafka.
	Kafka string
	// Out gets the screen; Screen redraws it in place, otherwise lines are added.
	Out    io.Writer
	Screen bool
	// Width of the terminal, for Screen; nil: lines are not cut.
	Width func() int
	// Workload is the pipeline, its input and its check.
	Workload Workload
}

// What Config.Kafka says.
const (
	EmbeddedKafka = "embedded" // the broker that is part of this binary
	RealKafka     = "real"     // Apache Kafka, which needs Java, and Maven the first time
)

// Workload is what the demo carries. cmd/orders has the one that is shown.
type Workload interface {
	// Name of the pipeline.
	Name() string
	// Text is one line for people.
	Text() string
	// Rhythm is about how often an epoch has something to commit.
	Rhythm() time.Duration
	// Prepare makes topics and directories.
	Prepare(ctx context.Context, broker, dir string) error
	// Args start the pipeline with `unisink run`.
	Args(broker, dir string, epoch time.Duration) []string
	// Generate writes about rate records per second until ctx ends, and counts what was acknowledged.
	Generate(ctx context.Context, broker string, rate int, count *atomic.Int64) error
	// Verify recomputes from the input what both outputs must hold, up to the last proven epoch.
	Verify(ctx context.Context, broker, dir string, ledger unisinkv1.PipelinesClient, drained bool) (verify.Report, error)
}

// Report is how a demo ended.
type Report struct {
	Orders  int64         `json:"orders"`
	Epochs  uint64        `json:"epochs"`
	Strikes []*strike     `json:"kills"`
	Verify  verify.Report `json:"verify"`
}

// ErrBroken is returned when the verdict is not clean.
var ErrBroken = errors.New("the outputs are not what the input says")

// node is one coordinator node as the demo runs it.
type node struct {
	id           string
	client, raft string
	proc         *proc // written with demo.mu held, for the screen; else the acts' own
}

type demo struct {
	c      Config
	crew   *crew
	dir    string
	broker string
	kafka  *services.KafkaCluster // nil with the embedded broker
	// nil without a database
	postgres *services.PostgresServer
	resolver *proc // written with mu held
	nodes    []*node
	client   *participant.Client

	orders  atomic.Int64
	mu      sync.Mutex // guards what the screen shows; held for memory only
	phase   string
	strikes []*strike
	worker  *proc // the pipeline
	runs    int
}

// Run runs the demo to its verdict. Whatever happens, no child outlives it, and a temporary
// directory is removed.
func Run(ctx context.Context, c Config) (_ Report, err error) {
	if c.Rate <= 0 {
		c.Rate = 2000
	}
	if c.Epoch <= 0 {
		c.Epoch = 200 * time.Millisecond
	}
	d := &demo{c: c, dir: c.Dir, phase: "starting"}
	if d.dir == "" {
		if d.dir, err = os.MkdirTemp("", "unisink-demo-"); err != nil {
			return Report{}, fmt.Errorf("make a directory for the demo: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	} else if err = os.MkdirAll(d.dir, 0o700); err != nil {
		return Report{}, fmt.Errorf("make the directory %s: %w", d.dir, err)
	}
	d.crew = &crew{Crew: child.New(), exe: c.Exe, dir: d.dir}
	defer func() {
		err = errors.Join(err, d.crew.End())
		if d.kafka != nil {
			err = errors.Join(err, d.kafka.Close())
		}
		if d.postgres != nil {
			err = errors.Join(err, d.postgres.Close())
		}
	}()
	return d.play(ctx)
}

// play is the whole performance: the services, the pipeline and its orders, the kills, the verdict.
func (d *demo) play(ctx context.Context) (Report, error) {
	if err := d.startServices(ctx); err != nil {
		return Report{}, err
	}
	defer func() { _ = d.client.Close() }() // the last to use it
	screenCtx, stopScreen := context.WithCancel(ctx)
	screenDone := make(chan struct{})
	go func() { defer close(screenDone); d.show(screenCtx) }()
	// The report comes below the last screen.
	defer func() { stopScreen(); <-screenDone }()
	if err := d.perform(ctx); err != nil {
		return Report{}, d.explain(err)
	}
	d.setPhase("verifying: every window is computed again from the orders")
	report, err := d.verdict(ctx)
	d.setPhase("verified: " + string(report.Verify.Verdict))
	return report, err
}

// perform runs the pipeline and its orders while the kills are made, and returns when it has drained.
func (d *demo) perform(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx) // who fails stops the others
	work, stopWork := context.WithCancel(ctx)
	defer stopWork()
	g.Go(func() error { return d.c.Workload.Generate(work, d.broker, d.c.Rate, &d.orders) })
	g.Go(func() error { return d.supervise(ctx) }) // it ends once the pipeline has drained
	g.Go(func() error {
		defer stopWork()
		if err := d.acts(ctx); err != nil {
			return err
		}
		stopWork()
		return d.drain(ctx)
	})
	return g.Wait()
}

// acts are the kills, with quiet between them.
func (d *demo) acts(ctx context.Context) error {
	const quiet = 8 // decided epochs
	d.setPhase("running")
	if err := d.awaitEpochs(ctx, quiet); err != nil {
		return err
	}
	type act struct {
		what   string
		target func(*node) victim
	}
	pipeline := act{"pipeline", func(*node) victim { return d.currentWorker() }}
	acts := []act{pipeline, {"leader", func(l *node) victim { return l.proc }}, pipeline}
	if d.postgres != nil {
		database := act{"database", func(*node) victim { return server{d.postgres} }}
		resolver := act{"resolver", func(*node) victim { return d.resolver }}
		acts = append(acts, database, resolver, database)
	}
	for _, act := range acts {
		d.setPhase("waits to kill the " + act.what + " between a vote and its decision")
		if err := d.act(ctx, act.what, act.target); err != nil {
			return err
		}
		d.setPhase("going on")
		if err := d.revive(ctx); err != nil {
			return err
		}
		if err := d.awaitEpochs(ctx, quiet); err != nil {
			return err
		}
	}
	return nil
}

// act kills until the logs show that it was between a vote and its decision. A kill that came too
// late is a kill all the same, and is survived; it is not counted.
func (d *demo) act(ctx context.Context, what string, target func(*node) victim) error {
	for range 3 {
		s, err := d.strikeAt(ctx, what, target)
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.strikes = append(d.strikes, s)
		d.mu.Unlock()
		if err := d.evidence(ctx, s); err != nil {
			return err
		}
		if s.Counted {
			return nil
		}
		if err := d.revive(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("three kills of the %s all missed the moment between a vote and its decision", what)
}

// drain lets everything that was written come out, and the pipeline end.
func (d *demo) drain(ctx context.Context) error {
	d.setPhase("no more orders: the last ones come through")
	if err := d.awaitProven(ctx, d.orders.Load()); err != nil {
		return err
	}
	d.setPhase("draining: open windows fire, one last epoch")
	_, err := d.client.Pipelines().SetDesired(ctx, &unisinkv1.SetDesiredRequest{
		Meta: d.client.NewMeta(), Name: d.pipelineName(), Desired: unisinkv1.DesiredState_DESIRED_STATE_DRAINING,
	})
	if err != nil {
		return fmt.Errorf("drain the pipeline: %w", err)
	}
	return d.await(ctx, 20*time.Second, "the pipeline to drain", func(p *unisinkv1.GetPipelineResponse) bool {
		return p.GetPipeline().GetDesired() == unisinkv1.DesiredState_DESIRED_STATE_STOPPED
	})
}

func (d *demo) verdict(ctx context.Context) (Report, error) {
	cut, err := d.client.Pipelines().ProvenCut(ctx, &unisinkv1.ProvenCutRequest{Pipeline: d.pipelineName()})
	if err != nil {
		return Report{}, fmt.Errorf("ask for the proven cut: %w", err)
	}
	v, err := d.c.Workload.Verify(ctx, d.broker, filepath.Join(d.dir, "out"), d.client.Pipelines(), true)
	if err != nil {
		return Report{}, fmt.Errorf("verify: %w", err)
	}
	r := Report{Orders: d.orders.Load(), Strikes: d.strikes, Verify: v}
	for _, s := range cut.GetScopes() {
		r.Epochs = s.GetEpoch().GetN()
	}
	if v.Verdict != verify.Clean {
		return r, ErrBroken
	}
	return r, d.nothingPrepared(ctx)
}

// supervise runs the pipeline's process and starts it again when it ends badly.
func (d *demo) supervise(ctx context.Context) error {
	const short = time.Second // a run that ends sooner did not begin well
	for failures := 0; ; {
		began := time.Now()
		p, err := d.crew.start("pipeline", d.pipelineArgs()...)
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.worker = p
		d.runs++
		d.mu.Unlock()
		select {
		case <-p.done:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), d.stopWorker(ctx, p))
		}
		if p.Err() == nil {
			return nil // stopped
		}
		if time.Since(began) > short {
			failures = 0
		} else if failures++; failures == 3 {
			return fmt.Errorf("the pipeline ended three times in a row as soon as it was started (%w)", p.Err())
		}
	}
}

// stopWorker gives the pipeline a moment to end by itself, although ctx has ended.
func (d *demo) stopWorker(ctx context.Context, p *proc) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return p.Stop(ctx, syscall.SIGTERM)
}

func (d *demo) pipelineArgs() []string {
	args := []string{"run"}
	args = append(args, d.c.Workload.Args(d.broker, filepath.Join(d.dir, "out"), d.c.Epoch)...)
	for _, n := range d.nodes {
		args = append(args, "--coordinator", n.client)
	}
	return append(args, "--log-format", "json")
}

func (d *demo) pipelineName() string { return d.c.Workload.Name() }

func (d *demo) currentWorker() *proc {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.worker
}

func (d *demo) setPhase(s string) {
	d.mu.Lock()
	d.phase = s
	d.mu.Unlock()
}

// explain adds where to look; with a temporary directory the logs are gone, so their ends are shown.
func (d *demo) explain(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w\n%s", err, d.logTails(5))
}

func newClient(addresses ...string) (*participant.Client, error) {
	return participant.NewClient(participant.ClientConfig{Coordinators: addresses, Actor: "demo", Logger: slog.New(slog.DiscardHandler)})
}
