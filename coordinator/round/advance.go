package round

// advance does whatever the state and the time allow, after every event. The order matters: what can
// no longer be kept ends the generation before anything else is begun.
func (m *Machine) advance(now Time) []Order {
	if m.closing.done {
		m.out = m.out[:0]
		return m.out
	}
	if m.closing.cause == "" {
		m.expire(now)
	}
	if m.closing.cause != "" {
		if m.closing.retryAt != 0 && now >= m.closing.retryAt {
			m.closing.retryAt = 0
			m.emit(ProposeClose{Cause: m.closing.cause, Halt: m.closing.halt})
		}
		return m.out
	}
	m.propose(now)
	m.complete()
	if m.mayOrder() && (m.finish.wanted || now >= m.barrierAt.Add(m.c.Interval)) {
		m.order(now)
	}
	m.proven()
	return m.out
}

// expire ends the generation when a vote is overdue or a branch would not outlive its commit.
func (m *Machine) expire(now Time) {
	for _, e := range m.open {
		if e.proposed {
			continue
		}
		if b, who := m.nearest(e); b != nil && !m.off.budget && b.deadline.Sub(now) <= m.c.CommitBudget {
			m.close("", "epoch %s: the branch in %s of member %s would expire in %s, the commit budget is %s",
				m.name(e.n), b.resource, who.Name, max(b.deadline.Sub(now), 0), m.c.CommitBudget)
			return
		}
		if e.missing > 0 && now >= e.at.Add(m.c.PrepareTimeout) {
			m.close("", "epoch %s: no vote within %s from %s", m.name(e.n), m.c.PrepareTimeout, list(m.missing(e)))
			return
		}
	}
}

// nearest is the counted vote of e whose branch is dropped first, if any.
func (m *Machine) nearest(e *epoch) (*ballot, *member) {
	var least *ballot
	var who *member
	for i := range e.ballots {
		b := &e.ballots[i]
		if b.counted && b.limited && (least == nil || b.deadline < least.deadline) {
			least, who = b, &m.members[i]
		}
	}
	return least, who
}

// propose proposes what every member has voted for and whose turn it is.
func (m *Machine) propose(now Time) {
	for _, e := range m.open {
		if e.n != m.decided+1 && !m.off.inOrder {
			return
		}
		ready := e.missing == 0 || m.off.fullSet && e.missing < len(m.members)
		if !ready || e.proposed || now < e.retryAt {
			continue
		}
		e.proposed = true
		m.emit(ProposeDecide{Decide: m.decision(e)})
	}
}

// complete orders the open barriers to attached sources that are not known to have them.
func (m *Machine) complete() {
	for _, e := range m.open {
		if m.c.Solo && !e.final || m.off.everyOne && e.n < m.newest {
			continue // the one member begins its epochs by itself
		}
		var to []string
		for i := range m.members {
			if who := &m.members[i]; m.takes(who) && who.attached && who.barrier < e.n {
				to = append(to, who.Name)
				who.barrier = e.n
			}
		}
		if len(to) > 0 {
			m.emit(SendBarrier{N: e.n, Final: e.final, Drain: e.drain, To: to})
		}
	}
}

// takes reports whether barriers are ordered to a member.
func (m *Machine) takes(who *member) bool { return who.Source || m.c.Solo }

// mayOrder reports whether a new barrier may be ordered, time apart.
func (m *Machine) mayOrder() bool {
	if m.closing.cause != "" || m.finalAt != 0 || m.Pending() >= m.c.MaxPending && !m.off.bound {
		return false
	}
	busy := m.off.idle
	for i := range m.members {
		who := &m.members[i]
		// A source that has not told what it has seen may know a newer barrier, even the final one. (Of
		// the others none knows one that a source does not.)
		if m.takes(who) && !who.attached && !m.off.sourcesTell {
			return false
		}
		busy = busy || who.work
	}
	return m.finish.wanted && (busy || !m.off.finishIdle) || busy && !m.c.Solo
}

// order opens the next epoch and orders its barrier.
func (m *Machine) order(now Time) {
	e := m.add(now)
	e.ours = true
	m.barrierAt = now
	if m.finish.wanted {
		m.setFinal(e)
	}
	for i := range m.members {
		m.members[i].work = false
	}
	m.complete()
}

// proven tells once that the generation has come to its end.
func (m *Machine) proven() {
	if m.lastDecided && !m.finish.told && m.Pending() == 0 {
		m.finish.told = true
		m.emit(AllProven{N: m.decided})
	}
}

// NextWake says when Tick is needed next; false: not before another event. It may lie in the past
// only when an event was not followed by its orders.
func (m *Machine) NextWake() (Time, bool) {
	w := wake{}
	switch {
	case m.closing.done:
	case m.closing.cause != "":
		if m.closing.retryAt != 0 {
			w.at(m.closing.retryAt)
		}
	default:
		m.alarms(&w)
	}
	return w.first, w.set
}

func (m *Machine) alarms(w *wake) {
	for _, e := range m.open {
		if e.proposed {
			continue
		}
		if b, _ := m.nearest(e); b != nil {
			w.at(b.deadline.Add(-m.c.CommitBudget))
		}
		if e.missing > 0 {
			w.at(e.at.Add(m.c.PrepareTimeout))
		} else if e.n == m.decided+1 {
			w.at(e.retryAt)
		}
	}
	if m.mayOrder() {
		w.at(m.barrierAt.Add(m.c.Interval))
	}
}

// wake is the earliest of several times.
type wake struct {
	first Time
	set   bool
}

func (w *wake) at(t Time) {
	if !w.set || t < w.first {
		w.first, w.set = t, true
	}
}

// list names things for people: "a", "a and b", "a, b and c".
func list(names []string) string {
	text := ""
	for i, name := range names {
		switch {
		case i == 0:
		case i == len(names)-1:
			text += " and "
		default:
			text += ", "
		}
		text += name
	}
	return text
}
