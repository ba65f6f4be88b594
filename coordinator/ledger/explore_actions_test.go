package ledger

import (
	"fmt"
	"slices"
)

type action struct {
	name string
	do   func(*world)
}

// actions are all steps that may happen next.
func (w *world) actions() []action {
	var as []action
	add := func(name string, do func(*world)) { as = append(as, action{name, do}) }
	w.logActions(add)
	if w.b.hand {
		w.handActions(add)
		return as
	}
	w.leaderActions(add)
	for i := range w.mem {
		w.memberActions(add, i)
	}
	w.finishActions(add)
	w.operatorActions(add)
	return as
}

type adder func(name string, do func(*world))

// logActions: a proposal applies, perhaps again, or is lost. It need not be the oldest.
func (w *world) logActions(add adder) {
	for i, p := range w.pool {
		add("apply "+p.name, func(w *world) {
			p := &w.pool[i]
			cmd, seen := p.cmd, p.seen
			if p.left--; p.left == 0 {
				w.pool = slices.Delete(w.pool, i, i+1)
			}
			if r := w.apply(cmd); r.Opened != nil {
				w.seen = seen
			}
		})
		add("lose "+p.name, func(w *world) { w.pool = slices.Delete(w.pool, i, i+1) })
	}
}

// propose puts a command on its way. The request id is that of the intent, so that a second leader
// with the same intent and the same view repeats it.
func (w *world) propose(add adder, name string, at int64, body Body) {
	if len(w.pool) >= w.b.pool || slices.ContainsFunc(w.pool, func(p proposal) bool { return p.name == name }) {
		return
	}
	seen := w.m.scopes[theScope]
	add("propose "+name, func(w *world) {
		p := proposal{name: name, cmd: Command{Request: name, Actor: "leader", At: at, Body: body}, left: 1 + w.b.repeats}
		if w.b.staleRestore {
			p.seen = seen.restore
		}
		w.pool = append(w.pool, p)
	})
}

func (w *world) leaderActions(add adder) {
	s := w.m.scopes[theScope]
	if w.m.pipelines["p"] == nil {
		return
	}
	g := s.newest()
	var from Generation
	if g != nil {
		from = g.Generation
	}
	if uint8(w.m.lastGeneration) < w.b.generations {
		o := opening("p", from, fmt.Sprint(from))
		w.propose(add, fmt.Sprintf("open from %d after %d", from, s.openAfter), max(w.at, s.openAfter), o)
		if s.openAfter > w.at {
			w.propose(add, fmt.Sprintf("open from %d early", from), w.at, o)
		}
	}
	if g == nil || !g.Open {
		return
	}
	at := w.at
	if w.b.old { // else every generation ends, and decides, while it is young
		at = max(at, g.OpenedAt) + settled
	}
	if w.left.closes > 0 {
		w.propose(add, fmt.Sprintf("close %d", from), at, CloseGeneration{Scope: theScope, Generation: from, Cause: "lease"})
	}
	for n := uint8(g.Final) + 1; n <= w.b.epochs; n++ {
		if d, name, ok := w.decision(g, n); ok {
			w.propose(add, name, at, d)
		}
	}
}

// decision gathers the votes that members of the generation hold for epoch n.
func (w *world) decision(g *GenerationRecord, n uint8) (Decide, string, bool) {
	e := Epoch{g.Generation, uint64(n)}
	name := "decide " + e.String()
	var votes []Vote
	for i, m := range w.mem {
		if Generation(m.gen) != g.Generation || m.prepared < n {
			continue
		}
		v := deciding("p", e, fmt.Sprint(from(g)), uint64(m.done)).Votes[1-i]
		v.Positions[0].Offset = m.base + int64(n)
		v.Parts = append(v.Parts, StatePart{ID: fmt.Sprintf("base%d.%s", g.Generation, v.Member), Store: "s"})
		if w.b.readOnly && i == 1 && n%2 == 0 {
			v.Branches = nil
		}
		votes = append(votes, v)
		name += fmt.Sprintf(" %s%d", v.Member, m.done)
	}
	final := w.stopping()
	if final {
		name += " final"
	}
	return Decide{Scope: theScope, Epoch: e, Votes: votes, Final: final}, name, len(votes) == 2 || len(votes) == 1 && w.b.sloppy
}

// from is the generation that g followed: instances are named after it.
func from(g *GenerationRecord) string { return g.Members[0].Instance[1:] }

func (w *world) stopping() bool {
	p := w.m.pipelines["p"]
	return p != nil && (p.Desired == Stopping || p.Desired == Draining)
}

