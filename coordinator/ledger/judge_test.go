package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// found is what a listing shows of member a's branch of an epoch of pipeline p.
func found(e Epoch, handle string) Found {
	return Found{
		Namespace: "test", Incarnation: 1, Scope: theScope, Epoch: e, Branch: BranchID{Member: "a", Resource: "out"},
		Handle: Handle{Kind: "mem", Version: 1, Name: handle},
	}
}

// listedHandle is the name of the handle with which deciding names member a's branch.
func listedHandle(e Epoch) string { return e.String() + ".a" }

// judged is a machine of which generation 1 decided 1 to 5, the first two retired, and was closed; 2 is open and
// has decided one epoch.
func judged(t *testing.T) *Machine {
	t.Helper()
	m := running(t)
	for n := uint64(1); n <= 5; n++ {
		apply(t, m, int64(1000+n*1000), deciding("p", Epoch{1, n}, "1", n-1))
	}
	apply(t, m, 7000,
		proving("p", Epoch{1, 5}, "a", "out", ProvenCommitted), proving("p", Epoch{1, 5}, "b", "dir", ProvenCommitted),
		CloseGeneration{Scope: theScope, Generation: 1, Cause: "test"})
	apply(t, m, 9000, Retire{KeepEpochs: 1})
	apply(t, m, 90_000, opening("p", 1, "2"))
	apply(t, m, 91_000, deciding("p", Epoch{2, 1}, "2", 0))
	return m
}

// Row P7, and each rule of what is done with a prepared thing.
func TestP7_WhatIsFoundIsJudgedByTheDecisionsHandles(t *testing.T) {
	m := judged(t)
	foreign, later, stranger := found(Epoch{1, 9}, "x"), found(Epoch{1, 9}, "x"), found(Epoch{1, 9}, "x")
	foreign.Namespace, later.Incarnation, stranger.Scope = "test-eu", 2, ScopeID{Pipeline: "p-eu"}
	unnumbered := func(g Generation, since int64) Found {
		f := found(Epoch{g, 0}, "x")
		f.Since = since
		return f
	}
	for name, c := range map[string]struct {
		found Found
		want  Sentence
	}{
		"listed":                                           {found(Epoch{1, 5}, listedHandle(Epoch{1, 5})), SentenceCommit},
		"listed, in the open generation":                   {found(Epoch{2, 1}, listedHandle(Epoch{2, 1})), SentenceCommit},
		"listed, by a name without an epoch":               {found(Epoch{1, 0}, listedHandle(Epoch{1, 5})), SentenceCommit},
		"second of an epoch that lists another":            {found(Epoch{1, 5}, "second"), SentenceRollBack},
		"second of an epoch of the open generation":        {found(Epoch{2, 1}, "second"), SentenceRollBack},
		"behind the end of a closed generation":            {found(Epoch{1, 6}, "x"), SentenceRollBack},
		"of a generation that decided nothing":             {found(Epoch{1, 6}, "x"), SentenceRollBack},
		"decided, its list retired":                        {found(Epoch{1, 1}, listedHandle(Epoch{1, 1})), SentenceInDoubt},
		"current and undecided":                            {found(Epoch{2, 2}, "x"), SentenceLeave},
		"newer than the ledger":                            {found(Epoch{3, 1}, "x"), SentenceLeave},
		"no generation":                                    {found(Epoch{0, 1}, "x"), SentenceLeave},
		"of another namespace whose name begins alike":     {foreign, SentenceLeave},
		"of another incarnation":                           {later, SentenceLeave},
		"of a pipeline that the ledger never knew":         {stranger, SentenceLeave},
		"without an epoch, of the open generation":         {unnumbered(2, 1), SentenceLeave},
		"without an epoch, begun after what was retired":   {unnumbered(1, 4000+clockMargin+1), SentenceRollBack},
		"without an epoch, begun about then":               {unnumbered(1, 7500), SentenceInDoubt},
		"without an epoch, begun before all that is kept":  {unnumbered(1, 1500), SentenceInDoubt},
		"without an epoch, and nobody knows when it began": {unnumbered(1, 0), SentenceInDoubt},
	} {
		got, why := m.Judge(c.found, 100_000)
		if got != c.want || why == "" {
			t.Errorf("%s: %s (%s), want %s", name, got, why, c.want)
		}
	}
}

