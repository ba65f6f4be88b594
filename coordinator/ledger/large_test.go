package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/alloctest"
)

// byHand is a machine with so many transactions by hand, of two branches each: finished, or decided and not proven, or
// announced alone.
func byHand(t testing.TB, finished, unproven, announced int) *Machine {
	t.Helper()
	const now = 1_000_000_000
	m := New()
	do := func(b Body) { quick(t, m, now, b) }
	do(Init{Namespace: "test", Incarnation: 1})
	for i := range finished + unproven + announced {
		id := handID(now+int64(i%MaxAhead), i)
		if i >= finished+unproven {
			do(Announce{Txn: id, Branches: []HandBranch{{Resource: "r1"}, {Resource: "r2"}}, Deadline: now + 1 + int64(i)})
			continue
		}
		do(Commit{Txn: id, Branches: []HandBranch{
			{Resource: "r1", Handle: Handle{Kind: "memory", Version: 1, Identity: "one", Name: string(id)}},
			{Resource: "r2", Handle: Handle{Kind: "memory", Version: 1, Identity: "two", Name: string(id)}},
		}})
		if i < finished {
			do(Resolve{Txn: id, Branch: BranchID{Resource: "r1"}, Proof: Proof{Verdict: ProvenCommitted, Evidence: "seen"}})
			do(Resolve{Txn: id, Branch: BranchID{Resource: "r2"}, Proof: Proof{Verdict: ProvenCommitted, Evidence: "seen"}})
		}
	}
	return m
}

// TestAQuestionCostsWhatItsAnswerDoes: what is asked each second, or by each client, does not copy or sort all that is kept.
func TestAQuestionCostsWhatItsAnswerDoes(t *testing.T) {
	few, many := byHand(t, 200, 200, 200), byHand(t, 6000, 6000, 6000)
	for _, c := range []struct {
		what string
		ask  func(*Machine)
	}{
		{"a page of all", func(m *Machine) { m.Txns(false, handID(1_000_000_100, 0), 20) }},
		{"a page of those in doubt", func(m *Machine) { m.Txns(true, "", 20) }},
		{"how much is in doubt", func(m *Machine) { m.Doubt() }},
		{"the overdue", func(m *Machine) { m.Overdue(2_000_000_000, 20) }},
		{"what is to be finished", func(m *Machine) {
			for range m.UnfinishedByHand(Unfinished{}) {
				return
			}
		}},
		{"what nobody may forget", func(m *Machine) { m.Apply(Command{At: 1_000_000_000, Body: Retire{KeepFor: 1000}}) }},
	} {
		small, large := alloctest.Least(func() { c.ask(few) }), alloctest.Least(func() { c.ask(many) })
		if most := 2*small + alloctest.Slack; large > most {
			t.Errorf("%s: %d bytes with 600 transactions, %d with 18,000, want at most %d", c.what, small, large, most)
		}
	}
}

// TestPagesShowEachTransactionOnce, in the order of their ids.
func TestPagesShowEachTransactionOnce(t *testing.T) {
	m := byHand(t, 1500, 700, 300)
	for _, c := range []struct {
		inDoubt bool
		want    int
	}{{false, 2500}, {true, 1000}} {
		var got []TxnID
		for after := TxnID(""); ; {
			page := m.Txns(c.inDoubt, after, 333)
			if len(page) == 0 {
				break
			}
			for _, x := range page {
				got = append(got, x.ID)
			}
			after = got[len(got)-1]
		}
		if len(got) != c.want || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != c.want {
			t.Errorf("in doubt %t: the pages show %d, want %d, each once and in order", c.inDoubt, len(got), c.want)
		}
	}
	check(t, m)
}

