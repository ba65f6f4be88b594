package check_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/unisink/unisink/tests/jepsen-style/check"
)

const scope = "orders/0"

func bounds() check.Bounds {
	return check.Bounds{
		MaxPending:   map[string]int{scope: 2},
		Resources:    map[string]map[string][]string{scope: {"m1": {"a", "b"}, "m2": {"a"}, "m3": {"out", "late"}}},
		Windows:      map[string]map[string]check.Windows{scope: {"m3": tens}},
		DecideWithin: 15 * time.Second, Grace: 5 * time.Second, Share: 0.9, EntriesPerChange: 1, Broken: []string{"takes back its vote"}, Secrets: []string{"hunter2"},
	}
}

// tens are the windows of member m3: it counts in tens, and its fourth record comes too late.
var tens = check.Windows{Size: 10, Every: 10, Splits: 1, Late: "late", Source: []check.Reading{
	{Key: "b", Time: 1, Value: 1},
	{Key: "a", Time: 5, Value: 2},
	{Key: "a", Time: 12, Value: 3},
	{Key: "a", Time: 3, Value: 4},
	{Key: "b", Time: 25, Value: 5},
	{Key: "b", Time: 26, Value: 6},
}}

// made is what the records of m3 from one offset to another make visible.
func made(from, to int64) map[string][]string {
	all := map[string][]string{}
	for i := from; i < to; i++ {
		switch i {
		case 2:
			all["out"] = append(all["out"], "a@0…10=1/2", "b@0…10=1/1")
		case 3:
			all["late"] = append(all["late"], "late:0/3")
		case 4:
			all["out"] = append(all["out"], "a@10…20=1/3")
		}
	}
	return all
}

// story writes a history by hand: two epochs, a rewind, another generation, and transactions by hand.
type story struct {
	events []check.Event
	at     time.Duration
}

func (s *story) add(e check.Event) {
	s.at += time.Second
	e.At = s.at
	s.events = append(s.events, e)
}

func (s *story) open(g uint64) {
	for _, share := range [][2]string{{"m1", "a"}, {"m1", "b"}, {"m2", "a"}, {"m3", "out"}, {"m3", "late"}} {
		s.add(check.Event{Kind: check.Opened, Store: share[0] + share[1], Branch: check.Branch{
			Scope: scope, Member: share[0], Resource: share[1], Epoch: check.Epoch{Generation: g},
		}})
	}
}

// epoch is one whole epoch in which each member writes from one offset to another.
func (s *story) epoch(g, n uint64, from, to int64, index uint64) {
	e := check.Epoch{Generation: g, N: n}
	for _, kind := range []check.Kind{check.Prepared, check.Voted, check.Decided, check.Committed} {
		for _, member := range []string{"m1", "m2", "m3"} {
			if kind == check.Voted {
				s.add(check.Event{Who: member, Kind: kind, Offset: to, Branch: check.Branch{Scope: scope, Member: member, Epoch: e}})
				continue
			}
			if kind == check.Decided {
				s.add(check.Event{Who: "n" + member[1:], Kind: kind, Index: index, Branch: check.Branch{Scope: scope, Epoch: e}})
				continue
			}
			var copied []string
			for i := from; i < to; i++ {
				copied = append(copied, fmt.Sprintf("%s-%d", member, i))
			}
			windows := made(from, to)
			for _, r := range bounds().Resources[scope][member] {
				records := copied
				if member == "m3" {
					records = windows[r]
				}
				if len(records) > 0 {
					b := check.Branch{Scope: scope, Member: member, Resource: r, Epoch: e}
					s.add(check.Event{Kind: kind, Store: member + r, Branch: b, Handle: b.String() + "#1", Records: records})
				}
			}
		}
	}
}

