package round

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the orders in testdata/*.txt")

// play runs a scenario file: commands, a line "----", the orders they led to, an empty line, and so
// on. It returns the file as it should be.
func play(source string, off guards) (string, error) {
	s := &script{off: off}
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(source), "\n\n") {
		commands, _, _ := strings.Cut(block, "\n----")
		var orders strings.Builder
		says := false
		for line := range strings.SplitSeq(commands, "\n") {
			fmt.Fprintln(&out, line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			says = true
			text, err := s.run(line)
			if err != nil {
				return "", fmt.Errorf("%q: %w", line, err)
			}
			orders.WriteString(text)
		}
		if says {
			fmt.Fprintf(&out, "----\n%s", orders.String())
		}
		fmt.Fprintln(&out)
	}
	return strings.TrimSpace(out.String()) + "\n", nil
}

// TestScenario runs every golden script. A file named P8-something.txt is the scenario of row P8.
func TestScenario(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		name := strings.Replace(strings.TrimSuffix(filepath.Base(file), ".txt"), "-", "/", 1)
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := play(string(want), switchedOff())
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s: other orders than written there.\n%s", file, difference(string(want), got))
			}
		})
	}
}

// difference shows the first line that differs, with what stands before it.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		a, b := "(nothing)", "(nothing)"
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\nwritten: %s\nhappened: %s", i+1, a, b)
		}
	}
	return ""
}