// TestDoubtCountsWhatIsOutstanding: the counts are those of the whole list.
func TestDoubtCountsWhatIsOutstanding(t *testing.T) {
	m := running(t)
	apply(t, m, 2000, deciding("p", Epoch{1, 1}, "1", 0), deciding("p", Epoch{1, 2}, "1", 0), CloseGeneration{Scope: theScope, Generation: 1, Cause: "test"})
	one, two, three := handID(3000, 1), handID(3000, 2), handID(3000, 3)
	handle := Handle{Kind: "memory", Version: 1, Identity: "i", Name: "n"}
	apply(t, m, 3000,
		Announce{Txn: one, Branches: []HandBranch{{Resource: "r"}}, Deadline: 9000}, Announce{Txn: two, Branches: []HandBranch{{Resource: "r"}}, Deadline: 8000})
	apply(t, m, 1500, Commit{Txn: three, Branches: []HandBranch{{Resource: "r", Handle: handle}, {Resource: "s", Handle: handle}}}) // another leader's clock
	for _, step := range []Body{
		nil,
		Resolve{Txn: three, Branch: BranchID{Resource: "s"}, Proof: Proof{Verdict: ProvenCommitted}},
		Commit{Txn: one, Branches: []HandBranch{{Resource: "r", Handle: handle}}},
		Force{Txn: three, Branch: BranchID{Resource: "r"}, Action: AcceptLoss, Why: "test"},
		proving("p", Epoch{1, 1}, "a", "out", ProvenCommitted),
		Swept{Scope: theScope, Generation: 1, Branch: BranchID{"a", "out"}},
		PresumeAbort{Txn: two, Why: "test"},
	} {
		if step != nil {
			apply(t, m, 4000, step)
		}
		o := m.Outstanding()
		want := Doubt{Unfinished: len(o.Unfinished), Debts: len(o.Debts), Announced: len(o.Announced)}
		for _, u := range o.Unfinished {
			if want.UnfinishedSince == 0 || u.Since < want.UnfinishedSince {
				want.UnfinishedSince = u.Since
			}
		}
		for _, d := range o.Debts {
			if want.DebtsSince == 0 || d.Since < want.DebtsSince {
				want.DebtsSince = d.Since
			}
		}
		if got := m.Doubt(); got != want {
			t.Errorf("after %T: %+v, want %+v", step, got, want)
		}
	}
}

// TestTheOverdueComeByTheirDeadlines, whatever their ids.
func TestTheOverdueComeByTheirDeadlines(t *testing.T) {
	m := running(t)
	for i, deadline := range []int64{7000, 5000, 6000, 9000} {
		apply(t, m, 3000, Announce{Txn: handID(3000, i), Branches: []HandBranch{{Resource: "r"}}, Deadline: deadline})
	}
	for _, c := range []struct {
		now  int64
		most int
		want []int
	}{{4999, 9, nil}, {5000, 9, []int{1}}, {8000, 9, []int{1, 2, 0}}, {8000, 2, []int{1, 2}}} {
		var want []TxnID
		for _, i := range c.want {
			want = append(want, handID(3000, i))
		}
		if got := m.Overdue(c.now, c.most); !slices.Equal(got, want) {
			t.Errorf("at %d, at most %d: %v, want %v", c.now, c.most, got, want)
		}
	}
}

// TestAFrozenStateStaysAsItIs while the machine moves on, and holding it fast copies no transaction.
func TestAFrozenStateStaysAsItIs(t *testing.T) {
	const n = 3000
	m := byHand(t, n/3, n/3, n/3)
	var frozen *Frozen
	if bytes := alloctest.Bytes(func() { frozen = m.Freeze() }); bytes > 16*n+alloctest.Slack {
		t.Errorf("%d bytes were copied of %d transactions", bytes, n)
	}
	want := m.Hash()
	const now = 1_000_000_000
	for i := range n {
		id := handID(now+int64(i), i)
		switch proof := (Proof{Verdict: ProvenRolledBack, Evidence: "lost"}); {
		case i >= 2*n/3 && i%2 == 0:
			quick(t, m, now, PresumeAbort{Txn: id, Why: "test"})
		case i >= 2*n/3:
			quick(t, m, now, Commit{Txn: id, Branches: []HandBranch{{Resource: "r1", Handle: Handle{Kind: "memory", Name: "x"}}}})
		case i >= n/3:
			quick(t, m, now, Resolve{Txn: id, Branch: BranchID{Resource: "r1"}, Proof: proof})
			quick(t, m, now, Force{Txn: id, Branch: BranchID{Resource: "r2"}, Action: AcceptLoss, Why: "test"})
		}
	}
	m.Apply(Command{At: now + 3_600_000, Body: Retire{}})
	check(t, m)
	if m.Hash() == want {
		t.Fatal("the machine did not move on")
	}
	then, err := Load(frozen.State())
	if err != nil {
		t.Fatal(err)
	}
	if then.Hash() != want {
		t.Error("the frozen state has changed")
	}
}

// TestLoadBuildsOneMachine: to read a state costs one machine, and so does the check of one that is to be kept.
func TestLoadBuildsOneMachine(t *testing.T) {
	st := byHand(t, 5000, 0, 0).State()
	one := alloctest.Bytes(func() {
		if err := New().fill(st); err != nil {
			t.Fatal(err)
		}
	})
	got := alloctest.Bytes(func() {
		if _, err := Load(st); err != nil {
			t.Fatal(err)
		}
	})
	if got > one+one/4 {
		t.Errorf("%d bytes to load a state, %d to build a machine", got, one)
	}
}

