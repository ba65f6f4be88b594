package participanttest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
)

// Kit is how the checks reach the adapter under test.
type Kit struct {
	// New makes a target with nothing in it. Every check asks for one of its own.
	New func(t testing.TB) Target
	// Branches is how many go through the check of many, default 1000. Fewer is said in the certificate.
	Branches int
	// Steps is at how many steps of each call something goes wrong, default 200; they are taken evenly.
	Steps int
	// Kills is the most processes that are killed, default 64. Points that more would be needed for are
	// taken the first time they are passed, or every second, third, ….
	Kills int
	// Patience is the longest time that a check may take, five times as much where it runs processes or
	// many branches; default one minute.
	Patience time.Duration
}

// Target is one resource in the world: a directory, a database, a topic. Process, Write and Read are
// needed. Each of the others lets the kit see more; what it could not see is named at the end, as not
// certified.
type Target struct {
	// Process opens the resource as a new process does: another value over the same data.
	Process func(t testing.TB) participant.Resource
	// Write puts one record into a branch, by the adapter's own method. An error of that is t.Fatal.
	Write func(t testing.TB, b participant.Branch, record string)
	// Read returns the records that readers see, in any order.
	Read func(t testing.TB) []string
	// NeverPrepared makes the handle that a branch of that name would have, had it been prepared. Nil:
	// the adapter's handles can't be foretold.
	NeverPrepared func(name participant.BranchName) participant.Handle

	// Stepped is Process for a resource that calls at, by name, around each of its steps towards the
	// world: before a request is sent and after it was answered, before and after a rename. An error
	// from at means that the step fails with it: before, it did not happen; after, its answer is lost. At may
	// be called from several goroutines. StepDialer makes steps of a network connection.
	Stepped func(t testing.TB, at func(step string) error) participant.Resource
	// World is what another process needs to find this target: a directory, an address and a table. It
	// goes to the attach function of Child, which the test binary's TestMain calls. Empty: no other
	// process can, as where all is in memory.
	World string
	// Points, in a child, makes the adapter's own named crash points call at; see Child.
	Points func(at func(point string))
	// Drop makes the resource drop one prepared branch, as its time-out, or a person, would.
	Drop func(t testing.TB, h participant.Handle)
	// Recreate deletes what is written to, topic, table or directory, and makes it anew under the same name.
	Recreate func(t testing.TB)
	// Secrets are words that no handle, description or listing may hold: passwords that Process uses.
	Secrets []string

	kit  Kit
	said *remarks
}

// Check is one rule of the contract.
type Check struct {
	Name string
	Run  func(t testing.TB, target Target)
}

// Run checks an adapter. Each check is a subtest, named after its rule; one that has nothing to look
// with is skipped and says why. The certificate tells what was checked and what was not; it is logged too.
func Run(t *testing.T, kit Kit) Certificate {
	t.Helper()
	cert := Certificate{Adapter: t.Name()}
	t.Run("claims", func(t *testing.T) {
		var err error
		if cert.Claims, err = kit.New(t).describe(t); err != nil {
			t.Fatalf("describe: %v", err)
		}
	})
	for _, c := range Checks() {
		said, ran := &remarks{}, false
		ok := t.Run(c.Name, func(t *testing.T) {
			ran = true
			target := kit.New(t)
			target.kit, target.said = kit, said
			c.Run(t, target)
		})
		cert.add(c.Name, ran, ok, said)
	}
	t.Log(cert)
	return cert
}

// describe asks a process that is closed at once.
func (g Target) describe(t testing.TB) (participant.Description, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r := g.Process(t)
	d, err := r.Describe(ctx)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	return d, err
}

// Checks lists the rules, in the order in which they are checked.
func Checks() []Check {
	return []Check{
		{"a description is stable and complete", checkDescribe},
		{"what is claimed is so", checkClaims},
		{"nothing is visible before its commit", checkInvisible},
		{"begin may be repeated", checkBeginTwice},
		{"prepare again gives the same handle", checkPrepareTwice},
		{"E1/an empty branch is read-only", checkReadOnly},
		{"O5/every call may be repeated", checkRepeats},
		{"commit after the process is gone", checkReopen},
		{"P7/two prepared for one epoch are told apart", checkTwoPrepared},
		{"P6/finished in order, each shows itself alone", checkOrder},
		{"I5/epochs of a new generation are new work", checkGenerations},
		{"I6/neighbours with like names do not fence each other", checkNeighbours},
		{"rollback of what is unknown succeeds", checkUnknownRollback},
		{"O4/commit of what is unknown is no success", checkUnknownCommit},
		{"P13/a prepare after its rollback is listed", checkLatePrepare},
		{"L3/a prepare that races with the fence leaves nothing", checkRacingPrepare},
		{"Z2/an older generation is fenced", checkFence},
		{"Z2/a holder that wakes up late spoils nothing", checkTwoHolders},
		{"a newer generation drops what was not prepared", checkReopened},
		{"P16/two finishers at once write once", checkTwoFinishers},
		{"P16/an inspect beside a commit finds something", checkInspectBeside},
		{"inspect tells states and changes nothing", checkInspect},
		{"a cancelled call decides nothing", checkCancelled},
		{"O8/a deadline in mid-call means unknown", checkDeadline},
		{"O8/a call cancelled at any step means unknown", checkCancelledAtSteps},
		{"O7/an error at any step is never a success", checkErrors},
		{"a process gone between any two calls loses nothing", checkGone},
		{"a process cut off at any step loses nothing", checkCutOff},
		{"a process killed at any point loses nothing", checkKilled},
		{"S2/close publishes nothing", checkClose},
		{"discard leaves what is prepared", checkDiscard},
		{"rollback hides for good", checkRollback},
		{"L9/a listing is of one namespace", checkNamespaces},
		{"I7/names and handles fit and parse", checkNames},
		{"a handle holds no secret", checkSecrets},
		{"handles of others are left alone", checkForeign},
		{"T1/what was dropped is never proven committed", checkDropped},
		{"T5/what was made anew proves no commit", checkRecreated},
		{"a hundred branches side by side", checkHundred},
		{"a thousand branches in bounded time and memory", checkThousand},
		{"no goroutine is left", checkGoroutines},
		{"no file and no connection is left open", checkOpenFiles},
	}
}

// remarks are what a check says beside its verdict.
type remarks struct {
	mu     sync.Mutex // guards the rest
	gaps   []string   // what it could not look at
	figure string
}

func (r *remarks) gap(why string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = append(r.gaps, why)
}
