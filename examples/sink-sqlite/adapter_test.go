package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
)

var (
	_ processor.Sink   = (*Sink)(nil)
	_ processor.Writer = (*branch)(nil)
)

func TestMain(m *testing.M) {
	// The kit starts this test again, as a process that it kills.
	participanttest.Child(func(_ testing.TB, world string) participanttest.Target { return target(world) })
	testscript.Main(m, map[string]func(){"sink-sqlite": func() { os.Exit(run()) }, "rows": rows})
}

// rows FILE prints the values in the table orders, and how many rows are staged.
func rows() {
	s, err := NewSink(os.Args[1], "orders")
	if err == nil {
		err = print(s)
	}
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

func print(s *Sink) error {
	defer s.Close()
	if _, err := s.Describe(context.Background()); err != nil {
		return err
	}
	var values, staged string
	err := s.db.QueryRow("SELECT coalesce(group_concat(value, char(10)), '') FROM orders").Scan(&values)
	if err == nil {
		err = s.db.QueryRow("SELECT count(*) || ' staged' FROM unisink_staged").Scan(&staged)
	}
	os.Stdout.WriteString(values + "\n" + staged + "\n")
	return err
}

func TestSQLiteConforms(t *testing.T) {
	cert := participanttest.Run(t, participanttest.Kit{New: func(t testing.TB) participanttest.Target {
		return target(filepath.Join(t.TempDir(), "test.db"))
	}})
	if killed := "a process killed at any point loses nothing"; !t.Failed() && !cert.Certifies(killed) {
		t.Errorf("not certified: %s", killed)
	}
}

// target is the table out of the database at a path.
func target(path string) participanttest.Target {
	open := func(t testing.TB) *Sink {
		s, err := NewSink(path, "out")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return participanttest.Target{
		World:   path,
		Process: func(t testing.TB) participant.Resource { return open(t) },
		Write: func(t testing.TB, b participant.Branch, record string) {
			if err := b.(processor.Writer).Write(t.Context(), []stream.Record{{Value: []byte(record)}}); err != nil {
				t.Fatal(err)
			}
		},
		Read: func(t testing.TB) []string {
			s := open(t)
			defer s.Close()
			if _, err := s.Describe(t.Context()); err != nil { // makes the table
				t.Fatal(err)
			}
			var all string
			if err := s.db.QueryRowContext(t.Context(), "SELECT coalesce(group_concat(value, char(10)), '') FROM out").Scan(&all); err != nil {
				t.Fatal(err)
			}
			return strings.Fields(all)
		},
	}
}

// What the documentation says of it; comments and empty lines are not counted.
func TestTheAdapterIsShorterThan200Lines(t *testing.T) {
	text, err := os.ReadFile("adapter.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(regexp.MustCompile(`(?m)^\s*[^\s/].*$`).FindAllString(string(text), -1)); n >= 200 {
		t.Fatalf("adapter.go has %d lines of code", n)
	}
}

// A pipeline's file names the table, its process is killed, and everything is there once.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"until": until},
		Setup: func(e *testscript.Env) error {
			for _, v := range []string{"CLIENT", "RAFT"} {
				l, err := net.Listen("tcp", "127.0.0.1:0") // a port that nobody uses now
				if err != nil {
					return err
				}
				e.Setenv(v, l.Addr().String())
				if err := l.Close(); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// until TEXT COMMAND...: repeats a command until its output has the text.
func until(ts *testscript.TestScript, _ bool, args []string) {
	end, tick := time.Now().Add(30*time.Second), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for {
		_ = ts.Exec(args[1], args[2:]...) // what it prints is looked at
		if strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%q never came; the last output:\n%s%s", args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
		<-tick.C
	}
}
