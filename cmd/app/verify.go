package app

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/cmd/orders"
	"github.com/unisink/unisink/internal/plural"
	"github.com/unisink/unisink/processor/verify"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) verify() *cli.Command {
	return &cli.Command{
		Name: "verify", Usage: "recompute the outputs of a pipeline from its input, and compare", ArgsUsage: "FILE | PIPELINE",
		Description: "FILE is a specification (its name has a dot or a slash); every source record must be exactly once in\n" +
			"windows, late output, dead letters, filtered or skipped, and every result must be right. PIPELINE is one\n" +
			"that is compiled in. Everything is judged up to the last epoch that is proven. The verdict is clean,\n" +
			"broken, or undeterminable where something can't be known from outside. Exit code 0 if clean, else 10.\n" +
			"The options say where a PIPELINE reads and writes; FILE says it itself." +
			forExample("unisink verify pipeline.yaml", "unisink verify orders --dir totals"),
		Flags:  ordersFlags(),
		Action: a.runVerify,
	}
}

// ordersFlags say where the compiled-in pipeline reads and writes.
func ordersFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "brokers", EnvVars: []string{"UNISINK_BROKERS"}, Value: cli.NewStringSlice("127.0.0.1:9092"), Usage: "`ADDRESS` of Kafka brokers; several times or comma-separated"},
		&cli.StringFlag{Name: "from", Value: "orders", Usage: "`TOPIC` to read"},
		&cli.StringFlag{Name: "to", Value: "order-totals", Usage: "`TOPIC` to write"},
		&cli.StringFlag{Name: "dir", Value: "order-totals", Usage: "`DIR` to write"},
	}
}

func ordersConfig(c *cli.Context) orders.Config {
	return orders.Config{Brokers: c.StringSlice("brokers"), From: c.String("from"), To: c.String("to"), Dir: c.String("dir")}
}

func (a *app) runVerify(c *cli.Context) error {
	name, err := oneArg(c, "pipeline")
	if err != nil {
		return err
	}
	if isFile(name) {
		return a.verifyFile(c, name)
	}
	if name != orders.Name {
		return failf(CodeNotFound, "no pipeline %q is compiled in that could be recomputed; there is %s (the name of a file has a dot or a slash: ./%s)", name, orders.Name, name)
	}
	// Reading everything again takes as long as it takes; no --timeout bounds that.
	cl, err := connect(c, coordinators(c), min(searchTime, c.Duration("timeout")))
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	// Before the sinks are looked at: nothing was written for a pipeline that is not there.
	if _, err := cl.Pipelines().ProvenCut(c.Context, &unisinkv1.ProvenCutRequest{Pipeline: name}); err != nil {
		return err
	}
	if err := checkOrders(c.Context, ordersConfig(c)); err != nil {
		return err
	}
	report, err := orders.Verify(c.Context, ordersConfig(c), cl.Pipelines(), false)
	if err != nil {
		return err
	}
	if err := a.showReport(c, report, report); err != nil {
		return err
	}
	return verdictCode(report)
}

func verdictCode(r verify.Report) error {
	if r.Verdict != verify.Clean {
		return failf(CodeUnhealthy, "the verdict is %s", r.Verdict)
	}
	return nil
}

const shownCases = 20

// reportRows shows the verdict.
func reportRows(r verify.Report) [][]string {
	return [][]string{
		{"VERDICT", "RECORDS", "WINDOWS", "MISSING", "DOUBLED", "DIFFERENT", "UNDETERMINABLE"},
		{
			string(r.Verdict), fmt.Sprint(r.Records), fmt.Sprint(r.Windows), fmt.Sprint(len(r.Missing)),
			fmt.Sprint(len(r.Doubled)), fmt.Sprint(len(r.Different)), fmt.Sprint(len(r.Undeterminable)),
		},
	}
}

// caseRows shows at most some of each kind of case.
func caseRows(r verify.Report) [][]string {
	rows := [][]string{{"CASE", "SINK", "KEY", "WINDOW", "WHY"}}
	for _, k := range []struct {
		what  string
		cases []verify.Case
	}{{"missing", r.Missing}, {"doubled", r.Doubled}, {"different", r.Different}, {"undeterminable", r.Undeterminable}} {
		for i, x := range k.cases {
			if i == shownCases {
				rows = append(rows, []string{k.what, "", "", "", fmt.Sprintf("and %d more; -o json shows all", len(k.cases)-i)})
				break
			}
			rows = append(rows, []string{k.what, x.Sink, x.Key, x.Window, x.Why})
		}
	}
	return rows
}

// showReport prints the verdict and the cases.
func (a *app) showReport(c *cli.Context, v any, r verify.Report) error {
	defer a.noteAside(c, r)
	defer a.noteForeign(c, r)
	defer a.noteCompared(c, r)
	return a.show(c, v, func() [][]string { return reportRows(r) }, func() [][]string { return caseRows(r) })
}

// noteCompared says how much was held against each other: a verdict on nothing says nothing.
func (a *app) noteCompared(c *cli.Context, r verify.Report) {
	switch {
	case r.Verdict != verify.Clean || r.Compared > 0:
		a.note(c, fmt.Sprintf("Compared: %s of the source with %s in the sinks.", plural.Of(r.Records, "record"), plural.Of(r.Compared, "record")))
	case r.Records > 0:
		a.note(c, fmt.Sprintf("Warning: the sinks hold no record, so none was compared. By the last proven epoch none of the %s of the source had to be in a sink:\n"+
			"they are filtered or skipped, or their windows have not fired.", plural.Of(r.Records, "record")))
	default:
		a.note(c, "Warning: nothing was there to compare. Up to the last proven epoch the source has no record, and the sinks hold none;\n"+
			"\"clean\" says no more than that. Is it the right source, and has the pipeline run?")
	}
}

// noteForeign says where records come from that no epoch of the pipeline has written.
func (a *app) noteForeign(c *cli.Context, r verify.Report) {
	foreign := 0
	for _, x := range r.Different {
		if x.Foreign {
			foreign++
		}
	}
	if foreign > 0 {
		a.note(c, fmt.Sprintf("%s of epochs that this pipeline has not decided: another pipeline, or one of another group, has written to the\n"+
			"same place. Give each pipeline sinks of its own.", plural.Of(foreign, "record")))
	}
}

// noteAside says what was left out because of a rewind.
func (a *app) noteAside(c *cli.Context, r verify.Report) {
	if r.SupersededEpochs > 0 {
		a.note(c, fmt.Sprintf("%s of %s are left out: a rewind put them aside, and they stay in the sinks.", plural.Of(r.Superseded, "record"), plural.Of(r.SupersededEpochs, "epoch")))
	}
}
