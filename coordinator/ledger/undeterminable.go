package ledger

import (
	"fmt"
	"slices"
	"strings"

	"github.com/unisink/unisink/internal/mutant"
)

// Undeterminable is a branch that its resource can no longer end as decided, nor show how it ended: it has answered,
// and what would tell is gone. That is no proof, and none is recorded: the branch stays unresolved. Its scope is halted,
// with the text of this as the reason, until a person resumes it, upon which its members look again, or forces the branch.
type Undeterminable struct {
	Scope  ScopeID
	Epoch  Epoch
	Branch BranchID
	// Evidence: what was looked at, and what was not there.
	Evidence string
}

const isUndeterminable = " is undeterminable: "

// String is the reason of a halt, which ParseUndeterminable reads again. Evidence that is too long is cut, so that what
// a person may do stands behind it.
func (u Undeterminable) String() string {
	head, tail := u.frame()
	evidence := clip(u.Evidence)
	if room := MaxText - len(head) - len(tail); len(evidence) > room {
		evidence = strings.ToValidUTF8(evidence[:max(room, 0)], "")
	}
	return head + evidence + tail
}

// frame is what stands around the evidence.
func (u Undeterminable) frame() (head, tail string) {
	txn := EpochTxn(u.Scope, u.Epoch)
	return fmt.Sprintf("branch %s of epoch %s%s", u.Branch, u.Epoch, isUndeterminable),
		fmt.Sprintf("; `unisink txn show %s` says what a person may do: look again with `unisink pipeline resume`, or take the branch as it is with `unisink txn resolve %s --force accept-loss --branch %s`",
			txn, txn, u.Branch)
}

// ParseUndeterminable reads why a scope is halted; false if that is for another reason.
func ParseUndeterminable(id ScopeID, halted string) (Undeterminable, bool) {
	name, rest, ok := strings.Cut(strings.TrimPrefix(halted, "branch "), " of epoch ")
	if !ok {
		return Undeterminable{}, false
	}
	at, rest, ok := strings.Cut(rest, isUndeterminable)
	member, resource, named := strings.Cut(name, "/")
	epoch, err := ParseEpoch(at)
	if !ok || !named || err != nil {
		return Undeterminable{}, false
	}
	u := Undeterminable{Scope: id, Epoch: epoch, Branch: BranchID{Member: member, Resource: resource}}
	_, tail := u.frame()
	u.Evidence, ok = strings.CutSuffix(rest, tail)
	return u, ok && u.String() == halted
}

// HaltOver is the command that halts a scope over a branch that nobody can tell of. False where there is nothing to
// halt for: the scope is halted already, the branch is resolved or not decided, or the pipeline is gone. Whoever finds
// the branch says so again as long as it is so, so a halt that came to nothing is made up for.
func (m *Machine) HaltOver(u Undeterminable) (CloseGeneration, bool) {
	sc := m.scopes[u.Scope]
	if sc == nil || sc.halted != "" || sc.newest() == nil || m.pipelines[u.Scope.Pipeline] == nil || mutant.On("ledger/undeterminable-halts") {
		return CloseGeneration{}, false
	}
	switch m.EpochOutcome(u.Scope, u.Epoch) {
	case Committed:
		e := sc.find(u.Epoch)
		if e == nil || !slices.ContainsFunc(e.Branches, func(b Branch) bool { return b.ID == u.Branch && !b.resolved() }) {
			return CloseGeneration{}, false
		}
	case Aborted: // it has no record: what was to be rolled back may have been committed
	case Pending, outcomeUnset:
		return CloseGeneration{}, false
	}
	why := u.String()
	return CloseGeneration{Scope: u.Scope, Generation: sc.newest().Generation, Cause: why, Halt: why}, true
}