// TestRetireDoesNotLookAtAllThatIsInDoubt: it comes every few seconds, also while a resource is gone and a hundred thousand
// transactions wait for it.
func TestRetireDoesNotLookAtAllThatIsInDoubt(t *testing.T) {
	took := func(m *Machine) time.Duration {
		best := time.Hour
		for range 20 {
			begun := time.Now()
			m.Apply(Command{At: 1_000_000_000, Body: Retire{KeepFor: 3_600_000}})
			best = min(best, time.Since(begun))
		}
		return best
	}
	few, many := took(byHand(t, 0, 100, 0)), took(byHand(t, 0, 40_000, 0))
	if many > 40*few+100*time.Microsecond {
		t.Errorf("%s with 100 in doubt, %s with 40,000", few, many)
	}
}

// TestDebtsAreFoundAmongManyGenerations without a look at each: those that are kept for ever are the oldest.
func TestDebtsAreFoundAmongManyGenerations(t *testing.T) {
	m := running(t)
	const n = 50
	for g := Generation(1); g <= n; g++ {
		quick(t, m, int64(g)*100_000+5000, deciding("p", Epoch{g, 1}, "1", 0), proving("p", Epoch{g, 1}, "a", "out", ProvenCommitted),
			proving("p", Epoch{g, 1}, "b", "dir", ProvenCommitted), CloseGeneration{Scope: theScope, Generation: g, Cause: "test"})
		if g != n-1 && g != n-3 {
			quick(t, m, int64(g)*100_000+6000, Swept{Scope: theScope, Generation: g, Branch: BranchID{"a", "out"}}, Swept{Scope: theScope, Generation: g, Branch: BranchID{"b", "dir"}})
		}
		if g < n {
			quick(t, m, int64(g+1)*100_000, opening("p", g, "1"))
		}
	}
	quick(t, m, (n+1)*100_000, Swept{Scope: theScope, Generation: n - 3, Branch: BranchID{"a", "out"}})
	s, walked := m.scopes[theScope], 0
	for range s.owing() {
		walked++
	}
	_, debts := m.ScopeOutstanding(theScope)
	want := fmt.Sprint([]Debt{
		{theScope, n - 3, BranchID{"b", "dir"}, (n-3)*100_000 + 5000},
		{theScope, n - 1, BranchID{"a", "out"}, (n-1)*100_000 + 5000},
		{theScope, n - 1, BranchID{"b", "dir"}, (n-1)*100_000 + 5000},
	})
	if got := fmt.Sprint(debts); got != want {
		t.Errorf("debts %s, want %s", got, want)
	}
	if walked > 4 {
		t.Errorf("%d generations of %d were looked at, want the last 4", walked, n)
	}
}

// quick applies commands that must succeed, and does not check all invariants after each.
func quick(t testing.TB, m *Machine, at int64, bodies ...Body) {
	t.Helper()
	for _, b := range bodies {
		if r, _ := m.Apply(Command{At: at, Actor: "test", Body: b}); !r.OK() {
			t.Fatalf("%T: %s", b, r.Text)
		}
	}
}

// TestAnOpeningNamesTheStatePartsOfItsPipeline alone: a thousand pipelines that start must not each be told of, and sort, the
// parts of all.
func TestAnOpeningNamesTheStatePartsOfItsPipeline(t *testing.T) {
	opened := func(others int) (o Opened, bytes uint64) {
		m := running(t)
		quick(t, m, 2000, deciding("p", Epoch{1, 1}, "1", 0)) // names 1.1.a and 1.1.b
		for i := range others {
			name := fmt.Sprint("other", i)
			quick(t, m, 1000, PutPipeline{Pipeline: twoMembers(name)}, opening(name, 0, "1"), deciding(name, Epoch{Generation(i) + 2, 1}, "1", 0))
		}
		quick(t, m, 90_000, CloseGeneration{Scope: theScope, Generation: 1, Cause: "test"})
		bytes = alloctest.Bytes(func() {
			r, _ := m.Apply(Command{At: 99_000, Body: opening("p", 1, "1")})
			o = *r.Opened
		})
		return o, bytes
	}
	few, small := opened(5)
	many, large := opened(500)
	if want := []string{"1.1.a", "1.1.b"}; !slices.Equal(few.KeptParts, want) || !slices.Equal(many.KeptParts, want) {
		t.Errorf("%d parts are named beside 5 pipelines, %d beside 500, want %q", len(few.KeptParts), len(many.KeptParts), want)
	}
	if large > 2*small+alloctest.Slack {
		t.Errorf("an opening takes %d bytes beside 5 pipelines, %d beside 500", small, large)
	}
}

// BenchmarkFreeze is what a snapshot holds the log up for, with so many transactions by hand.
func BenchmarkFreeze(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := byHand(b, n, 0, 0)
			b.ReportAllocs()
			for b.Loop() {
				m.Freeze()
			}
		})
	}
}
