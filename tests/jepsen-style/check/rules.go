package check

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds are what a run promises to keep. Zero values are not judged.
type Bounds struct {
	// MaxPending epochs per scope may be open or unproven: scope -> bound.
	MaxPending map[string]int
	// Resources of each member: scope -> member -> the names.
	Resources map[string]map[string][]string
	// Windows are those members that make windows of what they read, and do not just copy it: scope -> member -> how.
	Windows map[string]map[string]Windows
	// DecideWithin is how long after everything is healed each scope needs for a new decision.
	DecideWithin time.Duration
	// Grace after a minority went down, and the share of calls that must be answered afterwards.
	Grace time.Duration
	Share float64
	// EntriesPerChange bounds how many log entries a decision, an open, a close or a call may cost.
	EntriesPerChange int
	// Broken are words in the cause of a close that say that a member broke its word.
	Broken []string
	// Secrets must not be in any text.
	Secrets []string
}

// Rule judges a history.
type Rule struct {
	Name  string
	What  string
	Judge func([]Event, Bounds) []Finding
}

// Rules are all of them.
func Rules() []Rule {
	return []Rule{
		{"C1", "every record is once in each sink's committed output, in order, and none of an epoch that was not decided", exactlyOnce},
		{"C2", "a transaction is committed in all its resources or in none", atomic},
		{"C3", "a decision that anybody was told is neither lost nor changed", durable},
		{"C4", "decisions by hand and generations are as if made one after the other", linearizable},
		{"C5", "nothing of an older generation is prepared once a newer one has been opened", fenced},
		{"C6", "nothing is left behind", nothingLeft},
		{"C7", "replicas that applied the same entries hold the same state", sameState},
		{"C8", "an entry has the same bytes on every disk, and a term one leader", sameLog},
		{"C9", "after everything is healed each scope decides again, and each call is answered", lively},
		{"C10", "while a minority is down calls are answered", available},
		{"C11", "what is pending, and what the log grows by, is bounded", bounded},
		{"C12", "no call says ok without effect, or refused with one", honest},
		{"C13", "no secret is in any text or on any disk", discreet},
		{"C14", "every record counts in the windows that it belongs to or is late, and every window's results are visible once", countedOnce},
	}
}

// All judges a history by every rule.
func All(events []Event, b Bounds) []Finding {
	var all []Finding
	for _, r := range Rules() {
		all = append(all, r.Judge(events, b)...)
	}
	return all
}

// decision is what the ledger's record at the end says of an epoch.
type decision struct {
	epoch Epoch
	Decision
}

// decisions are all that were made, by scope, in order: what the nodes told while they applied them,
// and the records at the end, which are not for ever: resolved history retires, the oldest first.
func decisions(events []Event) map[string][]decision {
	at := map[string]map[Epoch]Decision{}
	for _, e := range events {
		if e.Kind != Record && e.Kind != Decided {
			continue
		}
		if at[e.Branch.Scope] == nil {
			at[e.Branch.Scope] = map[Epoch]Decision{}
		}
		if _, known := at[e.Branch.Scope][e.Branch.Epoch]; !known || e.Kind == Record {
			at[e.Branch.Scope][e.Branch.Epoch] = e.Decision
		}
	}
	all := map[string][]decision{}
	for scope, ds := range at {
		for epoch, d := range ds {
			all[scope] = append(all[scope], decision{epoch, d})
		}
		slices.SortFunc(all[scope], func(a, b decision) int { return a.epoch.Compare(b.epoch) })
	}
	return all
}

// rewound tells, by scope and generation, where the first generation after a rewind began.
func rewound(events []Event) map[string]map[uint64]Epoch {
	waiting, all := map[string]*Epoch{}, map[string]map[uint64]Epoch{}
	for _, e := range events {
		s := e.Branch.Scope
		//exhaustive:ignore
		switch e.Kind {
		case Rewound:
			to := e.Branch.Epoch
			waiting[s] = &to
		case Opened, Started:
			// A repeat of an open that was begun before the rewind is of an older generation.
			if to := waiting[s]; to != nil && e.Branch.Epoch.Generation > newestOpened(all[s]) {
				if all[s] == nil {
					all[s] = map[uint64]Epoch{}
				}
				all[s][e.Branch.Epoch.Generation] = *to
				waiting[s] = nil
			}
		}
	}
	return all
}