// memberActions: restore, prepare, hear a decision, hear a close, crash.
func (w *world) memberActions(add adder, i int) {
	m, name := w.mem[i], memberName[i]
	if o, ok := w.m.Reopened(theScope); ok && uint8(o.Generation) > max(m.gen, m.dead) {
		add("restore "+name, func(w *world) { w.restore(i) })
	}
	if m.gen == 0 {
		return
	}
	if m.prepared < w.b.epochs && m.prepared-m.done < 2 && w.res[i].fence <= m.gen {
		add("prepare "+name, func(w *world) { w.prepare(i) })
	}
	e := Epoch{Generation(m.gen), uint64(m.done) + 1}
	if m.done < m.prepared && w.m.EpochOutcome(theScope, e) == Committed && w.res[i].is[e.Generation][e.N] != dropped {
		add("hear committed "+name, func(w *world) { w.commit(i, e); w.mem[i].done++ })
	}
	if w.final[m.gen] != 0 {
		add("hear close "+name, func(w *world) { w.hearClose(i) })
	}
	if w.left.crashes > 0 {
		add("crash "+name, func(w *world) { w.mem[i] = member{dead: m.gen}; w.left.crashes-- })
	}
}

func (w *world) prepare(i int) {
	m := &w.mem[i]
	m.prepared++
	if w.b.readOnly && i == 1 && m.prepared%2 == 0 {
		return
	}
	w.res[i].is[m.gen][m.prepared] = prepared
}

// commit makes an epoch's branch committed, if there is one and it is not.
func (w *world) commit(i int, e Epoch) {
	if w.res[i].is[e.Generation][e.N] == prepared {
		w.change(i, e, committed)
	}
}

// restore does what a member does with the answer of the open.
func (w *world) restore(i int) {
	o, _ := w.m.Reopened(theScope)
	g := uint8(o.Generation)
	w.res[i].fence = g
	listed := map[Epoch]bool{}
	for _, u := range o.Unfinished {
		if u.Branch.Member == memberName[i] {
			listed[u.Epoch] = true
			w.commit(i, u.Epoch)
		}
	}
	for old := uint8(1); old < g; old++ {
		for n := 1; n <= maxN; n++ {
			if e := (Epoch{Generation(old), uint64(n)}); w.res[i].is[old][n] == prepared && !listed[e] {
				w.change(i, e, rolledBack)
			}
		}
	}
	base := offsetOf(o.RestorePoint)
	if w.b.staleRestore {
		base = 0
		if e, ok := w.m.Epoch(theScope, w.seen); ok {
			base = e.Votes[0].Positions[0].Offset
		}
	}
	w.mem[i] = member{gen: g, base: base}
}

// hearClose commits through final and rolls back above, then the member is free.
func (w *world) hearClose(i int) {
	m := w.mem[i]
	for n := uint8(1); n <= m.prepared; n++ {
		e := Epoch{Generation(m.gen), uint64(n)}
		switch {
		case n < w.final[m.gen]:
			if n > m.done {
				w.commit(i, e)
			}
		case w.res[i].is[m.gen][n] == prepared:
			w.change(i, e, rolledBack)
		}
	}
	w.mem[i] = member{}
}

// finishActions: per resource the first unfinished branch is finished, then proven; debts are swept.
func (w *world) finishActions(add adder) {
	unfinished, debts := w.m.ScopeOutstanding(theScope)
	for i := range w.res {
		for _, u := range unfinished {
			if u.Branch.Member != memberName[i] {
				continue
			}
			if w.res[i].is[u.Epoch.Generation][u.Epoch.N] == prepared {
				add("finish "+string(u.Txn)+memberName[i], func(w *world) { w.commit(i, u.Epoch) })
				if w.left.drops > 0 {
					add("drop "+string(u.Txn)+memberName[i], func(w *world) {
						w.left.drops--
						w.change(i, u.Epoch, dropped)
					})
				}
			} else {
				add("prove "+string(u.Txn)+memberName[i], func(w *world) { w.prove(i, u) })
			}
			if w.left.lies > 0 && w.res[i].is[u.Epoch.Generation][u.Epoch.N] == committed {
				w.propose(add, "lie about "+u.Epoch.String()+memberName[i], w.at, proving("p", u.Epoch, memberName[i], resName[i], ProvenRolledBack))
			}
			break
		}
	}
	for _, d := range debts {
		if w.b.sweeps {
			add(fmt.Sprintf("sweep %d %s", d.Generation, d.Branch), func(w *world) { w.sweep(d) })
		}
	}
}

func (w *world) prove(i int, u Unfinished) {
	v := ProvenCommitted
	switch w.res[i].is[u.Epoch.Generation][u.Epoch.N] {
	case dropped:
		v = ProvenRolledBack
	case committed:
	default:
		w.broken("%s is decided, and %s never prepared it", u.Epoch, resName[i])
	}
	w.must(proving("p", u.Epoch, memberName[i], resName[i], v))
}

