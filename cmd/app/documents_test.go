package app

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// Commands as documents show them: quoted in a text, and at the beginning of a line of code.
var (
	quoted = regexp.MustCompile("`(?:bin/)?unisink ([a-z][^`#|&>]*)")
	inCode = regexp.MustCompile("^ *(?:[$] )?(?:bin/)?unisink ([a-z][^`#|&>]*)")
)

// typed are the commands that a document shows, without the program's name.
func typed(text string) (all []string) {
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		of := quoted
		if fenced || strings.HasPrefix(line, "    ") {
			of = inCode
		}
		for _, m := range of.FindAllStringSubmatch(line, -1) {
			command, _, _ := strings.Cut(m[1], "  ") // what it does stands behind
			all = append(all, strings.NewReplacer("[", " ", "]", " ", `"`, "", "'", "").Replace(command))
		}
	}
	return all
}

// commandOf follows a command line to its command, and returns what stands behind it.
func commandOf(root *cli.App, words []string) (cmd *cli.Command, left []string) {
	commands := root.Commands
	for len(words) > 0 {
		next := find(commands, words[0])
		if next == nil {
			break
		}
		cmd, commands, words = next, next.Subcommands, words[1:]
	}
	if len(commands) > 0 && !(cmd != nil && cmd.Name == "run") {
		return nil, words
	}
	return cmd, words
}

// wrongFlags are those of a command line that its command does not take.
func wrongFlags(root *cli.App, cmd *cli.Command, words []string) (wrong []string) {
	local, global := flagsByName(cmd.Flags), flagsByName(root.Flags)
	for _, w := range words {
		if !strings.HasPrefix(w, "-") || strings.Trim(w, "-") == "" {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
		if local[name] == nil && global[name] == nil && name != "help" {
			wrong = append(wrong, w)
		}
	}
	return wrong
}

func TestEveryCommandInTheDocumentsIsOne(t *testing.T) {
	root := (&app{pipelines: []Pipeline{OrdersPipeline()}}).root()
	documents, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range append(documents, filepath.Join("..", "..", "README.md")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range typed(string(text)) {
			cmd, words := commandOf(root, strings.Fields(line))
			if cmd == nil {
				t.Errorf("%s: `unisink %s` is no command", filepath.Base(name), line)
				continue
			}
			seen++
			if wrong := wrongFlags(root, cmd, words); len(wrong) > 0 {
				t.Errorf("%s: `unisink %s`: there is no flag %s", filepath.Base(name), line, strings.Join(wrong, ", "))
			}
		}
	}
	if seen < 80 {
		t.Errorf("only %d commands were looked at", seen)
	}
}

// The table of commands in the README has a row, or a part of one, for each that is not hidden.
func TestTheReadmeListsEveryCommand(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `unisink ") {
			command, _, _ := strings.Cut(line[2:], " | ")
			rows = append(rows, command)
		}
	}
	listed := func(group, verb string) bool {
		for _, row := range rows {
			if !strings.HasPrefix(row, "`unisink "+group) && !strings.Contains(row, "`"+group+" ") {
				continue
			}
			if verb == "" || strings.Contains(row, "`"+verb+"`") || strings.Contains(row, group+" "+verb+"`") {
				return true
			}
		}
		return false
	}
	for _, g := range (&app{}).root().Commands {
		if len(g.Subcommands) == 0 && !listed(g.Name, "") {
			t.Errorf("`unisink %s` is not listed", g.Name)
		}
		for _, verb := range g.Subcommands {
			if !verb.Hidden && !listed(g.Name, verb.Name) {
				t.Errorf("`unisink %s %s` is not listed", g.Name, verb.Name)
			}
		}
	}
}
