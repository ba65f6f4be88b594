package ledger

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/unisink/unisink/internal/mutant"
)

// Found is one prepared thing, as a resource's listing shows it. Its name was parsed by who listed it.
type Found struct {
	Namespace   string
	Incarnation uint64
	// Scope, Epoch and Branch of an epoch's branch. Epoch.N is 0 where the resource's names do not carry it.
	Scope  ScopeID
	Epoch  Epoch
	Branch BranchID
	// Txn is set for transactions run by hand; scope, epoch and member are then zero.
	Txn TxnID
	// Handle: where Epoch.N is 0 and its name ends in "|" and a number, those of one line, with the same text before
	// that, were begun in the order of their numbers, each after the one before it was over.
	Handle Handle
	// Since is when it was begun, Unix ms by the resource's clock; 0: not known.
	Since int64
}

// clockMargin is how far, in ms, the clocks of a resource and of a leader may be apart before Judge is misled: as far as
// those of clients and leaders are let be.
const clockMargin = MaxAhead

// Sentence is what is to become of a prepared thing.
type Sentence uint8

const (
	sentenceUnset Sentence = iota
	// SentenceLeave: current and undecided, newer than the ledger, of another namespace or incarnation.
	SentenceLeave
	// SentenceCommit: listed in a decision. It is finished in its order, as Outstanding has it.
	SentenceCommit
	// SentenceRollBack: nothing can commit it any more.
	SentenceRollBack
	// SentenceInDoubt: it may be what a decision listed whose list was retired.
	SentenceInDoubt
	// SentenceAsk: run by hand, and unknown: the question for its outcome aborts it.
	SentenceAsk
)

func (s Sentence) String() string {
	switch s {
	case SentenceLeave:
		return "leave"
	case SentenceCommit:
		return "commit"
	case SentenceRollBack:
		return "roll back"
	case SentenceInDoubt:
		return "in doubt"
	case SentenceAsk:
		return "ask"
	case sentenceUnset:
	}
	return "none"
}

// Judge says what is to become of something that was found prepared, and why, at now (Unix ms). What counts
// are the handles that decisions list, not numbers: of two prepared for one epoch the listed one lives (P7).
// A sentence to roll back stays right for ever, since closed generations decide nothing and a decision's list
// never grows; the others hold for the state that was read.
func (m *Machine) Judge(f Found, now int64) (Sentence, string) {
	if f.Namespace != m.namespace || f.Incarnation != m.incarnation {
		return SentenceLeave, fmt.Sprintf("it belongs to namespace %s, incarnation %d", f.Namespace, f.Incarnation)
	}
	if f.Txn != "" {
		return m.judgeByHand(f, now)
	}
	// The scope of a deleted pipeline is asked like any other: it keeps what each of its generations decided.
	sc := m.scopes[f.Scope]
	if sc == nil {
		return SentenceLeave, fmt.Sprintf("the ledger has never known scope %s", f.Scope)
	}
	newest := sc.newest()
	if newest == nil || f.Epoch.Generation > newest.Generation || f.Epoch.Generation == 0 {
		return SentenceLeave, fmt.Sprintf("generation %d is newer than what the ledger has of scope %s", f.Epoch.Generation, f.Scope)
	}
	if e := sc.lists(f); e != nil {
		return SentenceCommit, fmt.Sprintf("the decision of epoch %s lists it", e.Epoch)
	}
	return sc.judgeUnlisted(f, f.Epoch.Generation == newest.Generation && newest.Open)
}

// lists finds the decision that lists a handle.
func (s *scope) lists(f Found) *epoch {
	for _, e := range s.epoch {
		if e.Epoch == f.Epoch && mutant.On("ledger/judged-by-handle") {
			return e
		}
		for i := range e.Branches {
			if e.Branches[i].Handle.same(f.Handle) {
				return e
			}
		}
	}
	return nil
}

// same reports whether both handles mean the same prepared thing.
func (h *Handle) same(o Handle) bool {
	return h.Kind == o.Kind && h.Identity == o.Identity && h.Name == o.Name
}

// judgeUnlisted judges what no decision lists that is kept.
func (s *scope) judgeUnlisted(f Found, open bool) (Sentence, string) {
	g, n, final := f.Epoch.Generation, f.Epoch.N, s.final(f.Epoch.Generation)
	switch {
	case n == 0 && open:
		return SentenceLeave, fmt.Sprintf("generation %d is open, and it may be undecided", g)
	case n == 0:
		return s.judgeUnnumbered(f, final)
	case n > final && open:
		return SentenceLeave, fmt.Sprintf("epoch %s is current and undecided", f.Epoch)
	case n > final:
		return SentenceRollBack, fmt.Sprintf("generation %d was closed after epoch %d", g, final)
	case s.find(f.Epoch) != nil || mutant.On("ledger/retired-is-in-doubt"):
		return SentenceRollBack, fmt.Sprintf("epoch %s was decided without it", f.Epoch)
	default:
		return SentenceInDoubt, fmt.Sprintf("epoch %s was decided, and what it listed was retired once it was proven: the resource looks as if it had been set back", f.Epoch)
	}
}

