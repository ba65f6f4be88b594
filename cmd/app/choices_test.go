package app

import (
	"regexp"
	"strings"
	"testing"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// What a person is told to type in the night must be what the commands take.
func TestWhatAPersonIsToldToTypeIsWhatTheCommandsTake(t *testing.T) {
	scope := &unisinkv1.Scope{Pipeline: "orders"}
	var told []string
	for _, x := range []*unisinkv1.Transaction{
		{Txn: "orders/0@7.12", Scope: scope, Heuristic: "lost"},
		{Txn: "01", Heuristic: "lost"},
		{Txn: "01", Outcome: unisinkv1.Outcome_OUTCOME_PENDING},
	} {
		told = append(told, choices(x)...)
	}
	root := (&app{}).root()
	seen := 0
	for _, line := range regexp.MustCompile("unisink [^`\n]*").FindAllString(strings.Join(told, "\n"), -1) {
		seen++
		line, _, _ = strings.Cut(line, "  ") // what it does stands behind
		cmd, words := commandOf(root, strings.Fields(line)[1:])
		if cmd == nil {
			t.Errorf("%q is no command", line)
			continue
		}
		flags := flagsByName(cmd.Flags)
		var given, bare []string
		for i := 0; i < len(words); i++ {
			name, isFlag := strings.CutPrefix(words[i], "--")
			switch {
			case !isFlag:
				bare = append(bare, words[i])
			case flags[name] == nil:
				t.Errorf("%q: there is no flag %s", line, words[i])
			default:
				given = append(given, name)
				if !isBool(flags[name]) {
					i++
				}
			}
		}
		if len(bare) != 1 {
			t.Errorf("%q has the arguments %q, and %s takes one", line, bare, cmd.Name)
		}
		if cmd.Name == "rewind" && strings.Join(given, " ") != "to why yes" {
			t.Errorf("%q does nothing but show", line)
		}
	}
	if seen < 5 {
		t.Errorf("only %d commands were looked at: %q", seen, told)
	}
}