func newestOpened(m map[uint64]Epoch) uint64 {
	newest := uint64(0)
	for g := range m {
		newest = max(newest, g)
	}
	return newest
}

// offsets are what the members voted: scope -> epoch -> member -> next offset.
func offsets(events []Event) map[string]map[Epoch]map[string]int64 {
	all := map[string]map[Epoch]map[string]int64{}
	for _, e := range events {
		if e.Kind != Voted {
			continue
		}
		scope := all[e.Branch.Scope]
		if scope == nil {
			scope = map[Epoch]map[string]int64{}
			all[e.Branch.Scope] = scope
		}
		if scope[e.Branch.Epoch] == nil {
			scope[e.Branch.Epoch] = map[string]int64{}
		}
		scope[e.Branch.Epoch][e.Branch.Member] = e.Offset
	}
	return all
}

// stretch is what one decided epoch took in: the records of each member from one offset to another.
type stretch struct {
	epoch Epoch
	// after is the decided epoch that it goes on from: the one before, or the one that the scope was set back to.
	after    Epoch
	from, to map[string]int64 // by member
	kept     map[string]int64 // the offsets that the ledger has kept, where it has
}

// stretches are those of all scopes, in the order in which they were decided. How far an epoch goes is what its
// members voted.
func stretches(events []Event) map[string][]stretch {
	voted := offsets(events)
	back := rewound(events)
	all := map[string][]stretch{}
	for scope, ds := range decisions(events) {
		var last Epoch
		for _, d := range ds {
			s := stretch{epoch: d.epoch, after: last, to: voted[scope][d.epoch], kept: d.Offsets}
			// The first decided generation at or after the rewind goes on from where it was set back to, and after
			// several rewinds from where the last of them set it to.
			newest := uint64(0)
			for g, to := range back[scope] {
				if last.Generation < g && d.epoch.Generation >= g && g > newest {
					s.after, newest = to, g
				}
			}
			s.from = voted[scope][s.after]
			all[scope], last = append(all[scope], s), d.epoch
		}
	}
	return all
}

// share is one resource's share of an epoch.
type share struct {
	scope, member, resource string
	epoch                   Epoch
}

// visible is what was committed of each epoch, in each resource.
func visible(events []Event) map[share][]string {
	all := map[share][]string{}
	for _, e := range events {
		if e.Kind == Committed && e.Branch.Txn == "" {
			k := share{e.Branch.Scope, e.Branch.Member, e.Branch.Resource, e.Branch.Epoch}
			all[k] = append(all[k], e.Records...)
		}
	}
	return all
}

// exactlyOnce is C1. The offsets of two decisions that follow each other say which records the
// second one must have committed, in each resource of each member: these, once, in order. What a member with
// windows must have committed is C14's.
func exactlyOnce(events []Event, b Bounds) []Finding {
	f := findings{rule: "C1"}
	newest := map[share]Epoch{} // by share without its epoch
	for _, e := range events {
		if e.Kind == Committed && e.Branch.Txn == "" {
			k := share{scope: e.Branch.Scope, member: e.Branch.Member, resource: e.Branch.Resource}
			if e.Branch.Epoch.Compare(newest[k]) < 0 && !e.AtEnd {
				f.add("%s of %s became visible in %s/%s after %s", e.Branch.Epoch, k.scope, k.member, k.resource, newest[k])
			}
			newest[k] = e.Branch.Epoch
		}
	}
	got := visible(events)
	for scope, all := range stretches(events) {
		for _, s := range all {
			for member, resources := range b.Resources[scope] {
				if kept, ok := s.kept[member]; ok && kept != s.to[member] {
					f.add("%s of %s is kept with %s at offset %d, and the vote said %d", s.epoch, scope, member, kept, s.to[member])
				}
				want := []string{}
				for i := s.from[member]; i < s.to[member]; i++ {
					want = append(want, fmt.Sprintf("%s-%d", member, i))
				}
				_, windowed := b.Windows[scope][member]
				for _, r := range resources {
					k := share{scope, member, r, s.epoch}
					if !windowed && !slices.Equal(got[k], want) {
						f.add("%s of %s is decided with %s at offsets %d to %d, and %s/%s holds %s",
							s.epoch, scope, member, s.from[member], s.to[member], member, r, ofIt(got[k]))
					}
					delete(got, k)
				}
			}
		}
	}
	for k, records := range got {
		f.add("%s of %s was never decided, and %s/%s holds %s", k.epoch, k.scope, k.member, k.resource, ofIt(records))
	}
	return f.all
}