// inSlot makes the decision of an epoch list a handle in a line of its own, as a Kafka slot has it.
func inSlot(d Decide, line string, place uint64) Decide {
	d.Votes = slices.Clone(d.Votes)
	for i := range d.Votes {
		if d.Votes[i].Member == "a" {
			d.Votes[i].Branches = []Prepared{{Resource: "out", Handle: Handle{Kind: "mem", Version: 1, Name: fmt.Sprintf("%s|%d", line, place)}}}
		}
	}
	return d
}

// slots is a machine of which generation 1 decided 1 to 6 in two slots in turn, with 1 s between, and was closed; the
// lists of the first four were retired.
func slots(t *testing.T) *Machine {
	t.Helper()
	m := running(t)
	for n := uint64(1); n <= 6; n++ {
		apply(t, m, int64(1000+n*1000), inSlot(deciding("p", Epoch{1, n}, "1", n-1), fmt.Sprintf("slot%d|7", n%2), n))
	}
	apply(t, m, 8000,
		proving("p", Epoch{1, 6}, "a", "out", ProvenCommitted), proving("p", Epoch{1, 6}, "b", "dir", ProvenCommitted),
		CloseGeneration{Scope: theScope, Generation: 1, Cause: "test"})
	p, _ := m.Pipeline("p")
	p.Settings.RestorePoints = 2
	apply(t, m, 8500, PutPipeline{Pipeline: p})
	apply(t, m, 9000, Retire{KeepEpochs: 1})
	if _, kept := m.Epoch(theScope, Epoch{1, 4}); kept {
		t.Fatal("the list of 1.4 is kept, and this shows nothing")
	}
	if _, kept := m.Epoch(theScope, Epoch{1, 5}); !kept {
		t.Fatal("the list of 1.5 is retired, and this shows nothing")
	}
	return m
}

// Row T5, promise 5. A cluster is set back to a backup, in which the branch of an epoch is undecided again that was decided,
// proven and retired; and its clock is ahead of the leader's, so that the branch seems to have been begun after decisions
// whose lists are kept. Nobody may roll it back for that.
func TestT5_ClocksThatDifferDoNotRollBackWhatWasProven(t *testing.T) {
	m := slots(t)
	for _, ahead := range []int64{0, 1, 2500, 5000, 30_000, clockMargin} {
		for n := uint64(1); n <= 4; n++ {
			f := found(Epoch{1, 0}, fmt.Sprintf("slot%d|7|%d", n%2, n))
			f.Since = int64(1000+n*1000) - 500 + ahead // half a second before it was decided
			if got, why := m.Judge(f, 100_000); got != SentenceInDoubt {
				t.Errorf("the branch of 1.%d, with a clock that is %d ms ahead: %s (%s), want in doubt", n, ahead, got, why)
			}
		}
	}
}

// Rows L1, P13. What a closed generation left behind its last decisions is rolled back though clocks could be that far
// apart: in its line it stands behind what one of them lists. Without a person, or readers would wait for one after each crash.
func TestL1_WhatStandsInLineBehindADecisionIsRolledBack(t *testing.T) {
	m := slots(t)
	for name, c := range map[string]struct {
		handle string
		since  int64
		want   Sentence
	}{
		"behind what 1.5 lists":                {"slot1|7|7", 7900, SentenceRollBack},
		"behind what 1.6 lists":                {"slot0|7|8", 8000, SentenceRollBack},
		"nobody knows when it was begun":       {"slot0|7|8", 0, SentenceRollBack},
		"the clock of the cluster is behind":   {"slot0|7|8", 100, SentenceRollBack},
		"before what 1.6 lists":                {"slot0|7|4", 7900, SentenceInDoubt},
		"of another producer":                  {"slot0|8|1", 7900, SentenceInDoubt},
		"of a slot that none of them used":     {"slot2|7|9", 7900, SentenceInDoubt},
		"of a slot whose name begins alike":    {"slot|7|9", 7900, SentenceInDoubt},
		"what stands there is no number":       {"slot0|7|x", 7900, SentenceInDoubt},
		"long after, in a slot of its own":     {"slot2|7|9", 6000 + clockMargin + 1, SentenceRollBack},
		"the very thing that a decision lists": {"slot0|7|6", 7900, SentenceCommit},
	} {
		f := found(Epoch{1, 0}, c.handle)
		f.Since = c.since
		if got, why := m.Judge(f, 100_000); got != c.want {
			t.Errorf("%s: %s (%s), want %s", name, got, why, c.want)
		}
	}
	other := found(Epoch{1, 0}, "slot0|7|8")
	other.Handle.Identity = "another cluster"
	if got, why := m.Judge(other, 100_000); got != SentenceInDoubt {
		t.Errorf("the same name in another cluster: %s (%s)", got, why)
	}
}

