package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// The scripts are what a user types and sees. They start real processes and are left out of -short.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireUniqueNames:  true,
		RequireExplicitExec: false,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "freeport": freePort, "mute": mute, "waitfor": waitFor, "eventually": eventually,
			"shape": shape, "mktopic": makeTopic, "produce": produce, "oneline": oneLine, "soon": soon, "capture": capture, "helps": helps,
			"example": example, "put": put, "rmtopic": removeTopic, "pgserver": pgServer, "sql": runSQL,
			"pgkill": pgKill, "pgstart": pgStart,
			"plant": plant, "hides": hides, "hidden": hidden, "get": get,
		},
		Setup: func(e *testscript.Env) error {
			// The environment is the script's own; nothing of the caller's is in it.
			e.Setenv("UNISINK_LOG_LEVEL", "error")
			e.Values[postgresServers{}] = map[string]*services.PostgresServer{}
			e.Setenv("FIRST", strconv.FormatInt(firstOrder, 10))
			e.Setenv("SOON", strconv.FormatInt(firstOrder+10_500, 10)) // in no window before order 1000 fires
			unknown, err := participant.NewTxnID()                     // nobody uses it
			if err != nil {
				return err
			}
			e.Setenv("UNKNOWN", unknown)
			examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
			e.Setenv("EXAMPLES", examples)
			if err != nil {
				return err
			}
			return nil
		},
	})
}

// exits CODE COMMAND...: the command ends with just that code, and with one sentence for a failure.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := run(ts, args[1:])
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
	if want != 0 {
		oneLine(ts, false, nil)
	}
}

func run(ts *testscript.TestScript, args []string) int {
	err := ts.Exec(args[0], args[1:]...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	if exit != nil {
		return exit.ExitCode()
	}
	return 0
}

// oneLine: the last command's standard error is one sentence without the innards of a library.
func oneLine(ts *testscript.TestScript, _ bool, _ []string) {
	text := ts.ReadFile("stderr")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "unisink: ") {
		ts.Fatalf("standard error is not one sentence:\n%s", text)
	}
	if m := innards.FindString(text); m != "" {
		ts.Fatalf("the sentence shows %q:\n%s", m, text)
	}
}

// soon SECONDS COMMAND...: like the command, and within that time.
func soon(ts *testscript.TestScript, _ bool, args []string) {
	limit, err := strconv.ParseFloat(args[0], 64)
	ts.Check(err)
	began := time.Now()
	exits(ts, false, args[1:])
	if took := time.Since(began); took.Seconds() > limit {
		ts.Fatalf("it took %s, more than %v s", took, limit)
	}
}

// freePort VAR...: each variable becomes an address where nobody listens, VAR_PORT its port.
func freePort(ts *testscript.TestScript, _ bool, args []string) {
	for _, v := range args {
		addr, err := freeport.Loopback()
		ts.Check(err)
		_, port, err := net.SplitHostPort(addr)
		ts.Check(err)
		ts.Setenv(v, addr)
		ts.Setenv(v+"_PORT", port)
	}
}

const patience = 30 * time.Second

// waitFor ADDRESS...: until somebody listens there.
func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	for _, addr := range args {
		poll(ts, "somebody listens at "+addr, func() bool {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return false
			}
			ts.Check(conn.Close())
			return true
		})
	}
}

// capture VAR REGEXP: the variable becomes what the last output has in the expression's parentheses.
func capture(ts *testscript.TestScript, _ bool, args []string) {
	m := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) != 2 {
		ts.Fatalf("no match for %s", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// mute VARIABLE: the variable names an address that takes connections and never answers.
func mute(ts *testscript.TestScript, _ bool, args []string) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() }) // nobody waits for it
	ts.Setenv(args[0], l.Addr().String())
}

// eventually REGEXP COMMAND...: the command is run until its output matches, on either stream.
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	re, err := regexp.Compile(args[0])
	ts.Check(err)
	poll(ts, "the output matches "+args[0], func() bool {
		run(ts, args[1:])
		return re.MatchString(ts.ReadFile("stdout") + ts.ReadFile("stderr"))
	})
}

func poll(ts *testscript.TestScript, what string, holds func() bool) {
	end := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(end) {
			ts.Fatalf("waited %s in vain until %s", patience, what)
		}
		<-tick.C
	}
}

// shape prints which fields the JSON on standard output has, and of which kind: what scripts of
// users rest on, whatever the values are.
func shape(ts *testscript.TestScript, _ bool, _ []string) {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &v))
	paths := map[string]bool{}
	walk("", v, paths)
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		_, err := io.WriteString(ts.Stdout(), p+"\n")
		ts.Check(err)
	}
}

