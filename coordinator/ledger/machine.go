package ledger

import (
	"fmt"
	"strings"
)

// CurrentFeatureLevel is the newest feature level that this binary can follow.
//
// Level 2 keeps the trail of acts, and knows Note.
const CurrentFeatureLevel = 2

// AuditLevel is the feature level from which on acts are kept.
const AuditLevel = 2

// Machine is the ledger. It is not safe for use by several goroutines at once; its owner
// serialises Apply against everything else. Values that it hands out may share slices with it:
// the machine never changes a slice in place, and whoever gets one must not either. In the same
// way Apply takes over the slices inside the command.
type Machine struct {
	namespace      string
	incarnation    uint64
	level          uint32
	lastGeneration Generation
	floor          int64
	forgotten      int64 // see State

	nodes     map[string]nodeEntry
	pipelines map[string]*pipeline
	scopes    map[ScopeID]*scope
	sorted    []*scope // the scopes by id; none ever goes
	txns      map[TxnID]*txn
	hand      handOrder // of txns
	acts      []Act     // oldest first; only appended to and cut at its begin

	// refs counts, for each state part, the kept restore points that name it.
	refs map[string]int

	digest  uint64 // sum of the digests of everything kept
	headSum uint64
	enc     encoder

	unguarded unguarded
}

// unguarded switches off rules that stand because the protocol broke a promise without them.
// Tests set it, to show that each of them is missed.
type unguarded struct {
	gapCheck         bool // Decide takes any n
	openUnclosed     bool // OpenGeneration follows an open generation
	decideClosed     bool // Decide takes a closed generation
	everyVote        bool // Decide takes too few votes
	instanceCheck    bool // Decide takes votes of other instances
	rememberRefusals bool // a refused request stays refused
	floorCheck       bool // hand-run ids below the floor get a verdict
	aheadCheck       bool // hand-run ids may lie in the future
	firstProof       bool // a later proof replaces the first
	haltOnHeuristic  bool // a broken promise halts nothing
	retireUnresolved bool // Retire drops what is not resolved
	namedParts       bool // Retire hands out parts that are still named
	reuseGenerations bool // a pipeline made again counts from 1
	desiredFirst     bool // final epochs and openings do not need the desired state
	backoff          bool // barren generations delay and halt nothing
	youngDecision    bool // any decision ends the count of barren generations
	anyResource      bool // a resource of another identity is taken for the old one
	finalForClose    bool // a close answers with 0
	endlessTrail     bool // acts are never forgotten
	auditRepeats     bool // an act that changed nothing is in the trail

	refused map[string]Result // for rememberRefusals
}

type nodeEntry struct {
	Node
	sum uint64
}

type pipeline struct {
	Pipeline
	sum uint64
}

// New is a machine before Init: it refuses everything else.
func New() *Machine {
	m := &Machine{
		nodes:     map[string]nodeEntry{},
		pipelines: map[string]*pipeline{},
		scopes:    map[ScopeID]*scope{},
		txns:      map[TxnID]*txn{},
		hand:      newHandOrder(),
		refs:      map[string]int{},
		unguarded: switchedOff(),
	}
	m.sealHead()
	return m
}

// must stops the process when the program, not the world, is wrong: going on could decide a
// transaction twice.
func must(ok bool, format string, args ...any) {
	if !ok {
		panic("ledger: invariant violated: " + fmt.Sprintf(format, args...))
	}
}

// broken is the error of a state that breaks an invariant.
func broken(format string, args ...any) error {
	return fmt.Errorf("ledger: the state is not one that can arise: "+format, args...)
}

// outcome of one command, while it is applied.
type step struct {
	Result
	effects []Effect
}

// refuse makes the answer a refusal. What was not applied leaves no trace.
func (s *step) refuse(why Refusal, format string, args ...any) {
	s.Refusal, s.Text = why, fmt.Sprintf(format, args...)
	s.effects = nil
}

func (s *step) effect(e Effect) { s.effects = append(s.effects, e) }