func TestADeletedPipelinesWorkIsJudgedByWhatItsGenerationsDecided(t *testing.T) {
	m := running(t)
	apply(t, m, 2000, deciding("p", Epoch{1, 1}, "1", 0),
		proving("p", Epoch{1, 1}, "a", "out", ProvenCommitted), proving("p", Epoch{1, 1}, "b", "dir", ProvenCommitted),
		CloseGeneration{Scope: theScope, Generation: 1, Cause: "test"},
		Swept{Scope: theScope, Generation: 1, Branch: BranchID{Member: "a", Resource: "out"}},
		Swept{Scope: theScope, Generation: 1, Branch: BranchID{Member: "b", Resource: "dir"}},
		SetDesired{Pipeline: "p", From: Running, To: Stopped})
	p, _ := m.Pipeline("p")
	apply(t, m, 3000, DeletePipeline{Name: "p", Revision: p.Revision})
	for name, c := range map[string]struct {
		e    Epoch
		want Sentence
	}{
		"prepared too late to be decided": {Epoch{1, 2}, SentenceRollBack},
		"decided, its list gone":          {Epoch{1, 1}, SentenceInDoubt},
		"of the next of that name":        {Epoch{2, 1}, SentenceLeave},
	} {
		if got, why := m.Judge(found(c.e, "x"), 4000); got != c.want {
			t.Errorf("%s: %s (%s), want %s", name, got, why, c.want)
		}
	}
}

func TestP10_WorkByHandIsJudgedByItsRecordOrItsAge(t *testing.T) {
	m := New()
	const hour = 3_600_000
	committed, aborted, pending := handID(10*hour, 1), handID(10*hour, 2), handID(10*hour, 3)
	branch := HandBranch{Resource: "s", Handle: Handle{Kind: "mem", Version: 1, Identity: "i", Name: "listed"}}
	apply(t, m, 10*hour, Init{Namespace: "test", Incarnation: 1}, Retire{KeepFor: 2 * hour},
		Commit{Txn: committed, Branches: []HandBranch{branch}}, PresumeAbort{Txn: aborted, Why: "asked"},
		Announce{Txn: pending, Branches: []HandBranch{{Resource: "s"}}})
	for name, c := range map[string]struct {
		id     TxnID
		handle string
		want   Sentence
	}{
		"committed, listed":     {committed, "listed", SentenceCommit},
		"committed without it":  {committed, "x", SentenceRollBack},
		"aborted":               {aborted, "x", SentenceRollBack},
		"announced, undecided":  {pending, "x", SentenceLeave},
		"unknown":               {handID(9*hour, 1), "x", SentenceAsk},
		"below the floor":       {handID(7*hour, 1), "x", SentenceRollBack},
		"from the future":       {handID(11*hour, 1), "x", SentenceLeave},
		"no id of such a thing": {"orders", "x", SentenceLeave},
	} {
		f := Found{Namespace: "test", Incarnation: 1, Txn: c.id, Branch: BranchID{Resource: "s"}, Handle: Handle{Kind: "mem", Identity: "i", Name: c.handle}}
		if got, why := m.Judge(f, 10*hour); got != c.want || why == "" {
			t.Errorf("%s: %s (%s), want %s", name, got, why, c.want)
		}
	}
	restored := m.State()
	restored.Forgotten = 10 * hour
	r, err := Load(restored)
	if err != nil {
		t.Fatal(err)
	}
	f := Found{Namespace: "test", Incarnation: 1, Txn: handID(7*hour, 1)}
	if got, why := r.Judge(f, 10*hour); got != SentenceInDoubt {
		t.Errorf("below the floor of a ledger that was restored: %s (%s), want in doubt", got, why)
	}
}

// sentenced is what a random life has seen judged.
type sentenced struct {
	Found
	Sentence
}

