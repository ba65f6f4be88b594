package app

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/participant/route"
)

// own is the name of the binary in the texts of this package, and of those that refuse what it asks.
const own = "unisink"

// nameOf is the name by which a binary was called: one that is built with adapters of its own has another.
func nameOf(args []string) string {
	if len(args) == 0 {
		return own
	}
	name := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	if name == "." || name == string(filepath.Separator) {
		return own
	}
	return name
}

// named puts the binary's name into the commands that a text names, within a sentence or on lines of their own.
func (a *app) named(text string) string {
	if a.name == own || a.name == "" {
		return text
	}
	return strings.NewReplacer("`"+own+" ", "`"+a.name+" ", "\n  "+own+" ", "\n  "+a.name+" ").Replace(text)
}

// nameIn lets a command, and those below it, speak of the binary by its name.
func (a *app) nameIn(cmd *cli.Command) {
	cmd.Usage, cmd.Description = a.named(cmd.Usage), a.named(cmd.Description)
	if rest, found := strings.CutPrefix(cmd.UsageText, own+" "); found {
		cmd.UsageText = a.name + " " + rest
	}
	for _, f := range cmd.Flags {
		a.nameInFlag(f)
	}
	for _, sub := range cmd.Subcommands {
		a.nameIn(sub)
	}
}

func (a *app) nameInFlag(f cli.Flag) {
	switch f := f.(type) {
	case *cli.StringFlag:
		f.Usage = a.named(f.Usage)
	case *cli.StringSliceFlag:
		f.Usage = a.named(f.Usage)
	case *cli.BoolFlag:
		f.Usage = a.named(f.Usage)
	case *cli.DurationFlag:
		f.Usage = a.named(f.Usage)
	}
}

// distrusted adds to an error of trust the files that it is about: a client knows certificates, and a person files.
func (a *app) distrusted(err error, text string) string {
	switch {
	case errors.Is(err, route.ErrForeignNode):
		return text + "; the authorities that are trusted here are those in " + cmp.Or(a.caFile, "the file of --ca")
	case errors.Is(err, route.ErrForeignCaller):
		return text + "; the certificate that was shown is " + cmp.Or(a.certFile, "that of --cert")
	}
	return text
}
