package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/cmd/adapters"
	"github.com/unisink/unisink/internal/plural"
	"github.com/unisink/unisink/processor/spec"
)

// Adapter makes sources and sinks of one kind out of a specification; see [WithAdapter].
type Adapter = adapters.Adapter

// WithAdapter lets specifications name another kind of sources and sinks. One of the same kind that
// was given before is replaced.
func WithAdapter(x Adapter) Option {
	return func(a *app) {
		for i := range a.adapters {
			if a.adapters[i].Kind == x.Kind {
				a.adapters[i] = x
				return
			}
		}
		a.adapters = append(a.adapters, x)
	}
}

// readSpec reads a specification's file.
func readSpec(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, failf(CodeNotFound, "there is no file %s", file)
	case err != nil:
		return nil, failf(CodeUsage, "the file %s cannot be read: %w", file, err)
	}
	return text, nil
}

// runFile runs the pipeline that a file specifies.
func (a *app) runFile(c *cli.Context, file string) error {
	text, err := readSpec(file)
	if err != nil {
		return err
	}
	rc, err := a.runContext(c)
	if err != nil {
		return err
	}
	return ended(c, runSpec(c.Context, rc, a.adapters, file, text, 0))
}

// runSpec builds a pipeline from its specification, looks at what it will touch, and runs it. An epoch
// of 0 is the specification's own.
func runSpec(ctx context.Context, rc RunContext, all []Adapter, file string, text []byte, epoch time.Duration) (err error) {
	env := spec.Env{Logger: rc.Logger, Lookup: rc.lookup()}
	doc, err := spec.Parse(file, text, env)
	if err != nil {
		return err
	}
	p, err := spec.Build(doc, adapters.Specs(all, doc), env)
	if err != nil {
		return err
	}
	defer func() {
		if closing := p.Close(); closing != nil {
			err = errors.Join(err, closing)
		}
	}()
	if err := adapters.Check(ctx, all, env, doc); err != nil {
		return err
	}
	return RunPipeline(ctx, rc, p, cmp.Or(epoch, doc.Epoch))
}

// mistake is a Mistake for scripts.
type mistake struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Path   string `json:"path"`
	Text   string `json:"text"`
}

func (a *app) pipelineLint(c *cli.Context) error {
	file, err := oneArg(c, "file")
	if err != nil {
		return err
	}
	text, err := readSpec(file)
	if err != nil {
		return err
	}
	found := []mistake{}
	env := spec.Env{Logger: slog.New(slog.DiscardHandler), Lookup: os.LookupEnv}
	doc, err := spec.Parse(file, text, env)
	if err == nil {
		err = spec.Lint(doc, adapters.Specs(a.adapters, doc), env)
	}
	var ms spec.Mistakes
	if err != nil && !errors.As(err, &ms) {
		return err
	}
	for _, m := range ms {
		found = append(found, mistake{m.File, m.At.Line, m.At.Column, m.Path, m.Text})
	}
	if len(found) == 0 && forPeople(c) {
		fmt.Fprintf(a.out, "%s is fine: pipeline %s\n", file, doc.Pipeline.Value)
		return nil
	}
	err = a.show(c, map[string]any{"mistakes": found}, func() [][]string {
		rows := [][]string{{"LINE", "FIELD", "MISTAKE"}}
		for _, m := range found {
			rows = append(rows, []string{fmt.Sprintf("%d:%d", m.Line, m.Column), dash(m.Path), m.Text})
		}
		return rows
	})
	if err != nil || len(found) == 0 {
		return err
	}
	if doc == nil {
		a.note(c, "Expressions and the settings of adapters are looked at once these are mended.")
	}
	return failf(CodeUnhealthy, "%s has %s", file, plural.Of(len(found), "mistake"))
}

func (a *app) pipelineExplain(c *cli.Context) error {
	file, err := oneArg(c, "file")
	if err != nil {
		return err
	}
	text, err := readSpec(file)
	if err != nil {
		return err
	}
	env := spec.Env{Logger: slog.New(slog.DiscardHandler), Lookup: os.LookupEnv}
	doc, err := spec.Parse(file, text, env)
	if err != nil {
		return err
	}
	out, err := spec.Explain(doc, adapters.Specs(a.adapters, doc))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.out, plainLines(strings.TrimRight(out, "\n")))
	return err
}

func (a *app) pipelineSchema(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.out, strings.TrimRight(string(spec.Schema(adapters.Specs(a.adapters, nil))), "\n"))
	return err
}
