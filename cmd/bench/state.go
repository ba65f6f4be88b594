package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/cmd/bench/orders"
)

// The shapes of state that are measured.
const (
	// ShapeOrders: orders of many keys in windows of a second, which fill and go, once without a kill and once with.
	ShapeOrders = "orders"
	// ShapeHeld: all keys in one long window, of which each epoch changes a share.
	ShapeHeld = "held"
)

// Shapes lists them.
func Shapes() []string { return []string{ShapeOrders, ShapeHeld} }

// StateConfig says what State measures.
type StateConfig struct {
	Lab      LabConfig
	Settings Settings
	Shapes   []string
	Epoch    time.Duration
	Keys     int
	Kills    int // of each run that is disturbed
	// Orders, and how many there are to a second of event time; Rate is how many are read per second at most, 0: as many as go.
	Orders, PerSecond, Rate int
	// Changed is the share of the keys that an epoch changes while ShapeHeld is watched, and Watch for how long.
	Changed float64
	Watch   time.Duration
}

// Validate reports every mistake at once.
func (c StateConfig) Validate() error {
	errs := []error{c.Lab.validate()}
	say := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	say(c.Orders < 1 || c.Orders > orders.Most, "%d orders: give 1 to %d", c.Orders, orders.Most)
	say(c.Keys < 1 || c.Keys >= orders.Most, "%d keys: give 1 to %d", c.Keys, orders.Most-1)
	say(c.PerSecond < 1 || c.Settings.Partitions < 1, "orders to a second of event time and partitions must be 1 or more")
	say(c.Kills < 0 || c.Rate < 0, "kills and rate must not be negative")
	say(c.Epoch < 20*time.Millisecond, "an epoch of %s is too short; at least 20ms", c.Epoch)
	say(c.Changed <= 0 || c.Changed > 1, "a share of %v cannot change; give more than 0, at most 1", c.Changed)
	say(c.Watch < 10*c.Epoch, "%s to watch are too short for epochs of %s", c.Watch, c.Epoch)
	say(len(c.Shapes) == 0, "nothing is left to measure")
	for _, s := range c.Shapes {
		say(s != ShapeOrders && s != ShapeHeld, "no shape %q; there is %v", s, Shapes())
	}
	return errors.Join(errs...)
}

// StateResult is what was measured.
type StateResult struct {
	Rows []StateRow `json:"rows"`
	// CutOff says why there is less than was asked for.
	CutOff string `json:"cut_off,omitempty"`
}