// Apply moves the machine by one command of the log and returns the answer to its proposer and
// what is now owed to the outside world. It reads no clock: c.At was stamped by the leader. A
// refused command changes nothing. It panics on a command that this binary does not know or can
// not follow: a replica that skipped it would differ from the others.
func (m *Machine) Apply(c Command) (Result, []Effect) {
	if m.unguarded.rememberRefusals {
		if r, found := m.unguarded.refused[c.Request]; found {
			return r, nil
		}
	}
	var s step
	m.apply(&s, &c)
	if m.unguarded.rememberRefusals && !s.OK() && c.Request != "" {
		if m.unguarded.refused == nil {
			m.unguarded.refused = map[string]Result{}
		}
		m.unguarded.refused[c.Request] = s.Result
	}
	return s.Result, s.effects
}

func (m *Machine) apply(s *step, c *Command) {
	if body, ok := c.Body.(Init); ok {
		m.init(s, body)
		return
	}
	if m.namespace == "" {
		s.refuse(Invalid, "the group has not been initialised: run cluster bootstrap on one node")
		return
	}
	if len(c.Request) > MaxInstance || len(c.Actor) > MaxInstance {
		s.refuse(Invalid, "request id and actor may have %d bytes at most", MaxInstance)
		return
	}
	if need := levelOf(c.Body); need > m.level {
		s.refuse(Unsupported, "%T needs feature level %d, the group is at %d: update every node, then raise it", c.Body, need, m.level)
		return
	}
	before := m.digest
	m.dispatch(s, c)
	// A repeat is answered as the first, and was no act.
	if s.OK() && m.level >= AuditLevel {
		if _, noted := c.Body.(Note); noted || m.digest != before || m.unguarded.auditRepeats {
			m.audit(c)
		}
	}
}

// levelOf is the feature level from which on a command may stand in the log.
func levelOf(b Body) uint32 {
	switch b.(type) {
	case Init, PutNode, PutPipeline, DeletePipeline, SetDesired, OpenGeneration, CloseGeneration, Decide,
		Announce, Commit, PresumeAbort, Resolve, Swept, Rewind, Resume, Force, Retire, Reshard,
		RaiseFeatureLevel, Pin:
		return 1
	case Note:
		return AuditLevel
	default:
		must(false, "%T is no command that this binary knows", b)
		return 0
	}
}

func (m *Machine) dispatch(s *step, c *Command) {
	switch b := c.Body.(type) {
	case PutNode:
		m.putNode(s, b)
	case RaiseFeatureLevel:
		m.raise(s, b)
	case PutPipeline:
		m.putPipeline(s, c, b.Pipeline)
	case DeletePipeline:
		m.deletePipeline(s, c, b)
	case SetDesired:
		m.setDesired(s, c, b)
	case Reshard:
		m.reshard(s, c, b)
	case OpenGeneration:
		m.openGeneration(s, c, b)
	case CloseGeneration:
		m.closeGeneration(s, c, b)
	case Decide:
		m.decide(s, c, b)
	case Announce:
		m.announce(s, c, b)
	case Commit:
		m.commit(s, c, b)
	case PresumeAbort:
		m.presumeAbort(s, c, b)
	case Resolve:
		m.resolve(s, c, b)
	case Swept:
		m.swept(s, b)
	case Force:
		m.force(s, c, b)
	case Rewind:
		m.rewind(s, c, b)
	case Resume:
		m.resume(s, c, b)
	case Pin:
		m.pin(s, c, b)
	case Retire:
		m.retire(s, c, b)
	case Note:
		m.note(s, b)
	default:
		must(false, "%T is not dispatched", b)
	}
}

// Digests. Each object kept has one; the machine's is their sum, so its cost is that of what a
// command changed, and it does not depend on the way that led to a state.

// seal replaces an object's digest.
func (m *Machine) seal(old *uint64, now uint64) {
	m.digest += now - *old
	*old = now
}

func (m *Machine) headDigest() uint64 {
	e := m.enc.reset()
	e.text("head")
	e.text(m.namespace)
	e.num(m.incarnation)
	e.num(uint64(m.level))
	e.num(uint64(m.lastGeneration))
	e.int(m.floor)
	if m.forgotten != 0 {
		e.int(m.forgotten)
	}
	return e.sum()
}

func (m *Machine) sealHead() { m.seal(&m.headSum, m.headDigest()) }

