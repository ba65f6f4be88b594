package participanttest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/internal/plural"
	"github.com/unisink/unisink/participant"
)

// childVariable tells a test binary that it is a child, and what to do.
const childVariable = "UNISINK_CONFORMANCE_CHILD"

// script is what a child is told.
type script struct {
	World      string
	Generation uint64
	// Die names the point at which the child kills itself, and Nth which time it is there; "" nowhere.
	Die string
	Nth int
	// Finish makes it a finisher, of one handle, instead of a member.
	Finish *participant.Handle
}

// line is what a child says, one at a time. What it has said is known, however it ends.
type line struct {
	N      uint64              `json:",omitempty"` // of a vote
	Handle *participant.Handle `json:",omitempty"`
	Points []string            `json:",omitzero"` // that it came past, at its end; not nil
	Error  string              `json:",omitempty"`
}

// Child makes processes of the test binary that the kit can kill. TestMain calls it first: it returns at
// once in a test run, and in a child it plays its part and ends the process. Attach makes the target that a
// World names, for a process beside the one that made it; of the target Process or Stepped, Write and
// Points are used. What it fails with by t ends the child and the check.
//
// A child dies by SIGKILL between any two calls, at any step that Stepped tells, and at any point that
// Points tells.
func Child(attach func(t testing.TB, world string) Target) {
	told := os.Getenv(childVariable)
	if told == "" {
		return
	}
	out := os.NewFile(3, "kit")
	var s script
	err := json.Unmarshal([]byte(told), &s)
	if err == nil {
		c := &child{script: s, seen: map[string]int{}, order: []string{}, out: out}
		t := &childTB{name: childVariable}
		if err = t.run(func() error { return c.play(t, attach(t, s.World)) }); err == nil {
			err = c.say(line{Points: c.order})
		}
	}
	code := 0
	if err != nil {
		code = 1
		text, _ := json.Marshal(line{Error: err.Error()}) // a string
		_, _ = out.Write(append(text, '\n'))
	}
	os.Exit(code)
}

// child is the process that is to be killed.
type child struct {
	script
	out *os.File

	mu    sync.Mutex // guards the rest
	seen  map[string]int
	order []string // every point, each time it came past
	call  string   // that it is in
}

func (c *child) say(l line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = c.out.Write(append(text, '\n')) // one write: the ledger has it, or it has not
	return err
}

// pass is a point that the child comes past, or not.
func (c *child) pass(point string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[point]++
	c.order = append(c.order, point)
	if point == c.Die && c.seen[point] == c.Nth {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill() // not Exit: nothing of ours runs any more
		}
		if err != nil {
			os.Exit(137)
		}
		select {} // until it arrives
	}
}

func (c *child) step(step string) error {
	c.mu.Lock()
	in := c.call
	c.mu.Unlock()
	c.pass(in + ": " + step)
	return nil
}

func (c *child) play(t testing.TB, target Target) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if target.Points != nil {
		target.Points(func(point string) { _ = c.step(point) })
	}
	var r participant.Resource
	if target.Stepped != nil {
		r = target.Stepped(t, c.step)
	} else {
		r = target.Process(t)
	}
	if c.Finish != nil {
		c.call = "commit"
		err := proves(r.Commit(ctx, *c.Finish))(participant.Committed)
		return errors.Join(err, r.Close())
	}
	return life{
		r: r, generation: c.Generation,
		before: func(call string) error {
			c.mu.Lock()
			c.call = call
			c.mu.Unlock()
			c.pass("before " + call)
			return nil
		},
		after: func(call string) error { c.pass("after " + call); return nil },
		write: func(b participant.Branch, record string) error { target.Write(t, b, record); return nil },
		voted: func(n uint64, h participant.Handle) error {
			if err := c.say(line{N: n, Handle: &h}); err != nil {
				return err
			}
			c.pass("voted")
			return nil
		},
	}.run(ctx)
}

