package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A pipeline is killed with -9 again and again while records come in and epochs of a fiftieth of a second are prepared,
// decided and finished in two sinks; at the end each record is in both once, in order, and nothing is staged.
func TestAPipelineThatIsKilledAgainAndAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	l := newLab(t)
	l.start("serve", "--node", "n1", "--data", "n1", "--client", l.client, "--raft", l.raft)
	l.until("the group", func() bool { return l.run("cluster", "bootstrap", "demo", "--node", "n1="+l.raft+","+l.client) })
	l.write("orders.yaml", `pipeline: orders
epoch: 20ms
source:
  name: in
  file: {dir: in, follow: true, poll_every: 5ms}
sinks:
- {name: table, sqlite: {path: orders.db, table: orders}}
- {name: files, file: {dir: out}}
`)
	if err := os.Mkdir(filepath.Join(l.dir, "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	var want []string
	more := func(n int) { // a file is whole when it appears
		var lines strings.Builder
		for range n {
			want = append(want, fmt.Sprintf(`{"order":%d}`, len(want)))
			lines.WriteString(want[len(want)-1] + "\n")
		}
		l.write("next", lines.String())
		if err := os.Rename(filepath.Join(l.dir, "next"), filepath.Join(l.dir, "in", fmt.Sprintf("%06d.jsonl", len(want)))); err != nil {
			t.Fatal(err)
		}
	}
	const kills = 4
	for range kills {
		p := l.start("run", "orders.yaml")
		begun := len(l.rows())
		more(3)
		l.until("new rows", func() bool { more(1); return len(l.rows()) >= begun+20 })
		more(3) // and it is killed with something under way
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait() // killed
	}
	l.start("run", "orders.yaml")
	l.until("all rows", func() bool { return len(l.rows()) >= len(want) })
	if !l.run("pipeline", "stop", "orders", "--timeout", "30s") {
		t.Fatal("the pipeline does not stop")
	}
	if got := l.rows(); !slices.Equal(got, want) {
		t.Errorf("the table has %d rows, in order or not; want %d: %q", len(got), len(want), got)
	}
	slices.Sort(want)
	if got := l.published(); !slices.Equal(got, want) {
		t.Errorf("the directory has %d lines, want %d", len(got), len(want))
	}
	if n := l.staged(); n != 0 {
		t.Errorf("%d rows are left staged", n)
	}
}

// lab is a directory with a coordinator's addresses.
type lab struct {
	*testing.T
	dir, client, raft string
	sink              *Sink
}

func newLab(t *testing.T) *lab {
	l := &lab{T: t, dir: t.TempDir(), client: free(t), raft: free(t)}
	var err error
	if l.sink, err = NewSink(filepath.Join(l.dir, "orders.db"), "orders"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.sink.Close() }) // it was only read
	return l
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (l *lab) write(name, text string) {
	l.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
		l.Fatal(err)
	}
}

func (l *lab) command(args ...string) *exec.Cmd {
	c := exec.Command("sink-sqlite", args...)
	c.Dir = l.dir
	c.Env = append(os.Environ(), "UNISINK_COORDINATORS="+l.client, "UNISINK_LOG_LEVEL=error")
	return c
}

// start runs a command beside the test, until it is killed or the test is over.
func (l *lab) start(args ...string) *exec.Cmd {
	l.Helper()
	c := l.command(args...)
	c.Stderr = os.Stderr // what goes wrong
	if err := c.Start(); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		_ = c.Process.Kill() // it may be over
		_ = c.Wait()
	})
	return c
}

func (l *lab) run(args ...string) bool { return l.command(args...).Run() == nil }

func (l *lab) until(what string, holds func() bool) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			l.Fatalf("waited in vain for %s: %v", what, ctx.Err())
		}
	}
}

// rows are the table's, in the order in which they were committed.
func (l *lab) rows() []string {
	l.Helper()
	if _, err := l.sink.Describe(l.Context()); err != nil {
		l.Fatal(err)
	}
	var all string
	if err := l.sink.db.QueryRowContext(l.Context(), "SELECT coalesce(group_concat(value, char(10) ORDER BY rowid), '') FROM orders").Scan(&all); err != nil {
		l.Fatal(err)
	}
	return strings.Fields(all)
}

func (l *lab) staged() (n int) {
	l.Helper()
	if err := l.sink.db.QueryRowContext(l.Context(), "SELECT count(*) FROM unisink_staged").Scan(&n); err != nil {
		l.Fatal(err)
	}
	return n
}

// published are the lines in the directory, sorted.
func (l *lab) published() []string {
	l.Helper()
	names, err := filepath.Glob(filepath.Join(l.dir, "out", "*.jsonl"))
	if err != nil {
		l.Fatal(err)
	}
	var out []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			l.Fatal(err)
		}
		out = append(out, strings.Fields(string(text))...)
	}
	slices.Sort(out)
	return out
}
