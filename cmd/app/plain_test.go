package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// forged is a reason that would clear the screen, paint a row of its own, go back over what stands before it and turn
// the rest around.
const forged = "done\x1b[2J\n2  ann  resume  orders  orders/0  all is well\r\x07\u009b31m\u202etxt\xff\x7f"

// What others have written cannot be more than a text in a table, an error, or JSON.
func TestATextOfOthersSteersNoTerminal(t *testing.T) {
	act := &unisinkv1.Act{N: 1, Actor: "bob", Kind: "resume", What: "orders/0", Why: strings.ToValidUTF8(forged, "")}
	outputs := map[string]string{
		"table":          shown(t, "table", nil, func() [][]string { return actRows([]*unisinkv1.Act{act}) }),
		"json":           shown(t, "json", act),
		"jsonl":          shown(t, "jsonl", act),
		"json of no msg": shown(t, "json", map[string]string{"why": act.GetWhy()}),
		"error":          sentence(fmt.Errorf("scope is halted: %w", errors.New(forged))) + "\n",
	}
	lines := map[string]int{"table": 2, "jsonl": 1, "error": 1}
	for name, out := range outputs {
		for _, r := range out {
			if r != '\n' && !unicode.IsGraphic(r) {
				t.Errorf("%s: %q goes to the terminal in %q", name, r, out)
				break
			}
		}
		if want, bounded := lines[name]; bounded && strings.Count(out, "\n") != want {
			t.Errorf("%s: %d lines, want %d: %q", name, strings.Count(out, "\n"), want, out)
		}
	}
	for _, name := range []string{"json", "jsonl"} {
		var back struct{ Why string }
		if err := json.Unmarshal([]byte(outputs[name]), &back); err != nil || back.Why != act.GetWhy() {
			t.Errorf("%s: it reads %q, %v", name, back.Why, err)
		}
	}
}

func TestPlainKeepsWhatPeopleWrite(t *testing.T) {
	for _, text := range []string{"", "längere Überschrift — ready", "日本語", "a\u00a0b 🙂", `back\slash "quoted"`} {
		if got := plain(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if got, want := plain("a\tb\n\x1b\xff\u202e"), `a\tb\n\x1b\xff\u202e`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := plainLines("a\nb\x1b"), "a\nb\\x1b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
