package ledger

import "fmt"

// The trail of what people did, from feature level 2 on: the newest MaxActs acts of operators and changes of
// the group. What members and leaders do by themselves is not in it: a process that dies over and over
// would push out what a person did, and generations keep their causes.

// Act is one act, as it was applied.
type Act struct {
	// N counts the acts of the group from 1; those before the oldest that is kept are forgotten.
	N        uint64
	At       int64 // the leader's clock, Unix ms
	Actor    string
	Kind     string // "rewind", "set desired state"
	Pipeline string // that it was about; empty: the group
	What     string // one line: of what, to what
	Why      string // in the actor's words, where they are asked for
}

// act says what a command is in the trail; false if it is not in it.
func act(b Body) (Act, bool) {
	scoped := func(kind string, s ScopeID, why, format string, args ...any) (Act, bool) {
		return Act{Kind: kind, Pipeline: s.Pipeline, What: s.String() + fmt.Sprintf(format, args...), Why: why}, true
	}
	switch b := b.(type) {
	case PutPipeline:
		return Act{Kind: "put pipeline", Pipeline: b.Pipeline.Name, What: fmt.Sprintf("revision %d", b.Pipeline.Revision+1)}, true
	case DeletePipeline:
		return Act{Kind: "delete pipeline", Pipeline: b.Name, What: fmt.Sprintf("revision %d", b.Revision)}, true
	case SetDesired:
		return Act{Kind: "set desired state", Pipeline: b.Pipeline, What: fmt.Sprintf("from %s to %s", b.From, b.To)}, true
	case Reshard:
		return Act{Kind: "reshard", Pipeline: b.Pipeline, What: fmt.Sprintf("to %d shards", b.Shards)}, true
	case Rewind:
		return scoped("rewind", b.Scope, b.Why, " to %s", b.To)
	case Resume:
		if b.From.IsZero() {
			return scoped("resume", b.Scope, b.Why, "")
		}
		return scoped("resume", b.Scope, b.Why, " from %s", b.From)
	case Pin:
		if b.Unpin {
			return scoped("unpin", b.Scope, "", " %s", b.Epoch)
		}
		return scoped("pin", b.Scope, "", " %s", b.Epoch)
	case Force:
		return forceAct(b), true
	case PutNode:
		if b.Node == (Node{ID: b.Node.ID}) {
			return Act{Kind: "remove node", What: b.Node.ID}, true
		}
		return Act{Kind: "put node", What: fmt.Sprintf("%s at %s, feature level %d", b.Node.ID, b.Node.ClientAddress, b.Node.FeatureLevel)}, true
	case RaiseFeatureLevel:
		return Act{Kind: "raise feature level", What: fmt.Sprintf("to %d", b.Level)}, true
	case Note:
		return Act{Kind: b.Kind, Pipeline: b.Pipeline, What: b.What, Why: b.Why}, true
	default:
		return Act{}, false
	}
}

func forceAct(b Force) Act {
	if b.Action == WriteOff {
		return Act{Kind: "write off", Pipeline: b.Scope.Pipeline, What: fmt.Sprintf("%s generation %d, %s", b.Scope, b.Generation, b.Branch), Why: b.Why}
	}
	a := Act{Kind: "accept loss", What: fmt.Sprintf("%s, %s", b.Txn, b.Branch), Why: b.Why}
	if scope, _, epoch := b.Txn.Epoch(); epoch {
		a.Pipeline = scope.Pipeline
	}
	return a
}

// audit adds an applied command to the trail, if it belongs there.
func (m *Machine) audit(c *Command) {
	a, is := act(c.Body)
	if !is {
		return
	}
	a.N, a.At, a.Actor = 1, c.At, clip(c.Actor)
	a.Kind, a.What, a.Why = clip(a.Kind), clip(a.What), clip(a.Why)
	if n := len(m.acts); n > 0 {
		a.N = m.acts[n-1].N + 1
	}
	if len(m.acts) == MaxActs && !m.unguarded.endlessTrail {
		m.digest -= m.actSum(&m.acts[0])
		m.acts = m.acts[1:]
	}
	m.acts = append(m.acts, a) // what was handed out ends before it
	m.digest += m.actSum(&a)
}

func (m *Machine) actSum(a *Act) uint64 {
	e := m.enc.reset()
	e.text("act")
	e.act(a)
	return e.sum()
}

func (e *encoder) act(a *Act) {
	e.num(a.N)
	e.int(a.At)
	e.text(a.Actor)
	e.text(a.Kind)
	e.text(a.Pipeline)
	e.text(a.What)
	e.text(a.Why)
}

// fillActs takes the trail of a state.
func (m *Machine) fillActs(acts []Act) {
	m.acts = acts[:len(acts):len(acts)]
	for i := range m.acts {
		m.digest += m.actSum(&m.acts[i])
	}
}

func (m *Machine) checkActs() error {
	switch {
	case len(m.acts) > 0 && m.level < AuditLevel:
		return broken("there is a trail of acts at feature level %d", m.level)
	case len(m.acts) > MaxActs:
		return broken("%d acts are kept, at most %d are", len(m.acts), MaxActs)
	}
	for i, a := range m.acts {
		if a.N == 0 || i > 0 && a.N != m.acts[i-1].N+1 {
			return broken("act %d stands out of order", a.N)
		}
	}
	return nil
}

// note puts what is done outside of the log into the trail.
func (m *Machine) note(s *step, b Note) {
	if b.Kind == "" || b.What == "" {
		s.refuse(Invalid, "a note says what was done and to what")
	}
}

// Acts is the trail, oldest first. Its first is not number 1 when older ones are forgotten.
func (m *Machine) Acts() []Act { return m.acts[:len(m.acts):len(m.acts)] }
