package judge

import (
	"fmt"
	"maps"
	"slices"

	"github.com/unisink/unisink/tests/jepsen-style/blackbox/house"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// Verdict is what one rule says of a run.
type Verdict struct {
	Rule     string          `json:"rule"`
	What     string          `json:"what"`
	Judged   int             `json:"judged"` // how much it had before it; 0: it was not judged
	Findings []check.Finding `json:"findings,omitempty"`
}

// outside are the rules of package check that can be judged from here, and what their evidence is. C1 is
// judged by recomputing the windows, which `unisink verify` does; C11 and C13 need a look inside.
var outside = map[string]func(check.Event) bool{
	"C2":  func(e check.Event) bool { return e.Kind == check.Prepared },
	"C3":  func(e check.Event) bool { return e.Kind == check.Return || e.Kind == check.Decided },
	"C4":  func(e check.Event) bool { return e.Kind == check.Return || e.Kind == check.Decided },
	"C6":  func(e check.Event) bool { return e.Kind == check.Quiet },
	"C7":  func(e check.Event) bool { return e.Kind == check.State },
	"C8":  func(e check.Event) bool { return e.Kind == check.Leads },
	"C9":  func(e check.Event) bool { return e.Kind == check.Healed },
	"C10": func(e check.Event) bool { return e.Kind == check.Minority },
	"C12": func(e check.Event) bool { return e.Kind == check.Return },
}

// All judges a history. Picture is where porcupine may draw a transaction that is wrong.
func All(events []check.Event, b check.Bounds, picture string) []Verdict {
	var all []Verdict
	told := byHandAndTold(events)
	for _, r := range check.Rules() {
		counts, judged := outside[r.Name]
		if !judged {
			continue
		}
		v := Verdict{Rule: r.Name, What: r.What, Findings: r.Judge(told, b)}
		for _, e := range events {
			if counts(e) {
				v.Judged++
			}
		}
		all = append(all, v)
	}
	register := Verdict{Rule: "register", What: "the calls about a transaction are as if made one after the other"}
	register.Judged, register.Findings = Register(events, picture)
	money := Verdict{Rule: "money", What: "what is committed of each transfer, and of all, adds up to nothing"}
	money.Judged, money.Findings = Money(events)
	order := Verdict{Rule: "order", What: "epochs become visible in order, and no undecided one does"}
	order.Judged, order.Findings = Order(events)
	return append(all, register, money, order)
}

// byHandAndTold is the history as package check knows it: without what is visible of epochs, whose
// records it would count, which windows hide; and the SDK's way to a commit is a call to commit.
func byHandAndTold(events []check.Event) []check.Event {
	all := slices.DeleteFunc(slices.Clone(events), visible)
	for i := range all {
		if all[i].Op == house.OpRun {
			all[i].Op = house.OpCommit
		}
	}
	return all
}

// visible reports whether an event says that an epoch can be seen in a resource.
func visible(e check.Event) bool { return e.Kind == check.Committed && e.Branch.Scope != "" }

// Money judges that transfers take from one side what they give to the other.
func Money(events []check.Event) (judged int, findings []check.Finding) {
	add := func(format string, args ...any) {
		findings = append(findings, check.Finding{Rule: "money", Text: fmt.Sprintf(format, args...)})
	}
	sums := map[string]int64{}
	for _, e := range events {
		if e.Kind != check.Committed || e.Branch.Txn == "" {
			continue
		}
		for _, r := range e.Records {
			entry, err := house.ParseEntry(r)
			if err != nil {
				add("%s holds something else than money: %v", e.Branch, err)
				continue
			}
			judged++
			sums[e.Branch.Txn] += entry.Cents
		}
	}
	var total int64
	for _, txn := range slices.Sorted(maps.Keys(sums)) {
		if sums[txn] != 0 {
			add("transfer %s made %d cents out of nothing", txn, sums[txn])
		}
		total += sums[txn]
	}
	if total != 0 {
		add("%d cents came out of nothing in all", total)
	}
	return judged, findings
}

// Order judges the epochs that can be seen in the resources of pipelines: each resource's are told in
// the order in which they became visible, those that become so at once in any order.
func Order(events []check.Event) (judged int, findings []check.Finding) {
	type place struct{ store, scope, member, resource string }
	decided := map[string]map[check.Epoch]bool{}
	for _, e := range events {
		if e.Kind == check.Decided || e.Kind == check.Record {
			if decided[e.Branch.Scope] == nil {
				decided[e.Branch.Scope] = map[check.Epoch]bool{}
			}
			decided[e.Branch.Scope][e.Branch.Epoch] = true
		}
	}
	newest := map[place]check.Epoch{}
	seen := map[place]map[check.Epoch]bool{}
	add := func(format string, args ...any) {
		findings = append(findings, check.Finding{Rule: "order", Text: fmt.Sprintf(format, args...)})
	}
	for _, e := range events {
		if !visible(e) {
			continue
		}
		judged++
		k := place{e.Store, e.Branch.Scope, e.Branch.Member, e.Branch.Resource}
		if !decided[k.scope][e.Branch.Epoch] {
			add("%s is visible in %s and was never decided", e.Branch, e.Store)
		}
		if e.Branch.Epoch.Compare(newest[k]) < 0 {
			add("%s became visible in %s after %s", e.Branch, e.Store, newest[k])
		} else {
			newest[k] = e.Branch.Epoch
		}
		if seen[k] == nil {
			seen[k] = map[check.Epoch]bool{}
		}
		if seen[k][e.Branch.Epoch] {
			add("%s became visible in %s twice", e.Branch, e.Store)
		}
		seen[k][e.Branch.Epoch] = true
	}
	return judged, findings
}
