package app

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// normalise puts each command's flags before its positional arguments, where the flag parser
// would otherwise stop looking for them ("pipeline stop orders -o json"), and lets global flags
// stand anywhere. "--" ends the flags.
func normalise(root *cli.App, args []string) ([]string, error) {
	if len(args) == 0 {
		return args, nil
	}
	global := flagsByName(root.Flags)
	var front []string // global flags
	path := []string{args[0]}
	var flags, positional []string
	commands := root.Commands
	local := map[string]cli.Flag{}
	rest := args[1:]
	for len(rest) > 0 {
		arg := rest[0]
		rest = rest[1:]
		if arg == "--" {
			positional = append(positional, rest...)
			break
		}
		if len(arg) > 1 && arg[0] == '-' {
			taken, isGlobal, err := takeFlag(arg, &rest, local, global)
			if err != nil {
				return nil, err
			}
			if isGlobal {
				front = append(front, taken...)
			} else {
				flags = append(flags, taken...)
			}
			continue
		}
		if cmd := find(commands, arg); cmd != nil && len(positional) == 0 {
			path = append(path, flags...)
			path = append(path, arg)
			flags = nil
			commands = cmd.Subcommands
			local = flagsByName(cmd.Flags)
			continue
		}
		positional = append(positional, arg)
	}
	out := append([]string{path[0]}, front...)
	out = append(out, path[1:]...)
	out = append(out, flags...)
	// With an argument the parser would look for a help topic of that name.
	if len(positional) > 0 && !slices.Contains(flags, "--help") && !slices.Contains(flags, "-h") {
		out = append(out, "--")
		out = append(out, positional...)
	}
	return out, nil
}

// takeFlag returns the flag with its value and whether it is a global one. A flag that nobody
// declared is left to the parser, which says so.
func takeFlag(arg string, rest *[]string, local, global map[string]cli.Flag) ([]string, bool, error) {
	name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	f, isGlobal := local[name], false
	if f == nil {
		f = global[name]
		isGlobal = f != nil
	}
	if f == nil || hasValue || isBool(f) {
		return []string{arg}, isGlobal, nil
	}
	if len(*rest) == 0 {
		return nil, false, usagef("the flag %s needs a value", arg)
	}
	value := (*rest)[0]
	*rest = (*rest)[1:]
	return []string{arg, value}, isGlobal, nil
}

func isBool(f cli.Flag) bool {
	_, ok := f.(*cli.BoolFlag)
	return ok
}

func flagsByName(flags []cli.Flag) map[string]cli.Flag {
	out := map[string]cli.Flag{}
	for _, f := range flags {
		for _, n := range f.Names() {
			out[n] = f
		}
	}
	return out
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// checkText refuses what no message can carry, and no log show, in the words of a person and not of the wire.
func checkText(args []string) error {
	for _, a := range args {
		if !utf8.ValidString(a) {
			return usagef("the argument %q is no UTF-8 text; type it in a terminal that writes UTF-8", a)
		}
	}
	return nil
}

// limitOf is --limit. More than the wire can say is as good as no bound.
func limitOf(c *cli.Context) uint32 { return uint32(min(c.Uint("limit"), math.MaxUint32)) }