// transfer is a transaction by hand over two stores.
func (s *story) transfer(txn string, call uint64, kind check.Kind, answer check.Answer) {
	s.add(check.Event{Who: "c1", Kind: check.Invoke, Call: call, Op: "commit", Branch: check.Branch{Txn: txn}})
	for _, k := range []check.Kind{check.Prepared, kind} {
		for _, r := range []string{"left", "right"} {
			s.add(check.Event{Kind: k, Store: r, Branch: check.Branch{Txn: txn, Resource: r}, Handle: txn + r, Records: []string{txn}})
		}
	}
	s.add(check.Event{Who: "c1", Kind: check.Return, Call: call, Op: "commit", Branch: check.Branch{Txn: txn}, Answer: answer})
}

func good() *story {
	s := &story{}
	s.add(check.Event{Who: "n1", Kind: check.Leads, Term: 2})
	s.open(1)
	s.epoch(1, 1, 0, 3, 10)
	s.epoch(1, 2, 3, 5, 11)
	s.add(check.Event{Who: "n1", Kind: check.Closed, Index: 12, Branch: check.Branch{Scope: scope, Epoch: check.Epoch{Generation: 1, N: 2}}})
	s.add(check.Event{Kind: check.Rewound, Branch: check.Branch{Scope: scope, Epoch: check.Epoch{Generation: 1, N: 1}}})
	s.open(2)
	s.add(check.Event{Kind: check.Minority})
	s.at += 10 * time.Second
	s.transfer("t1", 1, check.Committed, check.AnswerCommitted)
	s.transfer("t2", 2, check.RolledBack, check.AnswerAborted)
	s.add(check.Event{Kind: check.MinorityEnd})
	s.add(check.Event{Who: "n1", Kind: check.Entry, Index: 10, Term: 2, Hash: "aa"})
	s.add(check.Event{Who: "n2", Kind: check.Entry, Index: 10, Term: 2, Hash: "aa"})
	s.add(check.Event{Who: "n1", Kind: check.State, Index: 10, Hash: "5a"})
	s.add(check.Event{Who: "n2", Kind: check.State, Index: 10, Hash: "5a"})
	s.add(check.Event{Kind: check.Healed})
	s.epoch(2, 1, 3, 4, 20)
	s.add(check.Event{Kind: check.Quiet})
	for _, e := range []check.Epoch{{Generation: 1, N: 1}, {Generation: 1, N: 2}, {Generation: 2, N: 1}} {
		s.add(check.Event{Kind: check.Record, Branch: check.Branch{Scope: scope, Epoch: e}})
	}
	return s
}

func TestAGoodHistoryHasNoFindings(t *testing.T) {
	if found := check.All(good().events, bounds()); len(found) > 0 {
		t.Fatalf("%v\n%s", found, check.Trace(good().events, true))
	}
}

// Set back twice before anything was decided: the pipeline goes on from where it was set back to last.
func TestOfSeveralRewindsTheLastCounts(t *testing.T) {
	for range 20 { // they lie in a map
		s := &story{}
		s.open(1)
		s.epoch(1, 1, 0, 3, 10)
		s.epoch(1, 2, 3, 5, 11)
		for i, to := range []uint64{1, 2} {
			s.add(check.Event{Kind: check.Rewound, Branch: check.Branch{Scope: scope, Epoch: check.Epoch{Generation: 1, N: to}}})
			s.open(uint64(i + 2))
		}
		s.epoch(3, 1, 5, 6, 20)
		for _, f := range check.All(s.events, bounds()) {
			if f.Rule == "C1" {
				t.Fatal(f)
			}
		}
	}
}

// committed is what became visible of an epoch in the first resource of a name.
func (s *story) committed(g, n uint64, resource string) *check.Event {
	for i := range s.events {
		e := &s.events[i]
		if e.Kind == check.Committed && e.Branch.Epoch == (check.Epoch{Generation: g, N: n}) && e.Branch.Resource == resource {
			return e
		}
	}
	panic("no such event")
}

func last(events []check.Event, kind check.Kind) int {
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Kind == kind {
			return i
		}
	}
	panic("no such event")
}

