package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/cmd/bench"
	"github.com/unisink/unisink/cmd/bench/stats"
	"github.com/unisink/unisink/cmd/bench/worker"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// labFlags say with what `bench pipeline` and `bench recover` measure.
func labFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "brokers", EnvVars: []string{"UNISINK_BROKERS"}, Usage: "`ADDRESS` of a Kafka of your own; without, a real broker is fetched and started"},
		&cli.IntFlag{Name: "nodes", Value: 3, Usage: "`N` coordinator nodes, 1 or 3"},
		&cli.StringFlag{Name: "dir", Usage: "`DIR` for logs and data, which is kept; a temporary one by default"},
		&cli.BoolFlag{Name: "quick", Usage: "as little as shows that it works; the figures mean nothing"},
	}
}

func (a *app) lab(c *cli.Context) (bench.LabConfig, error) {
	exe, err := os.Executable()
	if err != nil {
		return bench.LabConfig{}, fmt.Errorf("find this binary: %w", err)
	}
	return bench.LabConfig{
		Exe: exe, Brokers: c.StringSlice("brokers"), Nodes: c.Int("nodes"), Dir: c.String("dir"),
		Progress: func(s string) { fmt.Fprintln(a.err, s) },
	}, nil
}

func (a *app) benchPipeline() *cli.Command {
	return &cli.Command{
		Name: "pipeline", Usage: "cost of a record and delay of its output, beside the same pipeline without transactions",
		Description: "Jobs on a real broker: pass-through; a window that sums and counts by key, in Go and written in YAML;\n" +
			"and the same work as a loop by hand, with no guarantee. Records are 100 bytes of JSON with 1,000 keys,\n" +
			"10,000 to a second of event time. Each pass measures every job at every length of epochs once; the\n" +
			"figures are medians over the passes, beside their budgets, and every result is checked. What was\n" +
			"measured is shown also if the run is cut off.",
		Flags: append(labFlags(),
			checkFlag(),
			&cli.BoolFlag{Name: "short", Usage: "only what the cost of a record has a budget for: the window jobs at 1s and 0s, 3 passes, no delay, at most 150s"},
			&cli.IntFlag{Name: "records", Value: 5_000_000, Usage: "`N` records of a pass"},
			&cli.IntFlag{Name: "passes", Value: 5, Usage: "`N` passes, whose median counts"},
			&cli.DurationFlag{Name: "within", Usage: "`TIME` after which nothing more is begun; 0s: no limit"},
			&cli.StringSliceFlag{Name: "job", Value: cli.NewStringSlice(worker.Jobs()...), Usage: "`JOB` to measure: " + strings.Join(worker.Jobs(), ", ")},
			&cli.StringSliceFlag{Name: "epoch", Value: cli.NewStringSlice("1s", "100ms", "20ms", "0s"), Usage: "`TIME` between barriers; 0s: without transactions"},
			&cli.DurationFlag{Name: "latency", Value: 10 * time.Second, Usage: "`TIME` that the delay is watched in each pass, at --rate; 0s: not at all"},
			&cli.IntFlag{Name: "rate", Value: 10_000, Usage: "`RECORDS` per second while the delay is watched"},
			&cli.IntFlag{Name: "partitions", Value: 4, Usage: "`N` partitions in each topic"},
			&cli.StringFlag{Name: "compression", Value: "none", Usage: "`CODEC` of input and output: none, gzip, snappy, lz4 or zstd"},
			profileFlag(),
		),
		Action: a.runBenchPipeline,
	}
}

func profileFlag() cli.Flag {
	return &cli.StringFlag{Name: "profile", Aliases: []string{"profiles"}, Usage: "`DIR` for profiles of each measured process, of its CPU and its memory, for `go tool pprof -top`"}
}

// short is the form of the measurement that is over in three minutes; what was asked for by a flag stays.
func short(c *cli.Context, cfg *bench.PipelineConfig) {
	if !c.IsSet("job") {
		cfg.Jobs = []string{worker.Window, worker.YAML, worker.Loop}
	}
	if !c.IsSet("epoch") {
		cfg.Epochs = []time.Duration{time.Second, 0}
	}
	if !c.IsSet("passes") {
		cfg.Passes = 3
	}
	if !c.IsSet("latency") {
		cfg.Latency = 0
	}
	if !c.IsSet("within") {
		cfg.Within = 150 * time.Second
	}
}

func (a *app) runBenchPipeline(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	lab, err := a.lab(c)
	if err != nil {
		return err
	}
	cfg := bench.PipelineConfig{
		Lab:      lab,
		Settings: bench.Settings{Partitions: c.Int("partitions"), Compression: c.String("compression"), Profiles: c.String("profile")},
		Jobs:     c.StringSlice("job"), Records: c.Int("records"), Passes: c.Int("passes"), Latency: c.Duration("latency"), Rate: c.Int("rate"),
		Within: c.Duration("within"),
	}
	for _, e := range c.StringSlice("epoch") {
		d, err := time.ParseDuration(e)
		if err != nil {
			return usagef("--epoch %q is no time such as 100ms", e)
		}
		cfg.Epochs = append(cfg.Epochs, d)
	}
	if c.Bool("short") {
		short(c, &cfg)
	}
	if c.Bool("quick") {
		cfg.Records, cfg.Passes, cfg.Latency = min(cfg.Records, 100_000), 1, min(cfg.Latency, time.Second)
	}
	if err := errors.Join(cfg.Validate(), makeProfiles(cfg.Settings.Profiles)); err != nil {
		return withCode(CodeUsage, err)
	}
	out, err := bench.Pipeline(c.Context, cfg)
	if len(out.Rows) == 0 && err != nil {
		return err
	}
	shown := a.show(c, out, func() [][]string { return pipelineRows(out.Rows) })
	if out.CutOff != "" {
		a.note(c, "Cut off: "+out.CutOff+".")
	}
	return errors.Join(err, shown, judged(c, 0, budgetsOf(out.Rows, func(r *bench.PipelineRow) []stats.Budget { return r.Budgets })...))
}

