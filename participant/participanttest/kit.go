package participanttest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
)

// Kit is how the checks reach the adapter under test.
type Kit struct {
	// New makes a target with nothing in it. Every check asks for one of its own.
	New func(t testing.TB) Target
}

// Target is one resource in the world: a directory, a database, a topic.
type Target struct {
	// Process opens the resource as a new process does: another value over the same data.
	Process func(t testing.TB) participant.Resource
	// Write puts one record into a branch, by the adapter's own method.
	Write func(t testing.TB, b participant.Branch, record string)
	// Read returns the records that readers see, in any order.
	Read func(t testing.TB) []string
	// NeverPrepared makes the handle that a branch of that name would have, had it been prepared. Nil:
	// the adapter's handles can't be foretold; checks that need one skip.
	NeverPrepared func(name participant.BranchName) participant.Handle
}

// Check is one rule of the contract.
type Check struct {
	Name string
	Run  func(t testing.TB, target Target)
}

// Run checks an adapter. Each check is a subtest, named after its rule.
func Run(t *testing.T, kit Kit) {
	t.Helper()
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, kit.New(t)) })
	}
}

// Checks lists the rules, in the order in which they are checked.
func Checks() []Check {
	return []Check{
		{"a description is stable and complete", checkDescribe},
		{"nothing is visible before its commit", checkInvisible},
		{"begin may be repeated", checkBeginTwice},
		{"prepare again gives the same handle", checkPrepareTwice},
		{"E1/an empty branch is read-only", checkReadOnly},
		{"O5/every call may be repeated", checkRepeats},
		{"commit after the process is gone", checkReopen},
		{"P7/two prepared for one epoch are told apart", checkTwoPrepared},
		{"rollback of what is unknown succeeds", checkUnknownRollback},
		{"P13/a prepare after its rollback is listed", checkLatePrepare},
		{"Z2/an older generation is fenced", checkFence},
		{"P16/two finishers at once write once", checkTwoFinishers},
		{"inspect tells states and changes nothing", checkInspect},
		{"a cancelled call decides nothing", checkCancelled},
		{"S2/close publishes nothing", checkClose},
		{"discard leaves what is prepared", checkDiscard},
		{"rollback hides for good", checkRollback},
		{"L9/a listing is of one namespace", checkNamespaces},
		{"I7/names and handles fit and parse", checkNames},
		{"handles of others are left alone", checkForeign},
		{"a hundred branches side by side", checkHundred},
		{"no goroutine is left", checkGoroutines},
	}
}

// bench is what checks share.
type bench struct {
	testing.TB
	Target
	ctx context.Context
}

func newBench(t testing.TB, target Target) bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return bench{TB: t, Target: target, ctx: ctx}
}

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
	if err := r.Open(b.ctx, opening(home, generation)); err != nil {
		b.Fatalf("open generation %d: %v", generation, err)
	}
	return r
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
}

func (b bench) rollback(r participant.Resource, h participant.Handle) {
	b.Helper()
	proof, err := r.Rollback(b.ctx, h)
	if err != nil || proof.Verdict != participant.RolledBack {
		b.Fatalf("roll back %s: verdict %d, evidence %q, error %v; want rolled back", h.Name, proof.Verdict, proof.Evidence, err)
	}
}

// sees checks what readers see, in any order.
func (b bench) sees(want ...string) {
	b.Helper()
	got := slices.Sorted(slices.Values(b.Read(b.TB)))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.Fatalf("readers see %q, want %q", got, want)
	}
}

// lists checks which branches a listing names.
func (b bench) lists(r participant.Resource, ns participant.Namespace, want ...participant.BranchName) []participant.Listed {
	b.Helper()
	found, err := r.List(b.ctx, ns)
	if err != nil {
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
	if !slices.Equal(got, names) {
		b.Fatalf("%s lists %q, want %q", ns, got, names)
	}
	return found
}

func record(n int) string { return fmt.Sprintf("record-%03d", n) }
