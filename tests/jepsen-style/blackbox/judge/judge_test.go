package judge_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/tests/jepsen-style/blackbox/house"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/judge"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

const (
	ms    = time.Millisecond
	scope = "orders/0"
)

// book writes a history with the time that a test gives to each event.
type book struct {
	events []check.Event
	calls  uint64
}

func (b *book) add(at time.Duration, e check.Event) {
	e.At = at
	b.events = append(b.events, e)
}

// call is a call and its answer.
func (b *book) call(from, to time.Duration, who, op, txn string, a check.Answer) {
	b.calls++
	nr := b.calls
	b.add(from, check.Event{Kind: check.Invoke, Who: who, Call: nr, Op: op, Branch: check.Branch{Txn: txn}})
	b.add(to, check.Event{Kind: check.Return, Who: who, Call: nr, Op: op, Branch: check.Branch{Txn: txn}, Answer: a})
}

// begin announces a transaction for a second.
func (b *book) begin(from, to time.Duration, txn string) {
	b.call(from, to, "t1", house.OpBegin, txn, check.AnswerDone)
	for i := range b.events[len(b.events)-2:] {
		b.events[len(b.events)-2+i].Limit = time.Second
	}
}

// branch is what became of one share of a transfer.
func (b *book) branch(at time.Duration, kind check.Kind, store, txn string, records ...string) {
	b.add(at, check.Event{Kind: kind, Who: store, Store: store, Handle: store + " " + txn, Records: records, Branch: check.Branch{Txn: txn, Resource: store}})
}

// epoch is one as a node applied it, or as a reader sees it in a resource.
func (b *book) epoch(at time.Duration, kind check.Kind, who string, generation, n, index uint64) {
	b.add(at, check.Event{
		Kind: kind, Who: who, Store: "files", Index: index,
		Branch: check.Branch{Scope: scope, Resource: "files", Epoch: check.Epoch{Generation: generation, N: n}},
	})
}

// good is a short run in which nothing is wrong.
func good() *book {
	b := &book{}
	b.add(0, check.Event{Kind: check.Leads, Who: "n1", Term: 2})
	b.begin(1*ms, 2*ms, "a")
	for _, store := range []string{house.Accounts, house.Files} {
		b.branch(3*ms, check.Prepared, store, "a")
	}
	b.call(4*ms, 6*ms, "t1", house.OpCommit, "a", check.AnswerCommitted)
	b.branch(7*ms, check.Committed, house.Accounts, "a", "a1 -5")
	b.call(8*ms, 9*ms, "t2", house.OpOutcome, "a", check.AnswerCommitted)
	b.call(8*ms, 9*ms, "t2", house.OpOutcome, "b", check.AnswerAborted)
	b.branch(9*ms, check.Prepared, house.Accounts, "c")
	b.call(10*ms, 12*ms, "t3", house.OpRun, "c", check.AnswerUnknown)
	b.call(13*ms, 14*ms, "t2", house.OpOutcome, "c", check.AnswerAborted)
	b.branch(15*ms, check.RolledBack, house.Accounts, "c")
	for _, node := range []string{"n1", "n2"} {
		b.epoch(16*ms, check.Decided, node, 1, 1, 40)
		b.epoch(17*ms, check.Decided, node, 1, 2, 41)
		b.add(18*ms, check.Event{Kind: check.State, Who: node, Index: 41, Hash: "same"})
	}
	b.add(20*ms, check.Event{Kind: check.Fault, Who: "nemesis", Fault: "kill", Text: "kill"})
	b.add(20*ms, check.Event{Kind: check.Minority, Who: "nemesis"})
	b.add(30*ms, check.Event{Kind: check.MinorityEnd, Who: "nemesis"})
	b.add(40*ms, check.Event{Kind: check.Healed, Who: "nemesis"})
	b.epoch(41*ms, check.Decided, "n1", 2, 1, 50)
	b.epoch(41*ms, check.Decided, "n2", 2, 1, 50)
	b.add(50*ms, check.Event{Kind: check.Quiet, Who: "run"})
	b.branch(51*ms, check.Committed, house.Files, "a", `{"account":"files","cents":5}`)
	for _, e := range [][2]uint64{{1, 1}, {1, 2}, {2, 1}} {
		b.epoch(52*ms, check.Committed, "run", e[0], e[1], 0)
		b.epoch(53*ms, check.Record, "ledger", e[0], e[1], 0)
	}
	return b
}