func makeProfiles(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of profiles: %w", err)
	}
	return nil
}

// pipelineRows puts each row's cost beside that of its job without transactions, of the loop, and its budgets.
func pipelineRows(rows []bench.PipelineRow) [][]string {
	ratio := func(v float64) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f", v)
	}
	delay := func(v float64) string {
		if v < 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f", v)
	}
	table := [][]string{{"JOB", "EPOCH", "RECORDS/S", "CPU-S/MILLION", "TO PLAIN", "TO LOOP", "PEAK MIB", "VISIBLE P50 MS", "P99 MS", "PASSES", "BUDGET"}}
	for _, r := range rows {
		epoch := "none"
		if r.Transactional {
			epoch = (time.Duration(r.EpochMS) * time.Millisecond).String()
		}
		table = append(table, []string{
			r.Job, epoch, fmt.Sprintf("%.0f", r.RecordsPerS), fmt.Sprintf("%.2f", r.CPUPerMillion), ratio(r.ToPlain), ratio(r.ToLoop),
			fmt.Sprintf("%.0f", r.PeakRSSMB), delay(r.VisibleP50), delay(r.VisibleP99), fmt.Sprint(r.Passes), stats.Verdict(r.Budgets),
		})
	}
	return table
}

// benchWorker is the process that `bench` measures.
func (a *app) benchWorker() *cli.Command {
	return &cli.Command{
		Name: "worker", Hidden: true, Usage: "the pipeline that bench measures",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "brokers"}, &cli.StringFlag{Name: "job"}, &cli.StringFlag{Name: "name"},
			&cli.StringFlag{Name: "from"}, &cli.StringFlag{Name: "to"}, &cli.DurationFlag{Name: "epoch"},
			&cli.BoolFlag{Name: "bounded"}, &cli.StringFlag{Name: "compression"}, &cli.StringFlag{Name: "report"}, &cli.StringFlag{Name: "profile"},
		},
		Action: a.runBenchWorker,
	}
}

func (a *app) runBenchWorker(c *cli.Context) (err error) {
	if err := noArgs(c); err != nil {
		return err
	}
	log, err := a.logger(c)
	if err != nil {
		return err
	}
	secure, err := clientTLS(c)
	if err != nil {
		return err
	}
	stop, err := profile(c.String("profile"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	w, err := worker.New(worker.Config{
		Job: c.String("job"), Brokers: c.StringSlice("brokers"), From: c.String("from"), To: c.String("to"), Name: c.String("name"),
		Bounded: c.Bool("bounded"), Compression: c.String("compression"), Logger: log,
	})
	if err != nil {
		return withCode(CodeUsage, err)
	}
	if c.Duration("epoch") == 0 {
		err = w.RunPlain(c.Context)
	} else {
		rc := RunContext{Flags: c, Coordinators: coordinators(c), TLS: present(secure), TLSFrom: secure, Timeout: c.Duration("timeout"), Logger: log, Out: a.out}
		err = runTransactional(c.Context, rc, w, c.Duration("epoch"), c.Bool("bounded"))
	}
	if err != nil {
		return err
	}
	return w.WriteReport(c.String("report"))
}

// runTransactional runs the pipeline as `run` does, and drains it when its source has ended.
func runTransactional(ctx context.Context, rc RunContext, w *worker.Worker, epoch time.Duration, bounded bool) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return RunPipeline(gctx, rc, w.Pipeline, epoch) })
	if bounded {
		g.Go(func() error {
			if err := w.AwaitEnd(gctx); err != nil {
				return err
			}
			cl, err := participant.NewClient(participant.ClientConfig{Coordinators: rc.Coordinators, TLS: rc.TLS, TLSFrom: rc.TLSFrom, Actor: "bench", Logger: rc.Logger})
			if err != nil {
				return err
			}
			defer func() { _ = cl.Close() }() // nothing is under way on it
			_, err = cl.Pipelines().SetDesired(gctx, &unisinkv1.SetDesiredRequest{
				Meta: cl.NewMeta(), Name: w.Pipeline.Name(), Desired: unisinkv1.DesiredState_DESIRED_STATE_DRAINING,
			})
			return err
		})
	}
	return g.Wait()
}

// profile writes a profile of the CPU and one of the memory when it is stopped, to the files FILE.cpu and FILE.heap;
// without a file it does nothing.
func profile(file string) (stop func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(file + ".cpu")
	if err != nil {
		return nil, fmt.Errorf("make the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		heap, err := os.Create(file + ".heap")
		if err != nil {
			return errors.Join(fmt.Errorf("make the profile: %w", err), f.Close())
		}
		return errors.Join(f.Close(), pprof.WriteHeapProfile(heap), heap.Close())
	}, nil
}
