package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// cases together reach every command and every refusal.
func cases() []bounds {
	n := func(short, usual, deep int) int { return deeper(short, usual, deep) }
	return []bounds{
		{name: "from nothing", generations: 2, epochs: 1, pool: 2, crashes: 1, closes: 1, sweeps: true, states: n(2000, 0, 0)},
		{name: "two leaders", ready: true, old: true, generations: 2, epochs: 2, pool: 2, crashes: 1, closes: 1, states: n(2000, 30000, 3000000)},
		{name: "repeats", ready: true, generations: 2, epochs: 2, pool: 2, repeats: 1, closes: 1, sloppy: true, states: n(2000, 30000, 3000000)},
		{name: "three generations", ready: true, generations: 3, epochs: 1, pool: 1, crashes: 1, closes: 2, readOnly: true, states: n(2000, 30000, 2000000)},
		{name: "broken promises", ready: true, generations: 2, epochs: 2, pool: 1, closes: 1, drops: 1, lies: 1, states: n(2500, 30000, 2000000)},
		{name: "rewind and retire", ready: true, old: true, generations: 2, epochs: 2, pool: 1, closes: 1, rewinds: 1, retires: 2, states: n(9000, 30000, 2000000)},
		{name: "stop and drain", ready: true, generations: 3, epochs: 2, pool: 1, closes: 1, stops: 3, readOnly: true, states: n(2500, 30000, 2000000)},
		{name: "delete and make again", ready: true, generations: 2, epochs: 1, pool: 1, closes: 1, removals: 1, sweeps: true, states: n(2500, 30000, 2000000)},
		{name: "by hand", hand: true, pool: 2, repeats: 1, retires: 2, states: n(3000, 0, 0)},
	}
}

// In -short, which the race detector runs, only two of the cases are walked: there is one goroutine here.
func TestExplore(t *testing.T) {
	covered = coverage{}
	for _, b := range cases() {
		t.Run(b.name, func(t *testing.T) {
			if testing.Short() && b.name != "from nothing" && b.name != "by hand" {
				t.Skip("walked in one goroutine; make test and make explore walk it")
			}
			s := explore(&b, switchedOff())
			how := "all of them"
			if s.cut {
				how = "cut there"
			}
			t.Logf("%d distinct states (%s), %d transitions, %d steps deep", s.states, how, s.transitions, s.depth)
			if s.found != "" {
				t.Fatalf("%s\nafter: %s", s.found, s.trail)
			}
			if s := wander(&b, switchedOff(), min(deeper(20, 200, 20000), 20000), 80); s.found != "" {
				t.Fatalf("%s\nafter: %s", s.found, s.trail)
			}
		})
	}
	if !testing.Short() {
		t.Run("reached", reportCoverage)
	}
}

// reportCoverage fails when a command was never applied, or a refusal never given.
func reportCoverage(t *testing.T) {
	// Without Note: acts are counted, so with them no two ways would lead to one state.
	bodies := []Body{
		Init{},
		PutNode{},
		PutPipeline{},
		DeletePipeline{},
		SetDesired{},
		OpenGeneration{},
		CloseGeneration{},
		Decide{},
		Announce{},
		Commit{},
		PresumeAbort{},
		Resolve{},
		Swept{},
		Rewind{},
		Resume{},
		Force{},
		Retire{},
		Reshard{},
		RaiseFeatureLevel{},
		Pin{},
	}
	for _, b := range bodies {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", b), "ledger.")
		if covered[kind][refusalUnset] == 0 {
			t.Errorf("%s was never applied", kind)
		}
		var line []string
		for _, r := range slices.Sorted(maps.Keys(covered[kind])) {
			line = append(line, fmt.Sprintf("%s %d", r, covered[kind][r]))
		}
		t.Logf("%-18s %s", kind, strings.Join(line, ", "))
	}
	for r := NotFound; r <= Unsupported; r++ {
		reached := slices.ContainsFunc(slices.Collect(maps.Values(covered)), func(m map[Refusal]int) bool { return m[r] > 0 })
		if !reached {
			t.Errorf("nothing was ever refused as %s", r)
		}
	}
}