// child runs one and tells what it said. Whole: it came to its end.
func (b bench) child(s script) (l ledger, points []string, whole bool) {
	b.Helper()
	s.World = b.World
	told, err := json.Marshal(s)
	if err != nil {
		b.Fatalf("tell a child: %v", err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		b.Fatalf("start a child: %v", err)
	}
	defer func() { _ = from.Close() }()
	binary, err := os.Executable()
	if err != nil {
		b.Fatalf("start a child: %v", err)
	}
	var noise strings.Builder
	cmd := exec.CommandContext(b.ctx, binary, "-test.run=^$")
	cmd.Env = append(os.Environ(), childVariable+"="+string(told))
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{to}, &noise, &noise
	err = cmd.Start()
	_ = to.Close() // the child has its own
	if err != nil {
		b.Fatalf("start a child: %v", err)
	}
	l = ledger{generation: s.Generation, votes: map[uint64]participant.Handle{}}
	failure := l.read(from, &points)
	err = cmd.Wait()
	switch {
	case failure != nil:
		b.Fatalf("a child: %v\n%s", failure, noise.String())
	case err == nil && points == nil:
		b.Fatalf("a child came to its end without a word: does TestMain call participanttest.Child first?\n%s", noise.String())
	case err != nil && cmd.ProcessState.ExitCode() != -1:
		b.Fatalf("a child: %v\n%s", err, noise.String())
	case err != nil && s.Die == "":
		b.Fatalf("a child was killed by somebody else: %v\n%s", err, noise.String())
	}
	return l, points, err == nil
}

// read takes what a child says until it ends.
func (l ledger) read(from io.Reader, points *[]string) error {
	in := bufio.NewScanner(from)
	in.Buffer(nil, 4<<20)
	for in.Scan() {
		var said line
		if err := json.Unmarshal(in.Bytes(), &said); err != nil {
			return fmt.Errorf("%q: %w", in.Text(), err)
		}
		switch {
		case said.Error != "":
			return errors.New(said.Error)
		case said.Handle != nil:
			l.votes[said.N] = *said.Handle
		case said.Points != nil:
			*points = said.Points
		}
	}
	return in.Err()
}

// maxKills is how many processes are killed where Kit.Kills does not say.
const maxKills = 64

// kills picks where to kill: every point, each time it was passed; the first time where that is too many;
// and some of those, evenly, where it still is.
func kills(points []string, most int) []script {
	seen := map[string]int{}
	var all []script
	for _, p := range points {
		seen[p]++
		all = append(all, script{Die: p, Nth: seen[p]})
	}
	if len(all) > most {
		all = slices.DeleteFunc(all, func(s script) bool { return s.Nth > 1 })
	}
	if len(all) <= most {
		return all
	}
	some := make([]script, most)
	for i := range some {
		some[i] = all[i*len(all)/most]
	}
	return some
}

func checkKilled(t testing.TB, target Target) {
	b := patientBench(t, target, 5)
	if b.World == "" {
		b.skip("no other process can find the target (Target.World, Child): nothing was killed by SIGKILL")
	}
	var want []string
	l, points, _ := b.child(script{Generation: 1})
	b.recover(l, &want)
	most := b.kit.Kills
	if most <= 0 {
		most = maxKills
	}
	g, died := uint64(3), 0
	for _, s := range kills(points, most) {
		s.Generation = g
		l, _, whole := b.child(s)
		b.recover(l, &want)
		if b.Failed() {
			b.Fatalf("that was killed at %q, time %d", s.Die, s.Nth)
		}
		if !whole {
			died++
		}
		g += 2
	}
	if died == 0 {
		b.Errorf("no child was killed")
	}
	// And the other way round: what this process has prepared another one finishes.
	r := b.opened(g)
	h := b.prepared(b.begin(r, branchName(home, g, 1), text(g, 1)))
	b.child(script{Finish: &h})
	b.sees(append(want, text(g, 1))...)
	slices.Sort(points)
	b.figure("%s, that pass %s", plural.Of(died, "process"), plural.Of(len(slices.Compact(points)), "point"))
}
