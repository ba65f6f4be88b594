package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/cmd/verifier"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/verify"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// isFile reports whether an argument names a specification and not a pipeline: pipelines have neither dots
// nor slashes in their names.
func isFile(arg string) bool { return strings.ContainsAny(arg, "./"+string(os.PathSeparator)) }

// fileReport is what `verify FILE` prints: where every record is, besides what is wrong.
type fileReport struct {
	Verdict  verify.Verdict `json:"verdict"`
	Records  int            `json:"records"`
	Compared int            `json:"compared"`
	Passed   int            `json:"passed"`
	Filtered int            `json:"filtered"`
	Skipped  int            `json:"skipped"`
	Late     int            `json:"late"`
	Dead     int            `json:"dead_letters"`
	Windows  int            `json:"windows"`
	Open     int            `json:"open_windows"`
	Missing  []fileCase     `json:"missing"`
	Doubled  []fileCase     `json:"doubled"`
	// Different is there, and is not what it must be.
	Different      []fileCase `json:"different"`
	Undeterminable []fileCase `json:"undeterminable"`
	verify.Aside
}

type fileCase struct {
	Sink   string `json:"sink"`
	Key    string `json:"key"`
	Window string `json:"window"`
	Why    string `json:"why"`
}

func newFileReport(r verify.Report) fileReport {
	cases := func(in []verify.Case) []fileCase {
		out := make([]fileCase, len(in))
		for i, c := range in {
			out[i] = fileCase{Sink: c.Sink, Key: c.Key, Window: c.Window, Why: c.Why}
		}
		return out
	}
	return fileReport{
		Verdict: r.Verdict, Records: r.Records, Compared: r.Compared, Passed: r.Passed, Filtered: r.Filtered, Skipped: r.Skipped, Late: r.Late, Dead: r.Dead,
		Windows: r.Windows, Open: r.Open,
		Missing: cases(r.Missing), Doubled: cases(r.Doubled), Different: cases(r.Different), Undeterminable: cases(r.Undeterminable),
		Aside: r.Aside,
	}
}

// verifyFile verifies the pipeline that a specification describes.
func (a *app) verifyFile(c *cli.Context, file string) error {
	log, err := a.logger(c)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return withCode(CodeNotFound, err)
	}
	env := spec.Env{Logger: log, Lookup: os.LookupEnv}
	doc, err := spec.Parse(file, text, env)
	if err != nil {
		return err
	}
	cl, err := connect(c, coordinators(c), min(searchTime, c.Duration("timeout")))
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	// Before the sinks are looked at: nothing was written for a pipeline that is not there.
	if _, err := cl.Pipelines().ProvenCut(c.Context, &unisinkv1.ProvenCutRequest{Pipeline: doc.Pipeline.Value}); err != nil {
		return err
	}
	report, err := verifier.Run(c.Context, verifier.Config{
		Document: doc, Env: env, Adapters: a.adapters, Ledger: cl.Pipelines(), Progress: progress(c.Context, log, time.Now),
	})
	if err != nil {
		return err
	}
	err = a.show(c, newFileReport(report), func() [][]string { return placeRows(report) }, func() [][]string { return reportRows(report) }, func() [][]string { return caseRows(report) })
	if err != nil {
		return err
	}
	a.noteCompared(c, report)
	a.noteAside(c, report)
	verdict := verdictCode(report)
	if verdict == nil {
		return nil
	}
	switch other, err := isOther(c.Context, cl.Pipelines(), doc); {
	case err != nil:
		return fmt.Errorf("%w; whether %s is the specification that runs is not known: %w", verdict, file, err)
	case other:
		return fmt.Errorf("%w; the pipeline was declared with another specification than %s, and what differs may come from that", verdict, file)
	}
	return verdict
}

// isOther reports whether the file is not what the pipeline was declared with: then what looks wrong may be right. It
// may be meant, where the pipeline is written in Go, and does not change the verdict.
func isOther(ctx context.Context, pl unisinkv1.PipelinesClient, doc *spec.Document) (bool, error) {
	ours, err := spec.Fingerprint(doc)
	if err != nil {
		return false, err
	}
	p, err := pl.GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: doc.Pipeline.Value})
	return p.GetPipeline().GetFingerprint() != ours, err
}

// placeRows shows where the records are.
func placeRows(r verify.Report) [][]string {
	return [][]string{
		{"RECORDS", "PASSED", "FILTERED", "SKIPPED", "LATE", "DEAD LETTERS", "OPEN WINDOWS"},
		{fmt.Sprint(r.Records), fmt.Sprint(r.Passed), fmt.Sprint(r.Filtered), fmt.Sprint(r.Skipped), fmt.Sprint(r.Late), fmt.Sprint(r.Dead), fmt.Sprint(r.Open)},
	}
}

const progressEvery = 5 * time.Second

// progress logs how far a long verification is.
func progress(ctx context.Context, log *slog.Logger, now func() time.Time) func(what string, records int) {
	last := now()
	return func(what string, records int) {
		if at := now(); at.Sub(last) >= progressEvery {
			last = at
			log.InfoContext(ctx, "verifying", slog.String("reads", what), slog.Int("records", records))
		}
	}
}