func bounds() check.Bounds {
	return check.Bounds{Resources: map[string]map[string][]string{scope: nil}, DecideWithin: time.Second, Grace: ms, Share: 0.9}
}

// broken are the rules that a history breaks, each with its first finding.
func broken(t *testing.T, b *book) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, v := range judge.All(b.events, bounds(), "") {
		if v.Judged == 0 {
			t.Errorf("%s had nothing to judge", v.Rule)
		}
		if len(v.Findings) > 0 {
			found[v.Rule] = v.Findings[0].String()
		}
	}
	return found
}

func TestAHistoryWithoutAFaultBreaksNothing(t *testing.T) {
	if found := broken(t, good()); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

func TestEveryRuleSeesItsSabotage(t *testing.T) {
	for _, sabotage := range []struct {
		rule, what string
		do         func(b *book)
		says       string
	}{
		{"C2", "a transfer is committed on one side alone", func(b *book) {
			b.branch(3*ms, check.Prepared, house.Accounts, "h")
			b.branch(3*ms, check.Prepared, house.Files, "h")
			b.branch(9*ms, check.Committed, house.Files, "h")
		}, "h is committed elsewhere and not in /accounts"},
		{"C2", "what was rolled back is committed", func(b *book) { b.branch(16*ms, check.Committed, house.Accounts, "c") }, "ended twice"},
		{"C2", "a resource breaks its promise", func(b *book) { b.add(16*ms, check.Event{Kind: check.Heuristic, Who: "n1", Text: "gone"}) }, "broke its promise"},
		{"C3", "a decision that was told is another later", func(b *book) {
			b.call(60*ms, 61*ms, "t9", house.OpOutcome, "a", check.AnswerAborted)
		}, "transaction a was answered committed, and aborted"},
		{"C3", "an applied decision is gone at the end", func(b *book) {
			b.epoch(42*ms, check.Decided, "n1", 2, 2, 51)
			b.epoch(55*ms, check.Record, "ledger", 2, 3, 0)
		}, "of which the ledger knows nothing"},
		{"C4", "an epoch is missing among the decided", func(b *book) { b.epoch(42*ms, check.Decided, "n1", 2, 3, 52) }, "has 2.3 after 2.1"},
		{"C4", "an older generation decides after a newer one", func(b *book) { b.epoch(42*ms, check.Decided, "n1", 1, 3, 52) }, "after 2.1"},
		{"C6", "a branch stays prepared", func(b *book) { b.add(55*ms, check.Event{Kind: check.Held, Store: "files", Handle: "x"}) }, "still holds x"},
		{"C7", "two replicas differ", func(b *book) { b.add(19*ms, check.Event{Kind: check.State, Who: "n3", Index: 41, Hash: "other"}) }, "at entry 41"},
		{"C7", "one entry is two on two nodes", func(b *book) { b.epoch(43*ms, check.Decided, "n3", 2, 1, 51) }, "is entry 50 on one node and 51 on n3"},
		{"C8", "two nodes lead one term", func(b *book) { b.add(ms, check.Event{Kind: check.Leads, Who: "n2", Term: 2}) }, "both lead term 2"},
		{"C9", "a pipeline decides no more", func(b *book) {
			b.events = dropped(b.events, func(e check.Event) bool { return e.Kind == check.Decided && e.At > 40*ms })
		}, "decided nothing"},
		{"C9", "a call is never answered", func(b *book) {
			b.add(60*ms, check.Event{Kind: check.Invoke, Who: "t1", Call: 99, Op: house.OpCommit, Branch: check.Branch{Txn: "z"}})
		}, "never answered"},
		{"C10", "calls hang while a minority is down", func(b *book) {
			b.events = dropped(b.events, func(e check.Event) bool { return e.Kind == check.MinorityEnd })
			b.call(25*ms, 29*ms, "t1", house.OpOutcome, "y", check.AnswerUnknown)
		}, "only 0 were answered"},
		{"C12", "told aborted, and committed", func(b *book) {
			b.call(60*ms, 61*ms, "t9", house.OpAbort, "a", check.AnswerAborted)
		}, "was answered aborted, and a is committed"},
		{"C12", "told committed, and nowhere", func(b *book) {
			b.branch(3*ms, check.Prepared, house.Accounts, "n")
			b.call(4*ms, 5*ms, "t1", house.OpCommit, "n", check.AnswerCommitted)
		}, "and n is nowhere"},
		{"register", "committed, then aborted", func(b *book) {
			b.call(60*ms, 61*ms, "t9", house.OpOutcome, "a", check.AnswerAborted)
		}, "transaction a"},
		{"register", "aborted before its deadline, and nobody asked", func(b *book) {
			b.begin(60*ms, 61*ms, "d")
			b.call(62*ms, 63*ms, "t1", house.OpOutcome, "d", check.AnswerAborted)
		}, "transaction d"},
		{"register", "a bare commit is aborted, and nobody asked", func(b *book) {
			b.call(62*ms, 63*ms, "t1", house.OpCommit, "e", check.AnswerAborted)
		}, "transaction e"},
		{"register", "pending after it was decided", func(b *book) {
			b.call(60*ms, 61*ms, "t9", house.OpOutcome, "a", check.AnswerDone)
		}, "transaction a"},
		{"register", "committed after a question was answered aborted", func(b *book) {
			b.call(60*ms, 61*ms, "t9", house.OpCommit, "b", check.AnswerCommitted)
		}, "transaction b"},
		{"money", "money out of nothing", func(b *book) {
			b.branch(9*ms, check.Committed, house.Accounts, "m", "a1 7")
		}, "made 7 cents"},
		{"money", "the same amount twice", func(b *book) {
			b.branch(52*ms, check.Committed, house.Files, "a", `{"account":"files","cents":5}`)
		}, "made 5 cents"},
		{"money", "a file that is gone", func(b *book) { b.branch(9*ms, check.Committed, house.Files, "a", "gone: f") }, "something else than money"},
		{"order", "an older epoch after a newer one", func(b *book) {
			b.epoch(40*ms, check.Decided, "n1", 1, 3, 42)
			b.epoch(60*ms, check.Committed, "run", 1, 3, 0)
		}, "became visible in files after 2.1"},
		{"order", "an epoch that nobody decided", func(b *book) { b.epoch(60*ms, check.Committed, "run", 3, 1, 0) }, "was never decided"},
		{"order", "an epoch twice", func(b *book) { b.epoch(60*ms, check.Committed, "run", 2, 1, 0) }, "twice"},
	} {
		t.Run(sabotage.rule+" "+sabotage.what, func(t *testing.T) {
			b := good()
			sabotage.do(b)
			if text := broken(t, b)[sabotage.rule]; !strings.Contains(text, sabotage.says) {
				t.Errorf("%s found %q, wanted %q", sabotage.rule, text, sabotage.says)
			}
		})
	}
}

func dropped(events []check.Event, which func(check.Event) bool) (left []check.Event) {
	for _, e := range events {
		if !which(e) {
			left = append(left, e)
		}
	}
	return left
}

// What may have happened must not be found wrong.
func TestUnknownAnswersLeaveEverythingOpen(t *testing.T) {
	for _, c := range []struct {
		what string
		do   func(b *book)
	}{
		{"a commit without an answer took effect", func(b *book) {
			b.call(60*ms, 61*ms, "t1", house.OpCommit, "u", check.AnswerUnknown)
			b.call(70*ms, 71*ms, "t2", house.OpOutcome, "u", check.AnswerCommitted)
		}},
		{"it took none", func(b *book) {
			b.call(60*ms, 61*ms, "t1", house.OpCommit, "u", check.AnswerUnknown)
			b.call(70*ms, 71*ms, "t2", house.OpOutcome, "u", check.AnswerAborted)
		}},
		{"it took effect after a question was answered", func(b *book) {
			b.begin(50*ms, 51*ms, "u")
			b.call(60*ms, 61*ms, "t1", house.OpCommit, "u", check.AnswerUnknown)
			b.call(70*ms, 71*ms, "t2", house.OpOutcome, "u", check.AnswerDone)
			b.call(72*ms, 73*ms, "t2", house.OpOutcome, "u", check.AnswerCommitted)
		}},
		{"an announced one ran into its deadline", func(b *book) {
			b.begin(50*ms, 51*ms, "u")
			b.call(60*ms, 1100*ms, "t1", house.OpCommit, "u", check.AnswerAborted)
		}},
		{"a sweep that was killed had asked", func(b *book) {
			b.branch(58*ms, check.Prepared, house.Accounts, "u")
			b.add(59*ms, check.Event{Kind: check.Invoke, Who: "sweeper", Call: 77, Op: house.OpSweep})
			b.call(60*ms, 63*ms, "t1", house.OpCommit, "u", check.AnswerAborted)
		}},
		{"a sweep had asked", func(b *book) {
			b.add(59*ms, check.Event{Kind: check.Invoke, Who: "sweeper", Call: 77, Op: house.OpSweep})
			b.call(60*ms, 63*ms, "t1", house.OpCommit, "u", check.AnswerAborted)
			b.add(64*ms, check.Event{Kind: check.Return, Who: "sweeper", Call: 77, Op: house.OpSweep, Records: []string{"u"}, Answer: check.AnswerDone})
		}},
		{"a refused begin", func(b *book) {
			b.call(60*ms, 61*ms, "t2", house.OpOutcome, "u", check.AnswerAborted)
			b.call(62*ms, 63*ms, "t1", house.OpBegin, "u", check.AnswerRefused)
		}},
		{"a begin that was sent twice: the first took effect and ran into its deadline, the second was refused", func(b *book) {
			b.begin(60*ms, 1100*ms, "u")
			b.events[len(b.events)-1].Answer = check.AnswerRefused
			b.call(1200*ms, 1201*ms, "t1", house.OpCommit, "u", check.AnswerAborted)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := good()
			c.do(b)
			if judged, found := judge.Register(b.events, ""); judged == 0 || len(found) > 0 {
				t.Errorf("judged %d calls and found %v", judged, found)
			}
		})
	}
}

func TestAWrongTransactionIsDrawn(t *testing.T) {
	b := good()
	b.call(60*ms, 61*ms, "t9", house.OpOutcome, "a", check.AnswerAborted)
	path := filepath.Join(t.TempDir(), "register.html")
	_, found := judge.Register(b.events, path)
	if len(found) != 1 || !strings.Contains(found[0].Text, path) {
		t.Fatalf("found %v", found)
	}
	if page, err := os.ReadFile(path); err != nil || !strings.Contains(string(page), "outcome") {
		t.Errorf("the picture: %v, %d bytes", err, len(page))
	}
}

// A long run is judged in seconds: every transaction is searched alone.
func TestManyTransactionsAreJudged(t *testing.T) {
	b := &book{}
	for i := range 2000 {
		at, txn := time.Duration(i)*ms, fmt.Sprint(i)
		b.call(at, at+20*ms, "t1", house.OpCommit, txn, check.AnswerCommitted)
		b.call(at, at+20*ms, "t2", house.OpOutcome, txn, check.AnswerCommitted)
	}
	judged, found := judge.Register(b.events, "")
	if judged != 4000 || len(found) > 0 {
		t.Errorf("judged %d calls and found %v", judged, found)
	}
}
