package ledger

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden scenarios")

// Each file in testdata is a scenario: blocks of lines, "----", and what they answer. Its name is
// the row of failures.md that it guards, or the rule, then a dash and the story.
func TestScenario(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		row, story, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".txt"), "-")
		t.Run(row+"/"+story, func(t *testing.T) { runScenario(t, file) })
	}
}

func runScenario(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := newScript(t)
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimSpace(string(raw)), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		input, _, _ := strings.Cut(block, "\n----")
		out.WriteString(input + "\n")
		if comment(input) {
			continue
		}
		out.WriteString("----\n")
		for line := range strings.Lines(input) {
			if line = strings.TrimSpace(line); !comment(line) {
				out.WriteString(p.run(line))
			}
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, want := out.String(), string(raw); got != want {
		t.Errorf("%s answers otherwise (go test -run TestScenario -update rewrites it):\n%s", file, firstDifference(got, want))
	}
}

func comment(s string) bool {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		var a, b string
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			return "got  " + a + "\nwant " + b
		}
	}
	return ""
}
