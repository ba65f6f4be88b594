package round

import (
	"slices"

	"github.com/unisink/unisink/coordinator/ledger"
)

// epoch is one epoch from its barrier to its decision.
type epoch struct {
	n        uint64
	final    bool
	drain    bool
	ours     bool // its barrier was first ordered by this leader
	told     bool // final was said by a member, not only ordered
	at       Time // when the barrier was ordered; not ours: when this leader heard of it
	ballots  []ballot
	missing  int  // ballots not counted
	proposed bool // and no answer yet
	doubtful bool // an earlier proposal may still be applied
	retryAt  Time // no proposal before
}

func (m *Machine) epoch(n uint64) *epoch {
	if n <= m.decided || n > m.newest {
		return nil
	}
	return m.open[n-m.decided-1]
}

// add opens the next epoch.
func (m *Machine) add(now Time) *epoch {
	var e *epoch
	if k := len(m.spare); k > 0 {
		e, m.spare = m.spare[k-1], m.spare[:k-1]
		clear(e.ballots)
		*e = epoch{ballots: e.ballots}
	} else {
		e = &epoch{ballots: make([]ballot, len(m.members))}
	}
	m.newest++
	e.n, e.at, e.missing = m.newest, now, len(m.members)
	m.open = append(m.open, e)
	return e
}

// setFinal makes e the last epoch.
func (m *Machine) setFinal(e *epoch) {
	e.final, e.drain = true, m.finish.drain
	m.finalAt = e.n
}

// sighted takes in that a member has seen the barrier of n, and every one before it. It reports
// whether the machine may go on with n; if not, the way out was taken or the claim is unusable.
func (m *Machine) sighted(who *member, n uint64, final bool, now Time) bool {
	if n <= m.decided {
		return false
	}
	if n-m.decided > maxAhead {
		m.close("", "member %s claims to have seen the barrier of epoch %s, but the last one decided is %d", who.Name, m.name(n), m.decided)
		return false
	}
	// With one member the final barrier that was ordered and an epoch that the member began by itself
	// may cross on the way; the member then makes a later one its last.
	if last := m.epoch(m.finalAt); m.c.Solo && last != nil && !last.told && (n > last.n || n == last.n && !final) {
		last.final, m.finalAt = false, 0
	}
	if m.finalAt != 0 && n > m.finalAt {
		m.close("", "member %s claims to have seen the barrier of epoch %s after the final one, %d", who.Name, m.name(n), m.finalAt)
		return false
	}
	for m.newest < n {
		m.add(now)
	}
	who.barrier = max(who.barrier, n)
	e := m.epoch(n)
	if final && !e.final {
		if n < m.newest || e.ours {
			m.close("", "member %s takes epoch %s for the final one, which it is not", who.Name, m.name(n))
			return false
		}
		m.setFinal(e)
	}
	e.told = e.told || final
	return true
}

func (m *Machine) name(n uint64) string {
	return string(ledger.EpochTxn(m.c.Scope, ledger.Epoch{Generation: m.c.Generation, N: n}))
}

// missing names the members whose vote for e is not counted.
func (m *Machine) missing(e *epoch) []string {
	var names []string
	for i := range e.ballots {
		if !e.ballots[i].counted {
			names = append(names, m.members[i].Name)
		}
	}
	return names
}

// decision is the command for e, with what is known to be proven by now.
func (m *Machine) decision(e *epoch) ledger.Decide {
	votes := make([]ledger.Vote, 0, len(e.ballots))
	for i := range e.ballots {
		if !e.ballots[i].counted {
			continue // only with the rule for full sets switched off
		}
		v := e.ballots[i].vote
		v.ProvenThrough = max(v.ProvenThrough, min(m.members[i].proven, m.decided))
		votes = append(votes, v)
	}
	return ledger.Decide{
		Scope: m.c.Scope, Epoch: ledger.Epoch{Generation: m.c.Generation, N: e.n},
		Votes: slices.Clip(votes), Final: e.final,
	}
}
