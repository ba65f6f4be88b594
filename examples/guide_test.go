package examples_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// block is a fenced block of a page: its language, what stands behind that, its text, and the section that it is in.
type block struct {
	language, what, text, section string
	line                          int
}

func blocks(t *testing.T, page string) []block {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var out []block
	var now *block
	number, section := 0, ""
	for line := range strings.Lines(string(text)) {
		number++
		fence, found := strings.CutPrefix(line, "```")
		switch {
		case found && now == nil:
			language, what, _ := strings.Cut(strings.TrimSpace(fence), " ")
			now = &block{language: language, what: what, section: section, line: number}
		case found:
			out = append(out, *now)
			now = nil
		case now != nil:
			now.text += line
		case strings.HasPrefix(line, "## "):
			section = line
		}
	}
	if now != nil {
		t.Fatalf("%s:%d: the block does not end", page, now.line)
	}
	return out
}

// session is the page as one script: what a reader would type and save, in this order. Each section begins where
// the page does. Blocks of one file that follow each other become one file.
func session(t *testing.T, all []block) (script string, runs map[int][]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("set -euo pipefail\nBEGAN=$PWD\n")
	runs = map[int][]string{}
	last, fresh, section := 0, map[string]bool{}, ""
	for _, x := range all {
		if x.section != section {
			section = x.section
			b.WriteString("cd \"$BEGAN\"\n")
		}
		switch {
		case x.language == "sh" && x.what == "run":
			last = x.line
			fmt.Fprintf(&b, "echo '@@%d'\n%s", x.line, x.text)
			clear(fresh)
		case x.language == "text" && x.what == "output":
			if last == 0 {
				t.Errorf("line %d: output of nothing", x.line)
			}
			runs[last] = strings.Split(strings.TrimSpace(x.text), "\n")
		case x.what != "":
			sign := ">"
			if fresh[x.what] {
				sign = ">>"
				b.WriteString("echo >> " + x.what + "\n")
			}
			fresh[x.what] = true
			fmt.Fprintf(&b, "cat %s %s <<'END_OF_BLOCK'\n%sEND_OF_BLOCK\n", sign, x.what, x.text)
		}
	}
	return b.String(), runs
}

// The guide cannot rot: its commands are run and its files compiled as they stand, and what it shows as output
// is what comes out. Wants the network once, for the driver of SQLite.
func TestTheGuideForAdaptersRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	script, runs := session(t, blocks(t, filepath.Join(root, "docs", "adapters.md")))
	if len(runs) < 4 {
		t.Fatalf("the guide shows the output of %d commands", len(runs))
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "./cmd/unisink")
	build.Dir = root
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "UNISINK="+root, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "GOWORK=off")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	for line, want := range runs {
		_, said, found := strings.Cut(stdout.String(), fmt.Sprintf("@@%d\n", line))
		said, _, _ = strings.Cut(said, "@@")
		for _, w := range want {
			if !found || !strings.Contains(said, w) {
				t.Errorf("docs/adapters.md:%d: %q is not in the output:\n%s", line, w, said)
			}
		}
	}
}

// What the guide shows of the examples is what stands in them.
func TestTheGuideShowsTheExamples(t *testing.T) {
	shown := map[string]string{}
	section := ""
	for _, x := range blocks(t, filepath.Join("..", "docs", "adapters.md")) {
		if x.language == "sh" && strings.Contains(x.text, "adapter new ") {
			section = "sink-http"
			if !strings.Contains(x.text, "--four") {
				section = "sink-sqlite"
			}
		}
		if x.what == "adapter.go" || x.what == "settings.go" {
			name := filepath.Join(section, x.what)
			if shown[name] != "" {
				shown[name] += "\n"
			}
			shown[name] += x.text
		}
	}
	if len(shown) != 4 {
		t.Fatalf("the guide shows %d files", len(shown))
	}
	for name, text := range shown {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(file) != text {
			t.Errorf("examples/%s is not what docs/adapters.md shows; make them the same", name)
		}
	}
}