// sweep rolls back what is dead in a resource, then pays.
func (w *world) sweep(d Debt) {
	i := slices.Index(memberName[:], d.Branch.Member)
	for n := uint64(1); n <= maxN; n++ {
		e := Epoch{d.Generation, n}
		if w.res[i].is[e.Generation][n] == prepared && w.m.EpochOutcome(theScope, e) == Aborted {
			w.change(i, e, rolledBack)
		}
	}
	w.must(Swept{Scope: theScope, Generation: d.Generation, Branch: d.Branch})
}

func (w *world) operatorActions(add adder) {
	s, p := w.m.scopes[theScope], w.m.pipelines["p"]
	if p == nil {
		add("make again", func(w *world) { w.must(PutPipeline{Pipeline: twoMembers("p")}) })
		return
	}
	if w.left.retires > 0 && len(s.epoch) > 0 {
		add("retire", func(w *world) { w.left.retires--; w.must(Retire{}) })
	}
	if w.left.removals > 0 {
		w.propose(add, "delete", w.at, DeletePipeline{Name: "p", Revision: p.Revision})
		w.propose(add, "rename", w.at, PutPipeline{Pipeline: renamed(p.Revision)})
		w.propose(add, "reshard", w.at, Reshard{Pipeline: "p", Revision: p.Revision, Shards: 1})
	}
	if s.halted != "" {
		w.propose(add, "resume", w.at, Resume{Scope: theScope, Why: "test"})
		for _, e := range s.bad {
			add("force "+e.Epoch.String(), func(w *world) { w.force(e.Epoch) })
		}
	}
	if w.left.rewinds > 0 {
		for _, e := range s.epoch {
			if e.Epoch != s.restore && len(e.Votes) > 0 {
				add("rewind "+e.Epoch.String(), func(w *world) { w.rewind(e.Epoch) })
			}
			add("pin "+e.Epoch.String(), func(w *world) {
				w.apply(Command{At: w.at, Body: Pin{Scope: theScope, Epoch: e.Epoch, Unpin: w.m.scopes[theScope].isPinned(e.Epoch)}})
			})
		}
	}
	if w.left.stops > 0 {
		for d := Running; d <= Stopped; d++ {
			if d != p.Desired {
				add("want "+d.String(), func(w *world) {
					w.left.stops--
					w.apply(Command{At: w.at, Body: SetDesired{Pipeline: "p", From: w.m.pipelines["p"].Desired, To: d}})
				})
			}
		}
	}
}

// renamed is the pipeline with another member in place of b.
func renamed(revision uint64) Pipeline {
	p := twoMembers("p")
	p.Revision, p.Members[1].Resources[0].Name = revision, "other"
	return p
}

func (w *world) force(e Epoch) {
	for _, b := range w.m.scopes[theScope].find(e).Branches {
		if b.heuristic(Committed) {
			w.must(Force{Txn: EpochTxn(theScope, e), Branch: b.ID, Action: AcceptLoss, Why: "test"})
		}
	}
}

func (w *world) rewind(to Epoch) {
	r := w.apply(Command{At: w.at, Body: Rewind{Scope: theScope, To: to, Why: "test"}})
	w.left.rewinds--
	if r.OK() {
		w.offset = w.m.scopes[theScope].find(to).Votes[0].Positions[0].Offset
	}
}

// handActions: a client, a doubting participant and a clean-up race over one transaction.
func (w *world) handActions(add adder) {
	branch := []HandBranch{{Resource: "r"}}
	with := []HandBranch{{Resource: "r", Handle: Handle{Kind: "mem", Name: "h"}}}
	w.propose(add, "announce", w.at, Announce{Txn: theTxn, Branches: branch})
	w.propose(add, "commit", w.at, Commit{Txn: theTxn, Branches: with})
	w.propose(add, "abort", w.at, PresumeAbort{Txn: theTxn, Why: "asked"})
	w.propose(add, "commit from the future", w.at, Commit{Txn: handID(w.at+MaxAhead+1, 1), Branches: with})
	if t, ok := w.m.Txn(theTxn); ok {
		v := ProvenCommitted
		if t.Outcome != Committed {
			v = ProvenRolledBack
		}
		w.propose(add, fmt.Sprint("prove ", v), w.at, Resolve{Txn: theTxn, Branch: BranchID{Resource: "r"}, Proof: Proof{Verdict: v}})
	}
	if w.left.retires > 0 {
		add("later, retire", func(w *world) {
			w.left.retires--
			w.at += 5000
			w.must(Retire{KeepFor: 1000})
		})
	}
	w.propose(add, "node", w.at, PutNode{Node: Node{ID: "n", ClientAddress: "c", FeatureLevel: 1}})
	w.propose(add, "old node", w.at, PutNode{Node: Node{ID: "n", ClientAddress: "c"}})
	w.propose(add, "raise", w.at, RaiseFeatureLevel{Level: 1})
}