// fairEnd goes on without further faults: everything is closed, finished and swept, and then the
// resources must hold exactly what was decided, and the next generation must start there.
func (w *world) fairEnd() {
	if w.b.hand {
		w.fairHandEnd()
		return
	}
	if w.m.pipelines["p"] == nil {
		return
	}
	w.pool, w.mem = nil, [2]member{}
	s := w.m.scopes[theScope]
	if g := s.newest(); g != nil && g.Open {
		w.must(CloseGeneration{Scope: theScope, Generation: g.Generation, Cause: "fair end"})
	}
	for range 50 {
		unfinished, debts := w.m.ScopeOutstanding(theScope)
		if len(unfinished)+len(debts) == 0 {
			break
		}
		for _, u := range unfinished {
			i := slices.Index(memberName[:], u.Branch.Member)
			w.commit(i, u.Epoch)
			w.prove(i, u)
		}
		for _, d := range debts {
			w.sweep(d)
		}
	}
	if u, d := w.m.ScopeOutstanding(theScope); len(u)+len(d) > 0 {
		w.broken("%d branches and %d debts are never finished", len(u), len(d))
	}
	w.listNamespace()
	w.compareResources()
	w.openAgain()
}

// listNamespace is a resolver's regular listing: what a paused process prepared after the debts
// were paid is found by it alone (P13).
func (w *world) listNamespace() {
	for g := range Generation(maxGen) {
		for n := uint64(1); n <= maxN; n++ {
			for i := range w.res {
				if e := (Epoch{g, n}); w.res[i].is[g][n] == prepared && w.m.EpochOutcome(theScope, e) == Aborted {
					w.change(i, e, rolledBack)
				}
			}
		}
	}
}

func (w *world) compareResources() {
	for g := range uint64(maxGen) {
		for n := uint64(1); n <= maxN && g > 0; n++ {
			e := Epoch{Generation(g), n}
			verdict := w.m.EpochOutcome(theScope, e)
			for i := range w.res {
				switch is := w.res[i].is[g][n]; {
				case is == prepared:
					w.broken("%s stays prepared in %s", e, resName[i])
				case verdict == Committed && is != committed && is != dropped && !(w.b.readOnly && i == 1 && n%2 == 0):
					w.broken("%s was decided, and is %d in %s", e, is, resName[i])
				}
			}
		}
	}
}

// openAgain starts the next generation, as the session would: with the request id of its intent.
func (w *world) openAgain() {
	s, p := w.m.scopes[theScope], w.m.pipelines["p"]
	if s.halted != "" {
		w.must(Resume{Scope: theScope, Why: "fair end"})
	}
	if p.Desired == Draining {
		w.must(SetDesired{Pipeline: "p", From: Draining, To: Stopping})
	}
	if p.Desired == Stopping {
		w.must(SetDesired{Pipeline: "p", From: Stopping, To: Stopped})
	}
	if p.Desired == Stopped {
		w.must(SetDesired{Pipeline: "p", From: Stopped, To: Running})
	}
	var last Generation
	if g := s.newest(); g != nil {
		last = g.Generation
	}
	o := opening("p", last, fmt.Sprint(last))
	if p.Members[1].Resources[0].Name == "other" {
		return
	}
	r := w.apply(Command{Request: fmt.Sprintf("open from %d after %d", last, s.openAfter), At: max(w.at, s.openAfter), Body: o})
	if !r.OK() {
		w.broken("the next generation is refused for ever: %s", r.Text)
	}
}

func (w *world) fairHandEnd() {
	w.pool = nil
	r := w.apply(Command{At: w.at, Body: PresumeAbort{Txn: theTxn}})
	if r.Outcome == outcomeUnset && r.Refusal != TooOld {
		w.broken("the transaction gets no verdict: %s", r.Text)
	}
	for _, u := range w.m.Outstanding().Unfinished {
		v := ProvenCommitted
		if u.Outcome == Aborted {
			v = ProvenRolledBack
		}
		w.must(Resolve{Txn: u.Txn, Branch: u.Branch, Proof: Proof{Verdict: v}})
	}
	if t, ok := w.m.Txn(theTxn); ok && t.Heuristic != "" {
		w.must(Force{Txn: theTxn, Branch: BranchID{Resource: "r"}, Action: AcceptLoss, Why: "test"})
	}
	w.at += 1_000_000
	w.must(Retire{})
	if n := len(w.m.Txns(false, "", 0)); n > 0 {
		w.broken("%d transactions are never forgotten", n)
	}
}
