package app

import (
	"regexp"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"
)

var (
	// A list's flag is named twice by the library; its text says that it may be given several times.
	namedTwice = regexp.MustCompile(` \[ --.*? \]`)
	// What is nothing unless it is set needs no default, or has one that its text names.
	noDefault = regexp.MustCompile(` \(default: (false|0|0s)\)`)
)

// plainHelp lets the pages of help leave out what tells nobody anything. The library has one function for
// all of a process.
var plainHelp = sync.OnceFunc(func() {
	library := cli.FlagStringer
	cli.FlagStringer = func(f cli.Flag) string { return plainFlag(library(f)) }
})

// forExample stands below what a command's help says of it.
func forExample(lines ...string) string { return "\n\nFor example:\n  " + strings.Join(lines, "\n  ") }

func plainFlag(text string) string {
	return noDefault.ReplaceAllString(namedTwice.ReplaceAllString(text, ""), "")
}