// judgeUnnumbered judges what is of a closed generation and does not say of which epoch. It is dead if the
// lists of all that the generation decided are here. If those of its first epochs were retired, it may be of one of them,
// which was committed and proven, in a resource that was set back since; unless it was begun after one of those whose
// lists are here. Its line tells that, or, where it has none, a time that no difference of clocks explains.
func (s *scope) judgeUnnumbered(f Found, final uint64) (Sentence, string) {
	g := f.Epoch.Generation
	first := final + 1
	for first > 1 && s.find(Epoch{g, first - 1}) != nil {
		first--
	}
	if first == 1 {
		return SentenceRollBack, fmt.Sprintf("generation %d is closed, and none of its %d decisions lists it", g, final)
	}
	if e := s.inLineBefore(f, first); e != nil && !mutant.On("ledger/judged-by-line") {
		return SentenceRollBack, fmt.Sprintf("generation %d is closed, it was begun after what epoch %d of it lists was over, and no later decision lists it", g, e.Epoch.N)
	}
	after := int64(0)
	if first <= final {
		after = s.find(Epoch{g, first}).DecidedAt
	} else if r := s.generation(g); r != nil {
		after = r.ClosedAt
	}
	margin := int64(clockMargin)
	if mutant.On("ledger/clock-margin") {
		margin = 0
	}
	if after > 0 && f.Since > after+margin {
		return SentenceRollBack, fmt.Sprintf("generation %d is closed, it was begun more than %d s after epoch %d of it was decided, and no later decision lists it", g, margin/1000, first-1)
	}
	return SentenceInDoubt, fmt.Sprintf("generation %d is closed, and it may be of one of its first %d epochs, whose lists were retired once they were proven: the resource looks as if it had been set back", g, first-1)
}

// inLineBefore finds an epoch, of first or later of the same generation, that lists what was over when f was begun.
func (s *scope) inLineBefore(f Found, first uint64) *epoch {
	line, place, ok := inLine(f.Handle.Name)
	if !ok {
		return nil
	}
	for _, e := range s.epoch {
		if e.Epoch.Generation != f.Epoch.Generation || e.Epoch.N < first {
			continue
		}
		for i := range e.Branches {
			h := &e.Branches[i].Handle
			l, p, ok := inLine(h.Name)
			if ok && h.Kind == f.Handle.Kind && h.Identity == f.Handle.Identity && l == line && p < place {
				return e
			}
		}
	}
	return nil
}

// inLine reads a handle's line and its place in it.
func inLine(name string) (line string, place uint64, ok bool) {
	i := strings.LastIndexByte(name, '|')
	if i <= 0 {
		return "", 0, false
	}
	place, err := strconv.ParseUint(name[i+1:], 10, 64)
	return name[:i], place, err == nil
}

// judgeByHand judges a branch of a transaction run by hand.
func (m *Machine) judgeByHand(f Found, now int64) (Sentence, string) {
	t := m.txns[f.Txn]
	if t == nil {
		return m.judgeUnknown(f.Txn, now)
	}
	switch t.Outcome {
	case Pending:
		return SentenceLeave, fmt.Sprintf("transaction %s is undecided until its deadline", f.Txn)
	case Aborted:
		return SentenceRollBack, fmt.Sprintf("transaction %s was aborted: %s", f.Txn, t.Why)
	case Committed, outcomeUnset:
	}
	for i := range t.Branches {
		if t.Branches[i].Handle.same(f.Handle) {
			return SentenceCommit, fmt.Sprintf("the decision of transaction %s lists it", f.Txn)
		}
	}
	return SentenceRollBack, fmt.Sprintf("transaction %s was committed without it", f.Txn)
}

// judgeUnknown judges an id without a record. Below the floor every record there was has been resolved, so a
// branch that is prepared was never committed; unless the ledger was restored, and forgot.
func (m *Machine) judgeUnknown(id TxnID, now int64) (Sentence, string) {
	at, ok := id.Time()
	switch {
	case !ok:
		return SentenceLeave, fmt.Sprintf("%q is no id of a transaction run by hand", id)
	case at < m.forgotten:
		return SentenceInDoubt, fmt.Sprintf("transaction %s is older than the backup that the ledger was restored from may remember", id)
	case at < m.floor:
		return SentenceRollBack, fmt.Sprintf("transaction %s is older than everything that can still be committed", id)
	case at > now+MaxAhead:
		return SentenceLeave, fmt.Sprintf("the id of transaction %s lies ahead of the coordinator's clock", id)
	default:
		return SentenceAsk, fmt.Sprintf("nobody has told the ledger of transaction %s", id)
	}
}
