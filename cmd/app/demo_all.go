package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/cmd/demo"
	"github.com/unisink/unisink/cmd/verifier"
	"github.com/unisink/unisink/examples"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/verify"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// everySink is orders-all.yaml as the demo carries it: the orders pipeline into a topic, a table and a directory.
type everySink struct {
	ordersWorkload
	adapters []Adapter
	dir      string // of the specification
	env      []string
}

const allFile = "orders-all.yaml"

func (*everySink) Text() string {
	return "orders, summed by customer over 1 s windows, into a topic, a PostgreSQL table and a directory in one decision"
}

// Prepare makes the topics and writes the specification, into the directory beside what the pipeline writes.
func (w *everySink) Prepare(ctx context.Context, broker, dir string) error {
	w.dir = filepath.Dir(dir)
	if err := os.WriteFile(filepath.Join(w.dir, allFile), examples.OrdersAll, 0o600); err != nil {
		return fmt.Errorf("write the specification: %w", err)
	}
	return w.ordersWorkload.Prepare(ctx, broker, dir)
}

func (*everySink) Tables() string { return examples.OrdersAllTable }

func (w *everySink) Environment(broker, dsn, dir string) []string {
	w.env = []string{
		"UNISINK_BROKERS=" + broker, "UNISINK_STATE=" + filepath.Join(filepath.Dir(dir), "state"), "ORDERS_FROM=" + demoFrom, "ORDERS_TO=" + demoTo,
		"ORDERS_DIR=" + dir, "ORDERS_POSTGRES=" + dsn, "ORDERS_TABLE=order_totals", "ORDERS_MODE=prepared",
	}
	return w.env
}

func (w *everySink) ResolverArgs(dir string) ([]string, error) {
	file := filepath.Join(dir, "orders-all-resolver.yaml")
	if err := os.WriteFile(file, examples.OrdersAllReach, 0o600); err != nil {
		return nil, fmt.Errorf("write what the resolver reaches: %w", err)
	}
	return []string{"resolver", file, "--name", "demo"}, nil
}

func (w *everySink) Args(string, string, time.Duration) []string {
	return []string{filepath.Join(w.dir, allFile)}
}

func (w *everySink) lookup(name string) (string, bool) {
	i := slices.IndexFunc(w.env, func(x string) bool { return strings.HasPrefix(x, name+"=") })
	if i < 0 {
		return "", false
	}
	return strings.TrimPrefix(w.env[i], name+"="), true
}

func (w *everySink) Verify(ctx context.Context, _, _ string, ledger unisinkv1.PipelinesClient, _ bool) (verify.Report, error) {
	env := spec.Env{Logger: slog.New(slog.DiscardHandler), Lookup: w.lookup}
	doc, err := spec.Parse(allFile, examples.OrdersAll, env)
	if err != nil {
		return verify.Report{}, err
	}
	return verifier.Run(ctx, verifier.Config{Document: doc, Env: env, Adapters: w.adapters, Ledger: ledger})
}

// demoWorkload is what the demo carries, by the name of its sinks.
func (a *app) demoWorkload(sinks string) (_ demoCarries, err error) {
	switch sinks {
	case sinksTwo:
		return demoCarries{ordersWorkload{}, "every window is once in the topic and once in the directory"}, nil
	case sinksAll:
		return demoCarries{
			&everySink{adapters: a.adapters},
			"every window is once in the topic, once in the table and once in the directory, and nothing is left prepared",
		}, nil
	}
	return demoCarries{}, usagef("--sinks %q is not %s or %s", sinks, sinksTwo, sinksAll)
}

// What --sinks says.
const (
	sinksTwo = "kafka+files"
	sinksAll = "all"
)

type demoCarries struct {
	workload demo.Workload
	happyEnd string
}