func (m *Machine) sealScope(s *scope) {
	e := m.enc.reset()
	e.text("scope")
	e.scopeHead(s)
	m.seal(&s.sum, e.sum())
}

func (m *Machine) genSum(s *scope, g *GenerationRecord) uint64 {
	e := m.enc.reset()
	e.text("generation")
	e.scopeID(s.id)
	e.generation(g)
	return e.sum()
}

// editGeneration changes a generation's record and its digest with it.
func (m *Machine) editGeneration(s *scope, g *GenerationRecord, change func()) {
	m.digest -= m.genSum(s, g)
	s.debts -= len(g.Debts)
	change()
	s.debts += len(g.Debts)
	m.digest += m.genSum(s, g)
}

func (m *Machine) votesDigest(vs []Vote) uint64 {
	e := m.enc.reset()
	e.votes(vs)
	return e.sum()
}

func (m *Machine) handleDigests(bs []Branch) []uint64 {
	if len(bs) == 0 {
		return nil
	}
	sums := make([]uint64, len(bs))
	for i := range bs {
		e := m.enc.reset()
		e.handle(bs[i].Handle)
		sums[i] = e.sum()
	}
	return sums
}

func (m *Machine) sealEpoch(s *scope, r *epoch) {
	e := m.enc.reset()
	e.text("epoch")
	e.scopeID(s.id)
	e.epoch(r.Epoch)
	e.flag(r.Final)
	e.int(r.DecidedAt)
	e.int(r.ProvenAt)
	e.num(r.votesSum)
	for i := range r.Branches {
		e.branch(&r.Branches[i], r.handleSum[i])
	}
	m.seal(&r.sum, e.sum())
}

func (m *Machine) txnSum(t *txn) uint64 {
	e := m.enc.reset()
	e.text("txn")
	e.text(string(t.ID))
	e.num(uint64(t.Outcome))
	e.int(t.BegunAt)
	e.int(t.DecidedAt)
	e.int(t.Deadline)
	e.text(t.Heuristic)
	e.text(t.Why)
	for i := range t.Branches {
		e.branch(&t.Branches[i], t.handleSum[i])
	}
	return e.sum()
}

// addEpoch appends a decided epoch to its scope.
func (m *Machine) addEpoch(s *scope, r EpochRecord) *epoch {
	e := &epoch{EpochRecord: r}
	e.votesSum = m.votesDigest(e.Votes)
	e.handleSum = m.handleDigests(e.Branches)
	s.epoch = append(s.epoch, e)
	if !allResolved(e.Branches) {
		s.open = append(s.open, e)
	}
	s.blame(e)
	m.refParts(e.Votes, 1)
	m.sealEpoch(s, e)
	return e
}

// refParts counts the state parts that votes name and returns those that nothing names now.
func (m *Machine) refParts(vs []Vote, by int) []Retired {
	var gone []Retired
	for _, v := range vs {
		for _, p := range v.Parts {
			if p.ID == "" {
				continue
			}
			n := m.refs[p.ID] + by
			must(n >= 0, "the references to part %q went below zero", p.ID)
			if n > 0 {
				m.refs[p.ID] = n
				continue
			}
			delete(m.refs, p.ID)
			gone = append(gone, Retired{Member: v.Member, Part: p.ID})
		}
	}
	return gone
}

// addTxn keeps a hand-run transaction.
func (m *Machine) addTxn(t *txn) {
	t.ID = TxnID(strings.Clone(string(t.ID)))
	t.handleSum = m.handleDigests(t.Branches)
	m.putTxn(nil, t)
}

// changeTxn puts a changed copy in the place of a record, and returns it. Whoever changes handles changes their digests.
func (m *Machine) changeTxn(old *txn, change func(*txn)) *txn {
	t := *old
	change(&t)
	m.putTxn(old, &t)
	return &t
}

// putTxn brings digest and orders up to date.
func (m *Machine) putTxn(old, t *txn) {
	t.unproven = 0
	if t.Outcome != Pending {
		t.unproven = unresolved(t.Branches)
	}
	m.txns[t.ID] = t
	m.hand.put(old, t)
	m.seal(&t.sum, m.txnSum(t)) // a copy has the old one's
}
