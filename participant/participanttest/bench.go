package participanttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
)

// bench is what checks share.
type bench struct {
	testing.TB
	Target
	ctx    context.Context
	claims participant.Description
}

// newBench is one whose context ends with the kit's patience.
func newBench(t testing.TB, target Target) bench { return patientBench(t, target, 1) }

// patientBench is one that has that many times the patience.
func patientBench(t testing.TB, target Target, times int) bench {
	t.Helper()
	if target.kit.Patience == 0 {
		target.kit.Patience = time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(times)*target.kit.Patience)
	t.Cleanup(cancel)
	b := bench{TB: t, Target: target, ctx: ctx}
	var err error
	if b.claims, err = target.describe(t); err != nil {
		t.Fatalf("describe: %v", err)
	}
	return b
}

// gap says what this check could not look at; the rest of it goes on.
func (b bench) gap(format string, args ...any) { b.said.gap(fmt.Sprintf(format, args...)) }

// skip ends a check that has nothing to look with.
func (b bench) skip(why string) {
	b.Helper()
	b.said.gap(why)
	b.Skip("not certified: " + why)
}

// figure is something measured, for the certificate.
func (b bench) figure(format string, args ...any) {
	if b.said != nil {
		b.said.figure = fmt.Sprintf(format, args...)
	}
}

// bare reports whether the adapter claims so little that it has no fence and tells no state: it can
// neither list nor read a proof, as the form of four functions.
func (b bench) bare() bool { return b.claims.Asserted && !b.claims.CanList }

var home = participant.Namespace{Name: "kit", Incarnation: 1}

// branchName is epoch (generation, n) of the kit's own member.
func branchName(ns participant.Namespace, generation, n uint64) participant.BranchName {
	return participant.BranchName{Namespace: ns, Pipeline: "orders", Member: "sink", Resource: "out", Generation: generation, N: n}
}

func opening(ns participant.Namespace, generation uint64) participant.Opening {
	return participant.Opening{
		Namespace: ns, Scope: "orders/0", Member: "sink", Resource: "out", Generation: generation,
		MaxPending: 128, EpochInterval: 100 * time.Millisecond,
	}
}

// opened is a new process that has opened a generation.
func (b bench) opened(generation uint64) participant.Resource {
	b.Helper()
	r := b.process()
	b.open(r, generation)
	return r
}

func (b bench) open(r participant.Resource, generation uint64) {
	b.Helper()
	if err := r.Open(b.ctx, opening(home, generation)); err != nil {
		b.Fatalf("open generation %d: %v", generation, err)
	}
}

// process is a new process that is closed at the check's end.
func (b bench) process() participant.Resource {
	b.Helper()
	r := b.Process(b.TB)
	b.Cleanup(func() { _ = r.Close() }) // some checks close it themselves
	return r
}

// begin starts a branch and writes to it.
func (b bench) begin(r participant.Resource, name participant.BranchName, records ...string) participant.Branch {
	b.Helper()
	branch, err := r.Begin(b.ctx, name)
	if err != nil {
		b.Fatalf("begin %s: %v", name, err)
	}
	for _, record := range records {
		b.Write(b.TB, branch, record)
	}
	return branch
}

// prepared is the handle of a branch that says yes.
func (b bench) prepared(branch participant.Branch) participant.Handle {
	b.Helper()
	vote, err := branch.Prepare(b.ctx)
	if err != nil || vote.Kind != participant.Yes {
		b.Fatalf("prepare: vote %v, reason %v, error %v; want yes", vote.Kind, vote.Reason, err)
	}
	return vote.Handle
}

// epoch is a prepared branch of generation 1 with one record.
func (b bench) epoch(r participant.Resource, n uint64, record string) participant.Handle {
	b.Helper()
	return b.prepared(b.begin(r, branchName(home, 1, n), record))
}

func (b bench) commit(r participant.Resource, h participant.Handle) {
	b.Helper()
	proof, err := r.Commit(b.ctx, h)
	if err != nil || proof.Verdict != participant.Committed {
		b.Fatalf("commit %s: verdict %d, evidence %q, error %v; want committed", h.Name, proof.Verdict, proof.Evidence, err)
	}
	b.honest(proof)
}