// atomic is C2. Of each transaction every prepared share is committed, once, or none is. A share
// may have been prepared twice, its first answer having been lost: then one of the two counts.
func atomic(events []Event, _ Bounds) []Finding {
	f := findings{rule: "C2"}
	committed := map[string]map[Branch]int{}
	shares := map[string]map[Branch]bool{}
	ended := map[string]Kind{}
	var order []string
	for _, e := range events {
		txn := e.Branch.Transaction()
		//exhaustive:ignore
		switch e.Kind {
		case Prepared:
			if shares[txn] == nil {
				shares[txn] = map[Branch]bool{}
				order = append(order, txn)
			}
			shares[txn][e.Branch] = true
		case Committed:
			if committed[txn] == nil {
				committed[txn] = map[Branch]int{}
			}
			committed[txn][e.Branch]++
			if was := ended[e.Handle]; was != kindUnset {
				f.add("%s of %s was ended twice", e.Handle, e.Branch)
			}
			ended[e.Handle] = e.Kind
		case Heuristic:
			f.add("%s says that a resource broke its promise: %s %s", e.Who, e.Branch, e.Text)
		case RolledBack:
			if was := ended[e.Handle]; was != kindUnset {
				f.add("%s of %s was ended twice", e.Handle, e.Branch)
			}
			ended[e.Handle] = e.Kind
		}
	}
	for _, txn := range order {
		if len(committed[txn]) == 0 {
			continue
		}
		for b := range shares[txn] {
			switch n := committed[txn][b]; n {
			case 1:
			case 0:
				f.add("%s is committed elsewhere and not in %s/%s", txn, b.Member, b.Resource)
			default:
				f.add("%s is committed %d times in %s/%s", txn, n, b.Member, b.Resource)
			}
		}
	}
	return f.all
}

// durable is C3.
func durable(events []Event, b Bounds) []Finding {
	f := findings{rule: "C3"}
	known := map[string]map[Epoch]bool{}
	oldest := map[string]Epoch{}
	for _, e := range events {
		if e.Kind != Record {
			continue
		}
		scope := e.Branch.Scope
		if known[scope] == nil {
			known[scope], oldest[scope] = map[Epoch]bool{}, e.Branch.Epoch
		}
		known[scope][e.Branch.Epoch] = true
		if e.Branch.Epoch.Compare(oldest[scope]) < 0 {
			oldest[scope] = e.Branch.Epoch
		}
	}
	said := map[string]Answer{}
	final := map[string]uint64{}
	broken := map[string]bool{}
	for _, e := range events {
		//exhaustive:ignore
		switch e.Kind {
		case Decided:
			k := known[e.Branch.Scope]
			if k != nil && !k[e.Branch.Epoch] && e.Branch.Epoch.Compare(oldest[e.Branch.Scope]) > 0 {
				f.add("%s applied the decision of %s, of which the ledger knows nothing at the end", e.Who, e.Branch.Transaction())
				k[e.Branch.Epoch] = true
			}
		case Closed:
			key := fmt.Sprintf("generation %d of %s", e.Branch.Epoch.Generation, e.Branch.Scope)
			if was, ok := final[key]; ok && was != e.Branch.Epoch.N {
				f.add("%s was closed at n = %d and is closed at n = %d on %s", key, was, e.Branch.Epoch.N, e.Who)
			}
			final[key] = e.Branch.Epoch.N
			for _, words := range b.Broken {
				if strings.Contains(e.Text, words) && !broken[key] {
					broken[key] = true
					f.add("%s was closed because of a promise that was not kept: %s", key, e.Text)
				}
			}
		case Return:
			if e.Answer != AnswerCommitted && e.Answer != AnswerAborted {
				continue
			}
			if was := said[e.Branch.Txn]; was != answerUnset && was != e.Answer {
				f.add("transaction %s was answered %s, and %s to call %d of %s", e.Branch.Txn, was, e.Answer, e.Call, e.Who)
			}
			said[e.Branch.Txn] = e.Answer
		}
	}
	return f.all
}