// State measures what keyed state costs: memory, bytes for each epoch, and restarts. Every result is recomputed from the
// orders, and what a restarted process reads is held against the ledger. With an error comes what was measured before it.
func State(ctx context.Context, c StateConfig) (out StateResult, err error) {
	if err := c.Validate(); err != nil {
		return out, err
	}
	err = inLab(ctx, c.Lab, func(l *lab) error {
		for _, shape := range c.Shapes {
			f := stateOfOrders
			if shape == ShapeHeld {
				f = stateHeld
			}
			if err := f(ctx, l, c, &out); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		out.CutOff = "it ended with an error"
	}
	return out, err
}

// stateOfOrders takes the same orders through the pipeline twice.
func stateOfOrders(ctx context.Context, l *lab, c StateConfig, out *StateResult) error {
	o := orders.New(c.Orders, c.Keys, c.PerSecond, time.Now())
	from := l.name("orders-in")
	if err := l.writeOrders(ctx, c, o, from); err != nil {
		return err
	}
	var first orders.Outcome
	for _, kills := range []int{0, c.Kills} {
		name := "orders"
		if kills > 0 {
			name = "orders-killed"
		}
		r := &stateRun{lab: l, c: c, name: l.name(name), from: from, orders: o, bounded: true, rate: c.Rate}
		row, got, err := r.throughOrders(ctx, kills)
		if err != nil {
			return err
		}
		out.Rows = append(out.Rows, row)
		l.say("%s: %s", r.name, row)
		if kills == 0 {
			first = got
		}
		if got != first {
			return fmt.Errorf("%d results (%s) with kills, and %d (%s) without", got.Results, got, first.Results, first)
		}
		if c.Kills == 0 {
			break
		}
	}
	return l.admin.DeleteTopic(ctx, from)
}

func (l *lab) writeOrders(ctx context.Context, c StateConfig, o orders.Orders, topic string) error {
	l.say("writing %d orders of %d keys, %d to a second of event time", c.Orders, c.Keys, c.PerSecond)
	if err := l.topic(ctx, topic, c.Settings.Partitions); err != nil {
		return err
	}
	w, err := load(l.brokers, topic, "none", -1)
	if err != nil {
		return err
	}
	defer w.Close()
	const block = 1_000_000
	for n := 0; n < c.Orders; n += block {
		if err := o.Write(ctx, w, n, min(block, c.Orders-n)); err != nil {
			return err
		}
		l.say("%d orders written", min(n+block, c.Orders))
	}
	return w.Flush(ctx)
}

// throughOrders is one run over all orders.
func (r *stateRun) throughOrders(ctx context.Context, kills int) (row StateRow, got orders.Outcome, err error) {
	if err := r.begin(ctx); err != nil {
		return row, got, err
	}
	defer r.time.stop()
	for i := range kills {
		if err := r.awaitDecided(ctx, r.c.Orders*(i+1)/(kills+1)); err != nil {
			return row, got, err
		}
		if err := r.kill(ctx); err != nil {
			return row, got, err
		}
	}
	rep, uses, err := r.finish(ctx)
	if err != nil {
		return row, got, err
	}
	ended := time.Now()
	if rep.Records != uint64(r.c.Orders) {
		return row, got, fmt.Errorf("the pipeline %s counts %d orders of %d", r.name, rep.Records, r.c.Orders)
	}
	r.lab.say("%s: checking every result", r.name)
	if got, err = orders.Check(ctx, r.lab.admin, r.name, r.orders, r.c.Orders); err != nil {
		return row, got, err
	}
	row = r.row(ShapeOrders, uses, r.began, ended)
	row.Records, row.Results, row.Digest = r.c.Orders, got.Results, got.String()
	row.RecordsPerS = float64(r.c.Orders) / time.Unix(0, rep.Ended).Sub(r.began).Seconds()
	row.fullOfOrders(uses)
	row.judge()
	return row, got, r.lab.admin.DeleteTopic(ctx, r.name)
}

// stateHeld fills one window with all keys, changes a share of them in each epoch, and kills the process while that goes on.
func stateHeld(ctx context.Context, l *lab, c StateConfig, out *StateResult) error {
	o := orders.NewHeld(c.Keys)
	r := &stateRun{lab: l, c: c, name: l.name("held"), from: l.name("held-in"), orders: o}
	if err := l.topic(ctx, r.from, c.Settings.Partitions); err != nil {
		return err
	}
	w, err := load(l.brokers, r.from, "none", 0)
	if err != nil {
		return err
	}
	defer w.Close()
	l.say("filling a window with %d keys", c.Keys)
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.time.stop()
	if err := o.Write(ctx, w, 0, c.Keys); err != nil {
		return err
	}
	if err := errors.Join(w.Flush(ctx), r.awaitDecided(ctx, c.Keys)); err != nil {
		return err
	}
	rate := int(float64(c.Keys) * c.Changed / c.Epoch.Seconds())
	l.say("changing %.2g %% of the keys in each epoch, for %s: %d orders per second", 100*c.Changed, c.Watch, rate)
	dripping, stop := context.WithCancel(ctx)
	defer stop()
	n := c.Keys
	var writing sync.WaitGroup
	var failed error
	writing.Go(func() { n, failed = o.Drip(dripping, w, n, rate) })
	h := heldWatch{run: r}
	err = h.watch(ctx)
	stop()
	writing.Wait()
	if err := errors.Join(err, failed); err != nil {
		return errors.Join(err, r.proc.Kill())
	}
	row, err := h.end(ctx, n, rate)
	if err != nil {
		return err
	}
	out.Rows = append(out.Rows, row)
	l.say("%s: %s", r.name, row)
	return errors.Join(l.admin.DeleteTopic(ctx, r.from), l.admin.DeleteTopic(ctx, r.name))
}

// heldWatch is the time in which a share of the keys changes.
type heldWatch struct {
	run      *stateRun
	from, to time.Time
}

// settled is left out at the beginning of what is watched, and quiet between one kill and the next.
const (
	settled = time.Second
	quiet   = 2 * time.Second
)

// watch lets time pass without a kill, and then kills.
func (h *heldWatch) watch(ctx context.Context) error {
	if err := group.Sleep(ctx, settled); err != nil {
		return err
	}
	h.from = time.Now()
	if err := group.Sleep(ctx, h.run.c.Watch); err != nil {
		return err
	}
	h.to = time.Now()
	for range h.run.c.Kills {
		if err := h.run.kill(ctx); err != nil {
			return err
		}
		if err := group.Sleep(ctx, quiet); err != nil {
			return err
		}
	}
	return nil
}

// end drains the pipeline, whose one window fires, and checks every key.
func (h *heldWatch) end(ctx context.Context, n, rate int) (row StateRow, err error) {
	r := h.run
	if err := r.awaitDecided(ctx, n); err != nil {
		return row, err
	}
	if err := r.lab.drain(ctx, r.name); err != nil {
		return row, err
	}
	rep, uses, err := r.finish(ctx)
	if err != nil {
		return row, err
	}
	if rep.Records != uint64(n) {
		return row, fmt.Errorf("the pipeline %s counts %d orders of %d", r.name, rep.Records, n)
	}
	r.lab.say("%s: checking every result", r.name)
	got, err := orders.Check(ctx, r.lab.admin, r.name, r.orders, n)
	if err != nil {
		return row, err
	}
	row = r.row(ShapeHeld, uses, h.from, h.to)
	row.Records, row.Results, row.Digest = n, got.Results, got.String()
	row.RecordsPerS = float64(rate)
	row.changed(rate, h.to.Sub(h.from), r.c.Keys)
	row.fullHeld(uses, r.c.Keys)
	row.judge()
	return row, nil
}