func (b bench) rollback(r participant.Resource, h participant.Handle) {
	b.Helper()
	proof, err := r.Rollback(b.ctx, h)
	if err != nil || proof.Verdict != participant.RolledBack {
		b.Fatalf("roll back %s: verdict %d, evidence %q, error %v; want rolled back", h.Name, proof.Verdict, proof.Evidence, err)
	}
	b.honest(proof)
}

// honest checks that a proof says what the description does.
func (b bench) honest(p participant.Proof) {
	b.Helper()
	if p.Asserted != b.claims.Asserted {
		b.Errorf("a proof says asserted=%t, the description asserted=%t", p.Asserted, b.claims.Asserted)
	}
}

// sees checks what readers see, in any order.
func (b bench) sees(want ...string) {
	b.Helper()
	got := slices.Sorted(slices.Values(b.Read(b.TB)))
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		b.Fatalf("readers see %q, want %q", got, want)
	}
}

// settles waits, for a while, until no more than so many things are listed: what was dropped may be on its way out. Kafka
// shows an aborted transaction until its markers are written, as it must, since readers wait for them.
func (b bench) settles(r participant.Resource, ns participant.Namespace, most int) {
	b.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		found, err := r.List(b.ctx, ns)
		if err != nil || len(found) <= most {
			return // lists judges it
		}
	}
}

// lists checks which branches a listing names. One that claims no listing may name some of them, or none.
func (b bench) lists(r participant.Resource, ns participant.Namespace, want ...participant.BranchName) []participant.Listed {
	b.Helper()
	found, err := r.List(b.ctx, ns)
	if err != nil && b.claims.CanList {
		b.Fatalf("list %s: %v", ns, err)
	}
	var got, names []string
	for _, l := range found {
		l.Name.N = 0 // resources need not carry it
		got = append(got, l.Name.String())
	}
	for _, n := range want {
		n.N = 0
		names = append(names, n.String())
	}
	slices.Sort(got)
	slices.Sort(names)
	if b.claims.CanList && !slices.Equal(got, names) {
		b.Fatalf("%s lists %q, want %q", ns, got, names)
	}
	for _, name := range got {
		if !slices.Contains(names, name) {
			b.Fatalf("%s lists %q, which is not prepared", ns, name)
		}
	}
	return found
}

// sweep rolls back everything that is listed, as a member does when it restores, and again as long as
// something comes late: what a process that is paused had sent before may arrive after it was swept (P13).
func (b bench) sweep(r participant.Resource) {
	b.Helper()
	for range 10 {
		found, err := r.List(b.ctx, home)
		if err != nil && b.claims.CanList {
			b.Fatalf("list %s: %v", home, err)
		}
		if len(found) == 0 {
			return
		}
		for _, l := range found {
			b.rollback(r, l.Handle)
		}
	}
	b.lists(r, home)
}

// tries calls f, in which the test may be failed, and tells why it was, if it was.
func (b bench) tries(f func(t testing.TB)) error {
	c := &catcher{TB: b.TB}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(c)
	}()
	<-done
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// catcher keeps a failure to itself.
type catcher struct {
	testing.TB
	mu  sync.Mutex // guards err
	err error
}

func (c *catcher) fail(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = errors.New(text)
	}
}

func (c *catcher) Failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}
func (c *catcher) Helper()                           {}
func (c *catcher) Fail()                             { c.fail("failed") }
func (c *catcher) Error(args ...any)                 { c.fail(fmt.Sprint(args...)) }
func (c *catcher) Errorf(format string, args ...any) { c.fail(fmt.Sprintf(format, args...)) }
func (c *catcher) FailNow()                          { c.fail("failed"); runtime.Goexit() }
func (c *catcher) Fatal(args ...any)                 { c.Error(args...); runtime.Goexit() }
func (c *catcher) Fatalf(format string, args ...any) { c.Errorf(format, args...); runtime.Goexit() }

func record(n int) string { return fmt.Sprintf("record-%03d", n) }
