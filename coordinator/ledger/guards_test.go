package ledger

import (
	"os"
	"strings"
	"testing"
)

// Each rule that the protocol broke a promise without is switched off here, and the explorer or a
// golden scenario must miss it. A rule that nothing misses is not tested.
func TestEachGuardIsMissed(t *testing.T) {
	scope := bounds{ready: true, generations: 2, epochs: 2, pool: 2, closes: 1, states: 40000}
	early := bounds{generations: 2, epochs: 1, pool: 2, repeats: 1, closes: 1, states: 40000}
	sloppy, broken, stop, again, rewind, hand, stale := scope, scope, scope, scope, scope, scope, scope
	sloppy.sloppy, sloppy.pool = true, 1
	broken.drops, broken.lies = 1, 1
	stop.stops, stop.pool = 2, 1
	again.removals, again.sweeps, again.pool, again.epochs = 1, true, 1, 1
	rewind.retires, rewind.rewinds, rewind.pool = 2, 1, 1
	hand = bounds{hand: true, pool: 2, repeats: 1, retires: 2}
	stale.staleRestore, stale.old, early.old = true, true, true // a young generation would delay the next

	for _, c := range []struct {
		name  string
		off   unguarded
		by    bounds // the case that must find it; else the scenario must differ
		story string
		try   func(*Machine) bool // or this must go wrong
	}{
		{name: "P5/Decide takes any n", off: unguarded{gapCheck: true}, by: scope},
		{name: "P3/open follows what is open", off: unguarded{openUnclosed: true}, by: early},
		{name: "P3/restore point read before the open applies", by: stale},
		{name: "E6/decided after the close", off: unguarded{decideClosed: true}, by: scope},
		{name: "E6/decided on a partial set", off: unguarded{everyVote: true}, by: sloppy},
		{name: "Z1/vote of another instance", off: unguarded{instanceCheck: true}, try: decidedByStrangers},
		{name: "P20/refusal remembered", off: unguarded{rememberRefusals: true}, by: early},
		{name: "P10/no floor", off: unguarded{floorCheck: true}, by: hand},
		{name: "P10/ids from the future", off: unguarded{aheadCheck: true}, story: "P10-floor-of-hand-run-ids"},
		{name: "P16/later proof replaces the first", off: unguarded{firstProof: true}, by: broken},
		{name: "T1/broken promise halts nothing", off: unguarded{haltOnHeuristic: true}, by: broken},
		{name: "S5/retired before it is resolved", off: unguarded{retireUnresolved: true}, by: rewind},
		{name: "P9/part given up while named", off: unguarded{namedParts: true}, by: rewind},
		{name: "P11/generations counted anew", off: unguarded{reuseGenerations: true}, by: again},
		{name: "P22/opened against the desired state", off: unguarded{desiredFirst: true}, by: stop},
		{name: "P24/no back-off", off: unguarded{backoff: true}, story: "P24-poison-record"},
		{name: "P24/decision of a young generation", off: unguarded{youngDecision: true}, story: "P24-poison-record"},
		{name: "resource of another identity", off: unguarded{anyResource: true}, story: "restart-elsewhere-is-refused"},
		{name: "P17/close answers without final", off: unguarded{finalForClose: true}, by: scope},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.try != nil {
				if m := running(t); c.try(m) {
					t.Fatal("it goes wrong with the rule, too")
				}
				m := running(t)
				m.unguarded = c.off
				if !c.try(m) {
					t.Fatal("nobody missed it")
				}
				return
			}
			if c.story != "" {
				missedByStory(t, c.story, c.off)
				return
			}
			if testing.Short() {
				t.Skip("walked in one goroutine; make test walks it")
			}
			s := explore(&c.by, c.off)
			if s.found == "" {
				t.Fatalf("nobody missed it in %d states", s.states)
			}
			t.Logf("%s\nafter: %s", s.found, s.trail)
		})
	}
}

// decidedByStrangers tries votes of instances that the open generation does not name.
func decidedByStrangers(m *Machine) bool {
	m.Apply(Command{At: 1000, Body: deciding("p", Epoch{1, 1}, "9", 0)})
	return m.EpochOutcome(theScope, Epoch{1, 1}) == Committed && m.Check() != nil
}

// missedByStory wants the scenario to answer otherwise without the rule.
func missedByStory(t *testing.T, story string, off unguarded) {
	raw, err := os.ReadFile("testdata/" + story + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	p := newScript(t)
	p.m.unguarded = off
	for block := range strings.SplitSeq(strings.TrimSpace(string(raw)), "\n\n") {
		input, want, _ := strings.Cut(block, "\n----\n")
		var got strings.Builder
		for line := range strings.Lines(input) {
			if line = strings.TrimSpace(line); !comment(line) {
				got.WriteString(p.run(line))
			}
		}
		if d := firstDifference(strings.TrimSpace(got.String()), strings.TrimSpace(want)); d != "" {
			t.Log(d)
			return
		}
	}
	t.Fatalf("scenario %s does not miss the rule", story)
}
