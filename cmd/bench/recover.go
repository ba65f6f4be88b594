package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/cmd/bench/stats"
	"github.com/unisink/unisink/cmd/bench/worker"
	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/processor/stream"
)

// The events after which Recover measures.
const (
	// EventKilled: the pipeline's process is killed with -9, and started again at once.
	EventKilled = "process-killed"
	// EventPaused: it is paused for longer than its lease, and a second instance is started at once.
	EventPaused = "process-paused"
	// EventLeader: the coordinator node that leads is killed with -9.
	EventLeader = "leader-killed"
	// EventBroker: the one broker is killed with -9, and started again at once.
	EventBroker = "broker-killed"
)

// Events lists them.
func Events() []string { return []string{EventKilled, EventPaused, EventLeader, EventBroker} }

// RecoverConfig says what Recover measures.
type RecoverConfig struct {
	Lab      LabConfig
	Settings Settings
	Events   []string
	Epoch    time.Duration
	Rate     int // records per second
	Repeats  int // of each event
}

// Validate reports every mistake at once.
func (c RecoverConfig) Validate() error {
	var errs []error
	if c.Repeats < 1 || c.Rate < 1 || c.Settings.Partitions < 1 {
		errs = append(errs, errors.New("repeats, rate and partitions must be 1 or more"))
	}
	errs = append(errs, c.Lab.validate())
	if c.Epoch < 20*time.Millisecond {
		errs = append(errs, fmt.Errorf("an epoch of %s is too short; at least 20ms", c.Epoch))
	}
	for _, e := range c.Events {
		if !slices.Contains(Events(), e) {
			errs = append(errs, fmt.Errorf("no event %q; there is %v", e, Events()))
		}
		if e == EventBroker && len(c.Lab.Brokers) > 0 {
			errs = append(errs, errors.New("a broker of your own is not killed: leave the event out, or --brokers"))
		}
	}
	if len(c.Events) == 0 {
		errs = append(errs, errors.New("nothing is left to measure"))
	}
	return errors.Join(errs...)
}

// RecoverRow says how long an event was felt, in seconds from the event: until a record that was made
// after it is visible, and until a reader of committed records has passed, in every partition, a record that
// somebody else wrote after it.
type RecoverRow struct {
	Event           string  `json:"event"`
	EpochMS         int64   `json:"epoch_ms"`
	VisibleMedian   float64 `json:"visible_median_s"`
	VisibleMax      float64 `json:"visible_max_s"`
	UnblockedMedian float64 `json:"unblocked_median_s"`
	UnblockedMax    float64 `json:"unblocked_max_s"`
	Repeats         int     `json:"repeats"`
}

// Recover lets every event happen several times to one pipeline, in turns, and checks at the end that
// every record came out once.
func Recover(ctx context.Context, c RecoverConfig) (rows []RecoverRow, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	err = inLab(ctx, c.Lab, func(l *lab) error {
		r := &recovery{
			lab: l, c: c, eye: newEye(c.Settings.Partitions), visible: map[string][]float64{}, unblocked: map[string][]float64{},
			task: task{Name: l.name("recover"), Job: worker.Pass, From: l.name("recover-in"), Epoch: c.Epoch, Settings: c.Settings},
		}
		if err := r.run(ctx); err != nil {
			return err
		}
		rows = r.rows()
		return errors.Join(l.admin.DeleteTopic(ctx, r.task.From), l.admin.DeleteTopic(ctx, r.task.Name))
	})
	return rows, err
}

type recovery struct {
	lab       *lab
	c         RecoverConfig
	eye       *eye
	task      task
	proc      *child.Process // the pipeline's, that should be alive
	instances int

	visible, unblocked map[string][]float64 // seconds, by event
}