// Each rule sees the history that breaks it.
func TestEachRuleSeesWhatBreaksIt(t *testing.T) {
	branch := func(g, n uint64) check.Branch {
		return check.Branch{Scope: scope, Member: "m1", Resource: "a", Epoch: check.Epoch{Generation: g, N: n}}
	}
	cases := []struct {
		rule, name string
		spoil      func(*story)
		alsoBroken string // rules that the same history breaks rightly
	}{
		{"C1", "a record is missing", func(s *story) { e := s.committed(2, 1, "a"); e.Records = e.Records[1:] }, ""},
		{"C1", "a record is there twice", func(s *story) {
			e := s.committed(2, 1, "a")
			e.Records = append(slices.Clone(e.Records), e.Records...)
		}, ""},
		{"C1", "records of an epoch that nobody decided", func(s *story) {
			s.add(check.Event{Kind: check.Committed, Store: "m1a", Branch: branch(2, 9), Handle: "x", Records: []string{"m1-9"}})
		}, ""},
		{"C1", "a rewind went on from where it was before", func(s *story) {
			s.events = slices.DeleteFunc(s.events, func(e check.Event) bool { return e.Kind == check.Rewound })
		}, "C14"},
		{"C1", "an older epoch became visible after a younger one", func(s *story) {
			var first, second int
			for i, e := range s.events {
				if e.Kind == check.Committed && e.Store == "m1a" {
					first, second = second, i
				}
			}
			s.events[first], s.events[second] = s.events[second], s.events[first]
		}, ""},
		{"C1", "a position was kept that nobody voted", func(s *story) {
			s.events[last(s.events, check.Record)].Decision = check.Decision{Offsets: map[string]int64{"m1": 99}}
		}, ""},
		{"C2", "committed in one resource and not in the other", func(s *story) {
			s.transfer("t3", 3, check.Committed, check.AnswerCommitted)
			s.events[last(s.events, check.Committed)].Kind = check.RolledBack
		}, ""},
		{"C2", "a branch was ended twice", func(s *story) { s.add(s.events[last(s.events, check.RolledBack)]) }, ""},
		{"C2", "a resource broke its promise", func(s *story) { s.add(check.Event{Kind: check.Heuristic, Text: "gone"}) }, ""},
		{"C3", "the record knows nothing of a decision", func(s *story) {
			s.add(check.Event{Who: "n1", Kind: check.Decided, Index: 21, Branch: check.Branch{Scope: scope, Epoch: check.Epoch{Generation: 2, N: 2}}})
		}, "C14"},
		{"C3", "a generation was closed at two numbers", func(s *story) {
			s.add(check.Event{Who: "n2", Kind: check.Closed, Index: 12, Branch: check.Branch{Scope: scope, Epoch: check.Epoch{Generation: 1, N: 1}}})
		}, ""},
		{"C3", "a vote was taken back", func(s *story) {
			s.add(check.Event{Who: "n2", Kind: check.Closed, Index: 12, Text: "member m1 takes back its vote", Branch: check.Branch{Scope: scope, Epoch: check.Epoch{Generation: 1, N: 2}}})
		}, ""},
		{"C3", "an answer changed", func(s *story) {
			s.add(check.Event{Who: "c2", Kind: check.Return, Call: 9, Op: "outcome", Branch: check.Branch{Txn: "t1"}, Answer: check.AnswerAborted})
		}, "C12"},
		{"C4", "committed before anybody asked", func(s *story) {
			s.add(check.Event{Who: "c2", Kind: check.Return, Call: 9, Op: "outcome", Branch: check.Branch{Txn: "t9"}, Answer: check.AnswerCommitted})
		}, ""},
		{"C4", "a gap in a generation", func(s *story) {
			for i := range s.events {
				if s.events[i].Branch.Epoch == (check.Epoch{Generation: 1, N: 2}) && s.events[i].Kind != check.Closed {
					s.events[i].Branch.Epoch.N = 3
				}
			}
		}, ""},
		{"C4", "an older generation decided after a younger one", func(s *story) {
			for i := range s.events {
				if s.events[i].Kind == check.Decided && s.events[i].Index == 20 {
					s.events[i].Index = 9
				}
			}
		}, ""},
		{"C5", "a zombie prepares", func(s *story) {
			s.add(check.Event{Kind: check.Prepared, Store: "m1a", Branch: branch(1, 3), Handle: "z"})
		}, ""},
		{"C5", "a resource is opened for an older generation", func(s *story) { s.open(1) }, ""},
		{"C6", "something is left", func(s *story) { s.add(check.Event{Kind: check.Held, Store: "m1a", Handle: "x"}) }, ""},
		{"C7", "two states at one entry", func(s *story) { s.add(check.Event{Who: "n3", Kind: check.State, Index: 10, Hash: "5b"}) }, ""},
		{"C7", "one decision at two places of the log", func(s *story) {
			s.add(check.Event{Who: "n3", Kind: check.Decided, Index: 22, Branch: check.Branch{Scope: scope, Epoch: check.Epoch{Generation: 2, N: 1}}})
		}, "C4"},
		{"C8", "two entries at one place", func(s *story) { s.add(check.Event{Who: "n3", Kind: check.Entry, Index: 10, Term: 2, Hash: "bb"}) }, ""},
		{"C8", "two leaders of one term", func(s *story) { s.add(check.Event{Who: "n3", Kind: check.Leads, Term: 2}) }, ""},
		{"C9", "a scope never decides again", func(s *story) {
			s.add(check.Event{Kind: check.Healed})
			s.events[last(s.events[:last(s.events, check.Healed)], check.Healed)].Kind = check.Note
		}, ""},
		{"C9", "it takes too long", func(s *story) {
			for i := range s.events[last(s.events, check.Healed)+1:] {
				s.events[last(s.events, check.Healed)+1+i].At += time.Minute
			}
		}, ""},
		{"C9", "a call is never answered", func(s *story) {
			s.add(check.Event{Who: "c1", Kind: check.Invoke, Call: 7, Op: "commit", Branch: check.Branch{Txn: "t7"}})
		}, ""},
		{"C9", "the run never heals", func(s *story) { s.events[last(s.events, check.Healed)].Kind = check.Note }, ""},
		{"C10", "nobody answers while a minority is down", func(s *story) {
			for i := range s.events {
				if s.events[i].Kind == check.Return {
					s.events[i].Answer = check.AnswerUnknown
				}
			}
		}, ""},
		{"C11", "too much is pending", func(s *story) {
			for n := range uint64(3) {
				s.add(check.Event{Kind: check.Prepared, Store: "m1a", Branch: branch(2, 2+n), Handle: fmt.Sprint("p", n)})
			}
		}, ""},
		{"C11", "a branch too many was begun", func(s *story) {
			for n := range uint64(2) {
				s.add(check.Event{Kind: check.Prepared, Store: "m1a", Branch: branch(2, 2+n), Handle: fmt.Sprint("p", n)})
			}
			s.add(check.Event{Kind: check.Begun, Store: "m1a", Branch: branch(2, 4)})
		}, ""},
		{"C11", "the log grows by itself", func(s *story) { s.add(check.Event{Who: "n1", Kind: check.Entry, Index: 5000, Term: 2}) }, ""},
		{"C12", "committed, and nowhere", func(s *story) {
			s.transfer("t3", 3, check.RolledBack, check.AnswerCommitted)
		}, ""},
		{"C12", "aborted, and there", func(s *story) { s.transfer("t3", 3, check.Committed, check.AnswerAborted) }, ""},
		{"C12", "refused, and there", func(s *story) { s.transfer("t3", 3, check.Committed, check.AnswerRefused) }, ""},
		{"C13", "a log line with a secret", func(s *story) { s.add(check.Event{Who: "n1", Kind: check.Said, Text: "password=hunter2"}) }, ""},
		{"C14", "a window's result is missing", func(s *story) { s.committed(1, 2, "out").Records = nil }, ""},
		{"C14", "a window has fired once more in a later epoch", func(s *story) {
			e := s.committed(1, 2, "out")
			e.Records = append([]string{"b@0…10=1/1"}, e.Records...)
		}, ""},
		{"C14", "a record did not count", func(s *story) { s.committed(1, 2, "out").Records = []string{"a@10…20=1/2"} }, ""},
		{"C14", "a window has fired before its time", func(s *story) {
			e := s.committed(1, 1, "out")
			e.Records = append(slices.Clone(e.Records), "a@10…20=1/3")
		}, ""},
		{"C14", "the results are in another order", func(s *story) {
			e := s.committed(1, 1, "out")
			e.Records = []string{e.Records[1], e.Records[0]}
		}, ""},
		{"C14", "a record that is late is nowhere", func(s *story) { s.committed(2, 1, "late").Records = nil }, ""},
		{"C14", "a position that the source does not have", func(s *story) {
			for i := range s.events {
				if e := &s.events[i]; e.Kind == check.Voted && e.Branch.Member == "m3" && e.Branch.Epoch.Generation == 2 {
					e.Offset = 7
				}
			}
		}, ""},
		{"C13", "an entry with a secret", func(s *story) { s.add(check.Event{Who: "n1", Kind: check.Entry, Index: 11, Term: 2, Text: "hunter2"}) }, ""},
	}
	seen := map[string]bool{}
	for _, c := range cases {
		seen[c.rule] = true
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			s := good()
			c.spoil(s)
			found := check.All(s.events, bounds())
			if !slices.ContainsFunc(found, func(f check.Finding) bool { return f.Rule == c.rule }) {
				t.Errorf("not seen; found %v", found)
			}
			for _, f := range found {
				if f.Rule != c.rule && f.Rule != c.alsoBroken {
					t.Errorf("another rule speaks too: %s", f)
				}
			}
		})
	}
	for _, r := range check.Rules() {
		if !seen[r.Name] {
			t.Errorf("no history breaks %s: %s", r.Name, r.What)
		}
	}
}