// In random lives everything that could be found is judged again and again. Nothing that a decision lists is ever
// sentenced to be rolled back, not even by a decision that comes later; nothing is committed that none lists.
func TestJudgeNeverTurnsAgainstADecision(t *testing.T) {
	seen := map[Sentence]int{}
	lives := uint64(400)
	if testing.Short() {
		lives = 40 // in one goroutine
	}
	for seed := range lives {
		l := newLife(seed)
		p, _ := l.m.Pipeline("p")
		p.Settings.RestorePoints = 2
		apply(t, l.m, l.at, PutPipeline{Pipeline: p})
		dead := map[string]sentenced{}
		for range 15 {
			l.live(3)
			if seed%2 == 0 {
				forget(t, l)
			}
			everything(func(f Found) {
				s, why := l.m.Judge(f, l.at)
				seen[s]++
				checkSentence(t, l.m, f, s, why)
				if s == SentenceRollBack {
					dead[f.Handle.Name] = sentenced{f, s}
				}
			})
			for name, was := range dead {
				if s, why := l.m.Judge(was.Found, l.at); s != SentenceRollBack && s != SentenceInDoubt {
					t.Fatalf("seed %d: %s was dead and is now %s (%s)", seed, name, s, why)
				}
			}
		}
	}
	for _, s := range []Sentence{SentenceLeave, SentenceCommit, SentenceRollBack, SentenceInDoubt} {
		if seen[s] == 0 {
			t.Errorf("no life came to the sentence %s: they show too little", s)
		}
	}
}

// forget proves and retires what it can.
func forget(t *testing.T, l *life) {
	t.Helper()
	for _, u := range l.m.Outstanding().Unfinished {
		apply(t, l.m, l.at, proving("p", u.Epoch, u.Branch.Member, u.Branch.Resource, ProvenCommitted))
	}
	apply(t, l.m, l.at, Retire{KeepEpochs: 1})
}

// everything that member a may have left: for each epoch of the model the branch that a decision would list, and a
// second one; and both by names that do not say the epoch.
func everything(each func(Found)) {
	for g := Generation(1); g <= modelGenerations; g++ {
		for n := uint64(1); n <= modelEpochs; n++ {
			e := Epoch{g, n}
			each(found(e, listedHandle(e)))
			each(found(e, fmt.Sprintf("%s.second", e)))
			f := found(Epoch{Generation: g}, listedHandle(e))
			f.Handle.Text = "unnumbered"
			each(f)
		}
	}
}

func checkSentence(t *testing.T, m *Machine, f Found, s Sentence, why string) {
	t.Helper()
	e, err := ParseEpoch(strings.TrimSuffix(f.Handle.Name, ".a"))
	listed := err == nil && m.EpochOutcome(theScope, e) == Committed
	rec, kept := m.Epoch(theScope, e)
	switch {
	case listed && s == SentenceRollBack, listed && s == SentenceLeave && f.Epoch.N != 0:
		t.Fatalf("%s was decided (kept: %v), and the sentence is %s (%s)", f.Handle.Name, kept, s, why)
	case s == SentenceCommit && (!kept || !listed):
		t.Fatalf("no decision lists %s (%+v), and the sentence is commit (%s)", f.Handle.Name, rec, why)
	}
	n, _ := m.Newest(theScope)
	undecided := m.EpochOutcome(theScope, e) == Pending || m.EpochOutcome(theScope, e) == outcomeUnset
	if undecided && err == nil && e.Generation == n.Generation && s != SentenceLeave {
		t.Fatalf("%s is undecided, and the sentence is %s (%s)", f.Handle.Name, s, why)
	}
}

func FuzzJudge(f *testing.F) {
	f.Add(uint64(1), uint64(1), uint64(1), uint64(1), "1.1.a")
	f.Add(uint64(7), uint64(2), uint64(0), uint64(1<<40), "")
	f.Fuzz(func(t *testing.T, seed, g, n, since uint64, handle string) {
		l := newLife(seed % 16)
		l.r = rand.New(rand.NewPCG(seed, 2))
		l.live(20)
		x := found(Epoch{Generation(g), n}, handle)
		x.Since = int64(since)
		if s, why := l.m.Judge(x, l.at); s == sentenceUnset || why == "" {
			t.Fatalf("no sentence for %+v", x)
		}
	})
}
