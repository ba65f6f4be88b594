package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/cmd/skeleton"
)

func (a *app) adapter() *cli.Command {
	return group("adapter", "write a sink of your own",
		&cli.Command{
			Name: "new", Usage: "lay the skeleton of an adapter, with its test", ArgsUsage: "NAME",
			Description: "NAME is what pipelines' files will say: small letters and digits. What is laid works in memory and passes\n" +
				"the conformance kit; it becomes an adapter piece by piece. docs/adapters.md tells the way." +
				forExample("unisink adapter new shop --four"),
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "dir", Usage: "`DIR` to lay it in, which is made; default NAME"},
				&cli.StringFlag{Name: "module", Usage: "`PATH` of the new Go module; default NAME"},
				&cli.BoolFlag{Name: "four", Usage: "four functions (begin, pre-commit, commit, abort), for a service that can reserve, confirm and cancel"},
				&cli.StringFlag{Name: "source", Usage: "`DIR` of a checkout of unisink to build with; default its release"},
			},
			Action: a.adapterNew,
		},
	)
}

func (a *app) adapterNew(c *cli.Context) error {
	name, err := oneArg(c, "adapter")
	if err != nil {
		return err
	}
	release, _, _ := strings.Cut(version, "-")
	p := skeleton.Plan{Name: name, Dir: c.String("dir"), Module: c.String("module"), Four: c.Bool("four"), Version: "v" + release}
	if p.Dir == "" {
		p.Dir = name
	}
	if p.Module == "" {
		p.Module = name
	}
	if source := c.String("source"); source != "" {
		if p.Source, err = filepath.Abs(source); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(p.Source, "go.mod")); errors.Is(err, fs.ErrNotExist) {
			return failf(CodeNotFound, "--source %s is no checkout of unisink: it has no go.mod", source)
		}
	}
	names, err := skeleton.Lay(p)
	if errors.Is(err, skeleton.ErrRefused) {
		return failf(CodeUsage, "%w", err)
	}
	if err != nil {
		return err
	}
	if err := a.show(c, map[string]any{"dir": p.Dir, "files": names}, func() [][]string {
		return [][]string{{"DIRECTORY", "FILES"}, {p.Dir, strings.Join(names, ", ")}}
	}); err != nil {
		return err
	}
	a.note(c, fmt.Sprintf(`Next: cd %s && go mod tidy && go test ./...
That is green: it works in memory. In adapter.go put your own calls where a comment says "outside", one by one, and
keep it green. Then: go build && ./%s pipeline lint pipeline.yaml`, p.Dir, filepath.Base(p.Module)))
	return nil
}