func TestATraceIsReadable(t *testing.T) {
	text := check.Trace(good().events, false)
	for _, want := range []string{
		"  2.000000s             m1a: opened for generation 1 of orders/0 by m1\n",
		"m1a: committed orders/0@1.1 m1/a, 3 records m1-0 … m1-2\n",
		"orders/0 is set back to 1.1\n",
		"c1         call 1: commit t1: committed",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the trace lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "disk: entry") {
		t.Error("the trace shows what only a difference of replicas makes worth reading")
	}
}

func TestASavedHistoryIsReadAsItWas(t *testing.T) {
	history := []check.Event{
		{At: 1, Who: "t1", Kind: check.Invoke, Call: 7, Op: "commit", Branch: check.Branch{Txn: "a"}, Limit: 3},
		{At: 2, Who: "t1", Kind: check.Return, Call: 7, Op: "commit", Branch: check.Branch{Txn: "a"}, Answer: check.AnswerCommitted},
		{At: 3, Who: "n1", Kind: check.Decided, Index: 9, Branch: check.Branch{Scope: "p/0", Epoch: check.Epoch{Generation: 2, N: 1}}},
	}
	for k := check.Note; k <= check.Said; k++ {
		history = append(history, check.Event{Kind: k})
	}
	var saved bytes.Buffer
	if err := check.Write(&saved, history...); err != nil {
		t.Fatal(err)
	}
	saved.WriteString(`{"at":4,"who":"torn`)
	got, err := check.Read(&saved)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(history, got); diff != "" {
		t.Errorf("read back (-saved +read):\n%s", diff)
	}
	if _, err := check.Read(strings.NewReader("{\"kind\":\"nonsense\"}\n")); err == nil {
		t.Error("a line that is no event was taken")
	}
}
