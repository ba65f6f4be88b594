package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/unisink/unisink/cmd/demo"
	"github.com/unisink/unisink/cmd/orders"
	"github.com/unisink/unisink/internal/plural"
	"github.com/unisink/unisink/processor/verify"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) demo() *cli.Command {
	return &cli.Command{
		Name: "demo", Usage: "watch a group and a pipeline survive kill -9, in under a minute",
		Description: "Starts three coordinator nodes, a Kafka broker (embedded by default) and the orders pipeline as processes,\n" +
			"kills the pipeline twice and the leader once between a vote and its decision, and ends with the\n" +
			"verdict of verify. With --sinks all it writes to PostgreSQL as well, and kills that and a resolver too. Ctrl-C ends everything and removes what was made.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "rate", Value: 2000, Usage: "`ORDERS` per second"},
			&cli.DurationFlag{Name: "epoch", Value: 200 * time.Millisecond, Usage: "`TIME` between barriers"},
			&cli.StringFlag{Name: "kafka", Value: demo.EmbeddedKafka, Usage: "`BROKER` to run: embedded, or real for Apache Kafka, which needs Java and Maven"},
			&cli.StringFlag{Name: "sinks", Value: sinksTwo, Usage: "`SINKS`: " + sinksTwo + ", or " + sinksAll + " for PostgreSQL as well, which is fetched once, with a resolver; both are killed too"},
			&cli.StringFlag{Name: "dir", Usage: "`DIR` to work in and to keep; a temporary one by default"},
		},
		Action: a.runDemo,
	}
}

func (a *app) runDemo(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this binary: %w", err)
	}
	if c.Int("rate") < 1 || c.Duration("epoch") < 20*time.Millisecond {
		return usagef("--rate must be 1 or more, --epoch 20ms or more")
	}
	if k := c.String("kafka"); k != demo.EmbeddedKafka && k != demo.RealKafka {
		return usagef("--kafka %q is not embedded or real", k)
	}
	carries, err := a.demoWorkload(c.String("sinks"))
	if err != nil {
		return err
	}
	f, isFile := a.out.(*os.File)
	jsonWanted := c.String("output") == outputJSON
	out := a.out
	if jsonWanted {
		out = a.err // the report alone goes to standard output
	}
	width := func() int {
		w, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0 // not known: nothing is cut
		}
		return w
	}
	report, err := demo.Run(c.Context, demo.Config{
		Exe: exe, Dir: c.String("dir"), Rate: c.Int("rate"), Epoch: c.Duration("epoch"),
		Kafka: c.String("kafka"), Out: out,
		Screen: isFile && !jsonWanted && term.IsTerminal(int(f.Fd())), Width: width, Workload: carries.workload,
	})
	if err != nil && !errors.Is(err, demo.ErrBroken) {
		if c.Context.Err() != nil {
			return failf(CodeFailed, "stopped; nothing is left running")
		}
		return err
	}
	if !jsonWanted {
		fmt.Fprintln(a.out)
	}
	if showErr := a.showReport(c, report, report.Verify); showErr != nil {
		return showErr
	}
	if err != nil {
		return withCode(CodeUnhealthy, err)
	}
	if !jsonWanted {
		fmt.Fprintf(a.out, "\n%s, %s between a vote and its decision;\n%s.\n",
			plural.Of(report.Orders, "order"), plural.Of(len(report.Strikes), "kill"), carries.happyEnd)
	}
	return nil
}

// ordersWorkload is the orders pipeline as the demo carries it.
type ordersWorkload struct{}

const (
	demoFrom = "orders"
	demoTo   = "order-totals"
)

func (ordersWorkload) Name() string { return orders.Name }
func (ordersWorkload) Text() string { return orders.Text }

func (ordersWorkload) Rhythm() time.Duration { return orders.WindowSize }

func (ordersWorkload) Prepare(ctx context.Context, broker, _ string) error {
	return orders.Prepare(ctx, []string{broker}, demoFrom, demoTo)
}

func (ordersWorkload) Args(broker, dir string, epoch time.Duration) []string {
	return []string{orders.Name, "--brokers", broker, "--from", demoFrom, "--to", demoTo, "--dir", dir, "--epoch", epoch.String()}
}

func (ordersWorkload) Generate(ctx context.Context, broker string, rate int, count *atomic.Int64) error {
	return orders.Generate(ctx, []string{broker}, demoFrom, rate, count)
}

func (ordersWorkload) Verify(ctx context.Context, broker, dir string, ledger unisinkv1.PipelinesClient, drained bool) (verify.Report, error) {
	return orders.Verify(ctx, orders.Config{Brokers: []string{broker}, From: demoFrom, To: demoTo, Dir: filepath.Clean(dir)}, ledger, drained)
}