// run starts everything that goes on all the time, and then the acts.
func (r *recovery) run(ctx context.Context) error {
	for _, topic := range []string{r.task.From, r.task.Name} {
		if err := r.lab.topic(ctx, topic, r.c.Settings.Partitions); err != nil {
			return err
		}
	}
	in, err := load(r.lab.brokers, r.task.From, r.c.Settings.Compression, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	beside, err := kafka.NewPlainWriter(kafka.SinkConfig{Brokers: r.lab.brokers, Topic: r.task.Name, Partitioning: kafka.FromRecord}, 0)
	if err != nil {
		return err
	}
	defer beside.Close()
	if err := r.startWorker(); err != nil {
		return err
	}
	// Each of these ends the others when it fails.
	all, fail := context.WithCancelCause(ctx)
	writing, stopWriting := context.WithCancel(all)
	defer stopWriting()
	var background sync.WaitGroup
	failing := func(f func() error) {
		background.Go(func() {
			if err := f(); err != nil {
				fail(err)
			}
		})
	}
	failing(func() error { return watch(all, r.lab.brokers, r.task.Name, r.eye.take) })
	failing(func() error { return canaries(writing, beside, r.c.Settings.Partitions, r.eye) })
	failing(func() error {
		n, err := drip(writing, in, r.c.Rate, r.eye.made)
		r.eye.total(n)
		return err
	})
	err = r.acts(all)
	stopWriting()
	if err == nil {
		err = r.eye.awaitAll(all)
	}
	fail(nil)
	background.Wait()
	return err
}

// acts are the events in turns, with quiet before each.
func (r *recovery) acts(ctx context.Context) error {
	for repeat := range r.c.Repeats {
		for _, event := range r.c.Events {
			if err := r.quiet(ctx); err != nil {
				return fmt.Errorf("before %s: %w", event, err)
			}
			r.eye.arm()
			mend, err := r.strike(ctx, event)
			if err != nil {
				return fmt.Errorf("%s: %w", event, err)
			}
			visible, unblocked, err := r.felt(ctx)
			if err != nil {
				return fmt.Errorf("after %s: %w", event, err)
			}
			r.visible[event] = append(r.visible[event], visible.Seconds())
			r.unblocked[event] = append(r.unblocked[event], unblocked.Seconds())
			r.lab.say("repeat %d of %d, %s: new output visible after %.2f s, readers unblocked after %.2f s",
				repeat+1, r.c.Repeats, event, visible.Seconds(), unblocked.Seconds())
			if mend != nil {
				if err := mend(); err != nil {
					return fmt.Errorf("after %s: %w", event, err)
				}
			}
		}
	}
	return nil
}

// quiet returns when output flows, and has done so for a while.
func (r *recovery) quiet(ctx context.Context) error {
	r.eye.arm()
	if _, _, err := r.felt(ctx); err != nil {
		return err
	}
	return group.Sleep(ctx, time.Second)
}

// feltWait bounds how long an event may be felt.
const feltWait = 2 * time.Minute

// felt waits until new output is visible and readers are not blocked.
func (r *recovery) felt(ctx context.Context) (visible, unblocked time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, feltWait)
	defer cancel()
	select {
	case <-r.eye.over():
		visible, unblocked = r.eye.felt()
		return visible, unblocked, nil
	case <-r.proc.Done():
		return 0, 0, fmt.Errorf("the pipeline's process ended: %w\n%s", errOr(r.proc.Err()), r.lab.tail(r.log()))
	case <-ctx.Done():
		return 0, 0, fmt.Errorf("nothing new is visible: %w\n%s", context.Cause(ctx), r.lab.tail(r.log()))
	}
}

func errOr(err error) error {
	if err == nil {
		return errors.New("without an error")
	}
	return err
}

// strike lets the event happen. Mend, if there is one, makes everything whole again afterwards.
func (r *recovery) strike(ctx context.Context, event string) (mend func() error, err error) {
	switch event {
	case EventKilled:
		if err := r.proc.Kill(); err != nil {
			return nil, err
		}
		return nil, r.startWorker()
	case EventPaused:
		old := r.proc
		if err := old.Signal(syscall.SIGSTOP); err != nil {
			return nil, err
		}
		// It goes on as a process that does not know that it was replaced, and must do no harm.
		zombie := func() error {
			return errors.Join(old.Signal(syscall.SIGCONT), group.Sleep(ctx, time.Second), old.Kill())
		}
		return zombie, r.startWorker()
	case EventLeader:
		n, err := r.lab.group.Leader(ctx)
		if err != nil {
			return nil, err
		}
		r.eye.arm() // to find it took a moment
		back := func() error {
			if err := r.lab.group.StartNode(n); err != nil {
				return err
			}
			return r.lab.group.Await(ctx, n)
		}
		if err := n.Proc.Kill(); err != nil {
			return nil, err
		}
		if len(r.lab.group.Nodes) == 1 {
			return nil, back()
		}
		return back, nil
	case EventBroker:
		b := r.lab.cluster.Broker(1)
		if err := b.Kill(); err != nil {
			return nil, err
		}
		return nil, b.Restart(ctx)
	}
	return nil, fmt.Errorf("no event %q", event)
}

func (r *recovery) startWorker() (err error) {
	r.instances++
	r.proc, err = r.lab.worker(r.task, r.instance())
	return err
}

func (r *recovery) instance() string { return fmt.Sprintf("-%d", r.instances) }

func (r *recovery) log() string { return filepath.Base(r.task.Name + r.instance()) }

func (r *recovery) rows() []RecoverRow {
	var out []RecoverRow
	for _, e := range r.c.Events {
		v, u := r.visible[e], r.unblocked[e]
		out = append(out, RecoverRow{
			Event: e, EpochMS: r.c.Epoch.Milliseconds(), Repeats: len(v),
			VisibleMedian: stats.Rounded(stats.Median(v), 2), VisibleMax: stats.Rounded(slices.Max(v), 2),
			UnblockedMedian: stats.Rounded(stats.Median(u), 2), UnblockedMax: stats.Rounded(slices.Max(u), 2),
		})
	}
	return out
}

// canary marks the records that a stranger writes to the output topic.
const canary = "canary "

// canaries writes one to every partition again and again. Readers of committed records see them only as
// far as no transaction before them is open.
func canaries(ctx context.Context, w *kafka.PlainWriter, partitions int, e *eye) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var batch []stream.Record
		n := e.canary()
		for p := range partitions {
			batch = append(batch, stream.Record{Value: fmt.Appendf(nil, "%s%d", canary, n), Partition: int32(p)})
		}
		if err := w.Write(ctx, batch); err != nil {
			return err
		}
	}
}

func isCanary(value []byte) bool { return strings.HasPrefix(string(value), canary) }
