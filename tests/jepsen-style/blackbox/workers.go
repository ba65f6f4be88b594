package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/ground"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

const (
	tellers    = 3
	workDisk   = 2 << 30
	orderRate  = 300 // a second
	linesEvery = 500 * time.Millisecond

	ordersPipeline = "orders"
	topicIn        = "orders"
	topicOut       = "order-totals"
	linesPipeline  = "lines"
	epochOfOrders  = "500ms"
)

// workers are the processes that use the coordinator, and what they write to: one disk for all that is
// written into files.
type workers struct {
	disk    *ground.Disk
	tellers []*keeper
	sweeper *keeper
	orders  *keeper
	lines   *keeper

	broker  string
	bin     string
	dir     string
	written atomic.Int64 // orders
	fed     atomic.Int64 // lines
}

func newWorkers(ctx context.Context, r *run) (*workers, error) {
	w := &workers{broker: r.kafka.Addrs()[0], bin: r.c.Binary, dir: r.dir}
	var err error
	if w.disk, err = r.ground.AddDisk(ctx, "work", workDisk); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	coordinators := r.group.addresses()
	teller := func(name string, seed uint64, more ...string) *keeper {
		return newKeeper(name, r.crew, func(life int) child.Spec {
			return child.Spec{Name: name, Path: self, Log: filepath.Join(r.dir, name+".log"), Args: append([]string{
				"teller", "-name", name, "-socket", r.socket(), "-files", w.filesDir(), "-coordinators", strings.Join(coordinators, ","),
				"-seed", fmt.Sprint(seed + uint64(life)<<8), "-pause", r.c.Pause.String(),
			}, more...)}
		})
	}
	for i := range tellers {
		w.tellers = append(w.tellers, teller(fmt.Sprintf("teller%d", i+1), r.c.Seed+uint64(i+1)))
	}
	w.sweeper = teller("sweeper", r.c.Seed, "-sweep")
	var flags []string
	for _, c := range coordinators {
		flags = append(flags, "--coordinator", c)
	}
	flags = append(flags, "--log-level", "debug", "--log-format", "json")
	w.orders = newKeeper(ordersPipeline, r.crew, func(int) child.Spec {
		return child.Spec{Name: ordersPipeline, Path: w.bin, Log: filepath.Join(r.dir, "orders.log"), Args: append(append(
			[]string{"run", ordersPipeline, "--epoch", epochOfOrders, "--state", w.in("state")}, w.ordersFlags()...), flags...)}
	})
	w.lines = newKeeper(linesPipeline, r.crew, func(int) child.Spec {
		return child.Spec{Name: linesPipeline, Path: w.bin, Log: filepath.Join(r.dir, "lines.log"), Args: append([]string{"run", w.linesSpec()}, flags...)}
	})
	return w, w.furnish()
}

func (w *workers) in(name string) string { return filepath.Join(w.disk.Dir(), name) }

func (w *workers) filesDir() string { return w.in("transfers") }

func (w *workers) linesSpec() string { return filepath.Join(w.dir, "lines.yaml") }

func (w *workers) feed() string { return filepath.Join(w.dir, "feed") }

func (w *workers) ordersFlags() []string {
	return []string{"--brokers", w.broker, "--from", topicIn, "--to", topicOut, "--dir", w.in("orders")}
}

func (w *workers) all() []*keeper {
	return append([]*keeper{w.sweeper, w.orders, w.lines}, w.tellers...)
}

// furnish writes what the pipeline on files is, and makes the directory that it reads.
func (w *workers) furnish() error {
	spec := fmt.Sprintf(`pipeline: %s
epoch: 500ms
source:
  name: in
  file: {dir: %q, follow: true}
  event_time: rec.at
  idle_after: never
key: rec.key
window:
  tumbling: 1s
  aggregate:
    count: count()
    sum: sum(rec.cents)
sinks:
  - name: out
    file: {dir: %q}
    fields: {key: key, window_start: window_start, window_end: window_end, count: count, sum: sum}
`, linesPipeline, w.feed(), w.in("lines"))
	if err := os.WriteFile(w.linesSpec(), []byte(spec), 0o600); err != nil {
		return fmt.Errorf("write the specification of %s: %w", linesPipeline, err)
	}
	if err := os.MkdirAll(w.feed(), 0o700); err != nil {
		return fmt.Errorf("make the feed: %w", err)
	}
	return nil
}

// write feeds both pipelines until ctx ends, which is no error.
func (w *workers) write(ctx context.Context, cl *kgo.Client, seed uint64) error {
	orders := make(chan error, 1)
	go func() { orders <- rig.Generate(ctx, cl, topicIn, orderRate, seed, &w.written) }()
	return errors.Join(w.writeLines(ctx), <-orders)
}

// writeLines writes a whole file at a time, since a source takes one as it appears.
func (w *workers) writeLines(ctx context.Context) error {
	for nr := 0; rig.Sleep(ctx, linesEvery) == nil; nr++ {
		var text strings.Builder
		for i := range 20 {
			fmt.Fprintf(&text, `{"key":"k%d","cents":%d,"at":%d}`+"\n", i%7, nr*20+i, time.Now().UnixMilli())
		}
		name := filepath.Join(w.feed(), fmt.Sprintf("%08d.jsonl", nr))
		if err := os.WriteFile(name+".part", []byte(text.String()), 0o600); err != nil {
			return fmt.Errorf("feed %s: %w", linesPipeline, err)
		}
		if err := os.Rename(name+".part", name); err != nil {
			return fmt.Errorf("feed %s: %w", linesPipeline, err)
		}
		w.fed.Add(20)
	}
	return nil
}