func walk(at string, v any, paths map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			walk(at+"."+k, x, paths)
		}
	case []any:
		for _, x := range v {
			walk(at+"[]", x, paths)
		}
		if len(v) == 0 {
			paths[at+"[] (empty)"] = true
		}
	default:
		paths[fmt.Sprintf("%s %s", at, kind(v))] = true
	}
}

func kind(v any) string {
	switch v.(type) {
	case string:
		return "text"
	case float64:
		return "number"
	case bool:
		return "bool"
	default:
		return "null"
	}
}

// makeTopic BROKER PARTITIONS TOPIC...
func makeTopic(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	withAdmin(ts, args[0], func(ctx context.Context, a *kafka.Admin) {
		for _, topic := range args[2:] {
			ts.Check(a.CreateTopic(ctx, topic, n, nil))
		}
	})
}

// rmtopic BROKER TOPIC: with all that was in it.
func removeTopic(ts *testscript.TestScript, _ bool, args []string) {
	withAdmin(ts, args[0], func(ctx context.Context, a *kafka.Admin) { ts.Check(a.DeleteTopic(ctx, args[1])) })
}

// produce BROKER TOPIC FROM TO: orders of ten customers by number, 100 to a second of event time.
func produce(ts *testscript.TestScript, _ bool, args []string) {
	from, err := strconv.Atoi(args[2])
	ts.Check(err)
	to, err := strconv.Atoi(args[3])
	ts.Check(err)
	withAdmin(ts, args[0], func(ctx context.Context, a *kafka.Admin) { ts.Check(a.Produce(ctx, args[1], fixedOrders(from, to))) })
}

// firstOrder is a while ago, within any topic's retention.
var firstOrder = time.Now().Truncate(time.Hour).Add(-time.Hour).UnixMilli()

// fixedOrders are the same on every run but for the hour: from and to count orders, 10 ms of event
// time each.
func fixedOrders(from, to int) []stream.Record {
	var out []stream.Record
	for i := from; i < to; i++ {
		customer := fmt.Sprintf("c-%02d", i%10)
		at := firstOrder + int64(10*i)
		out = append(out, stream.Record{
			Key: []byte(customer), Time: at,
			Value: fmt.Appendf(nil, `{"order":"o-%07d","customer":%q,"cents":%d,"at":%d}`, i, customer, 100+i%77, at),
		})
	}
	return out
}

// put BROKER TOPIC KEY VALUE...: one record for each value, as it stands; \n in it is a line break.
func put(ts *testscript.TestScript, _ bool, args []string) {
	var out []stream.Record
	for _, v := range args[3:] {
		out = append(out, stream.Record{Key: []byte(args[2]), Value: []byte(strings.ReplaceAll(v, `\n`, "\n")), Time: firstOrder})
	}
	withAdmin(ts, args[0], func(ctx context.Context, a *kafka.Admin) { ts.Check(a.Produce(ctx, args[1], out)) })
}

// example NAME: builds examples/NAME into the script's directory.
func example(ts *testscript.TestScript, _ bool, args []string) {
	build := exec.Command("go", "build", "-o", ts.MkAbs(args[0]), "./examples/"+args[0])
	build.Dir = filepath.Join("..", "..")
	if text, err := build.CombinedOutput(); err != nil {
		ts.Fatalf("%v: %s", err, text)
	}
}

func withAdmin(ts *testscript.TestScript, broker string, f func(context.Context, *kafka.Admin)) {
	a, err := kafka.NewAdmin(kafka.AdminConfig{Brokers: []string{broker}})
	ts.Check(err)
	defer a.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f(ctx, a)
}

// innards of libraries and of Go that a person need not read.
var innards = regexp.MustCompile(`rpc error|desc = |&\{|0x[0-9a-f]{6}|\*[a-z]+\.[A-Z]|%!|<nil>|goroutine `)

// helps: --help of every command and verb, found by reading the help above it.
func helps(ts *testscript.TestScript, _ bool, _ []string) {
	seen := 0
	var visit func(path []string)
	visit = func(path []string) {
		if code := run(ts, append(slices.Clone(path), "--help")); code != 0 {
			ts.Fatalf("%v --help: exit code %d", path, code)
		}
		text, errs := ts.ReadFile("stdout"), ts.ReadFile("stderr")
		if errs != "" || !strings.Contains(text, strings.Join(path, " ")) || strings.Contains(text, "help, h") {
			ts.Fatalf("%v --help:\n%s%s", path, text, errs)
		}
		seen++
		_, commands, _ := strings.Cut(text, "COMMANDS:\n")
		commands, _, _ = strings.Cut(commands, "\n\n")
		for _, line := range strings.Split(commands, "\n") {
			if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name != "" {
				visit(append(slices.Clone(path), name))
			}
		}
	}
	visit([]string{"unisink"})
	if seen < 25 {
		ts.Fatalf("only %d pages of help", seen)
	}
}
