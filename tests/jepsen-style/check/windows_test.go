package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// decided is an epoch of generation 1 of a scope with one member, which goes up to an offset of its source, and what
// became visible of it in one resource for results and one for what is late.
type decided struct {
	to            int64
	results, late []string
	drain         bool
}

func (d decided) events(n uint64) []check.Event {
	b := check.Branch{Scope: scope, Member: "m", Epoch: check.Epoch{Generation: 1, N: n}}
	op := ""
	if d.drain {
		op = "drain"
	}
	all := []check.Event{{Kind: check.Voted, Branch: b, Offset: d.to, Op: op}, {Kind: check.Decided, Index: n, Branch: check.Branch{Scope: scope, Epoch: b.Epoch}}}
	for resource, records := range map[string][]string{"out": d.results, "late": d.late} {
		b.Resource = resource
		if len(records) > 0 {
			all = append(all, check.Event{Kind: check.Committed, Branch: b, Handle: b.String(), Records: records})
		}
	}
	return all
}

// What a source's records make visible was worked out by hand for these.
func TestWhatWindowsMakeVisible(t *testing.T) {
	cases := []struct {
		name    string
		windows check.Windows
		epochs  []decided
	}{
		{
			"sliding windows count a record in each that it is in, also before 1970",
			check.Windows{Size: 10, Every: 5, Splits: 1, Source: []check.Reading{
				{Key: "a", Time: -3, Value: 1}, {Key: "a", Time: 2, Value: 2}, {Key: "a", Time: 5, Value: 4}, {Key: "a", Time: 15, Value: 8},
			}},
			[]decided{
				{to: 2, results: []string{"a@-10…0=1/1"}},
				{to: 3, results: []string{"a@-5…5=2/3"}},
				{to: 4, results: []string{"a@0…10=2/6", "a@5…15=1/4"}},
			},
		},
		{
			"windows begin at multiples of their step, also where their size is none",
			check.Windows{Size: 10, Every: 4, Splits: 1, Source: []check.Reading{
				{Key: "a", Time: -1, Value: 1}, {Key: "a", Time: 9, Value: 2}, {Key: "a", Time: 20, Value: 4},
			}},
			[]decided{
				{to: 2, results: []string{"a@-8…2=1/1", "a@-4…6=1/1"}},
				{to: 3, results: []string{"a@0…10=1/2", "a@4…14=1/2", "a@8…18=1/2"}},
			},
		},
		{
			"a window waits for the slowest split, and for the disorder of it",
			check.Windows{Size: 10, Every: 10, Disorder: 2, Splits: 2, Source: []check.Reading{
				{Key: "a", Time: 30, Value: 1},
				{Split: 1, Key: "a", Time: 5, Value: 2},
				{Split: 1, Key: "a", Time: 11, Value: 4},
				{Key: "a", Time: 9, Value: 8},
				{Split: 1, Key: "a", Time: 12, Value: 16},
				{Key: "a", Time: 9, Value: 32},
			}},
			[]decided{
				{to: 4},
				{to: 6, results: []string{"a@0…10=2/10"}, late: []string{"late:0/2"}},
			},
		},
		{
			"for its lateness a window takes records and tells again what it has",
			check.Windows{Size: 10, Every: 10, Lateness: 5, Splits: 1, Source: []check.Reading{
				{Key: "a", Time: 1, Value: 1},
				{Key: "b", Time: 14, Value: 2},
				{Key: "a", Time: 9, Value: 4},
				{Key: "c", Time: 9, Value: 8},
				{Key: "b", Time: 15, Value: 16},
				{Key: "a", Time: 9, Value: 32},
			}},
			[]decided{
				{to: 2, results: []string{"a@0…10=1/1"}},
				{to: 6, results: []string{"a@0…10=2/5+", "c@0…10=1/8"}, late: []string{"late:0/5"}},
			},
		},
		{
			"a drain fires what is open, and what comes behind it is late there and nowhere else",
			check.Windows{Size: 10, Every: 10, Lateness: 5, Splits: 1, Source: []check.Reading{
				{Key: "a", Time: 1, Value: 1}, {Key: "a", Time: 11, Value: 2}, {Key: "a", Time: 19, Value: 4}, {Key: "a", Time: 20, Value: 8}, {Key: "a", Time: 31, Value: 16},
			}},
			[]decided{
				{to: 2, results: []string{"a@0…10=1/1", "a@10…20=1/2"}, drain: true},
				{to: 4, late: []string{"late:0/2"}},
				{to: 5, results: []string{"a@20…30=1/8"}},
				{to: 5, results: []string{"a@30…40=1/16"}, drain: true},
				{to: 5, drain: true},
			},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.windows.Late = "late"
			b := check.Bounds{
				Resources: map[string]map[string][]string{scope: {"m": {"out", "late"}}},
				Windows:   map[string]map[string]check.Windows{scope: {"m": c.windows}},
			}
			var all []check.Event
			for i, d := range c.epochs {
				all = append(all, d.events(uint64(i+1))...)
			}
			if found := windows(all, b); len(found) > 0 {
				t.Errorf("found %v", found)
			}
			for i, e := range all {
				if e.Kind != check.Committed {
					continue
				}
				spoilt := slices.Clone(all)
				spoilt[i].Records = e.Records[1:]
				found := windows(spoilt, b)
				if len(found) != 1 || !strings.Contains(found[0].Text, e.Records[0]) {
					t.Errorf("without %s: found %v", e.Records[0], found)
				}
			}
		})
	}
}

// windows are the findings of C14, and of C1, which looks at windows too.
func windows(events []check.Event, b check.Bounds) []check.Finding {
	return slices.DeleteFunc(check.All(events, b), func(f check.Finding) bool { return f.Rule != "C1" && f.Rule != "C14" })
}
