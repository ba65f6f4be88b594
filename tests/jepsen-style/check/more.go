package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// linearizable is C4. A transaction by hand is a register that is written once, by the first call
// that has its effect. So an answer needs a call that can have written it and had begun before the
// answer was given; and the epochs of a generation are decided from 1 on without a gap, a
// generation before any younger one.
func linearizable(events []Event, _ Bounds) []Finding {
	f := findings{rule: "C4"}
	begun := map[string]map[string]bool{} // txn -> op
	for _, e := range events {
		//exhaustive:ignore
		switch e.Kind {
		case Invoke:
			if begun[e.Branch.Txn] == nil {
				begun[e.Branch.Txn] = map[string]bool{}
			}
			begun[e.Branch.Txn][e.Op] = true
		case Return:
			if e.Answer == AnswerCommitted && !begun[e.Branch.Txn]["commit"] {
				f.add("transaction %s is told committed before anybody asked for that", e.Branch.Txn)
			}
			// Nobody need ask for an abort: a deadline passes.
		}
	}
	// What one node misses (a snapshot brings it no events) another one tells: in the order of the
	// log the epochs of a scope ascend. That none is missing is asked of the record.
	applied := map[uint64]Branch{}
	for _, e := range events {
		if e.Kind == Decided {
			applied[e.Index] = e.Branch
		}
	}
	last := map[string]Epoch{}
	for _, i := range slices.Sorted(maps.Keys(applied)) {
		b := applied[i]
		if was := last[b.Scope]; b.Epoch.Compare(was) <= 0 {
			f.add("entry %d decided %s of %s after %s", i, b.Epoch, b.Scope, was)
		}
		last[b.Scope] = b.Epoch
	}
	ds := decisions(events)
	for scope, all := range ds {
		was := Epoch{}
		for _, d := range all {
			next := was.Generation == d.epoch.Generation && d.epoch.N == was.N+1
			first := was.Generation < d.epoch.Generation && d.epoch.N == 1
			if !next && !first {
				f.add("the record of %s has %s after %s", scope, d.epoch, was)
			}
			was = d.epoch
		}
	}
	return f.all
}

// fenced is C5.
func fenced(events []Event, _ Bounds) []Finding {
	f := findings{rule: "C5"}
	type owner struct{ store, scope, member, resource string }
	newest := map[owner]uint64{}
	for _, e := range events {
		k := owner{e.Store, e.Branch.Scope, e.Branch.Member, e.Branch.Resource}
		//exhaustive:ignore
		switch e.Kind {
		case Opened:
			if g := e.Branch.Epoch.Generation; g < newest[k] {
				f.add("%s was opened for generation %d of %s after %d", e.Store, g, e.Branch.Scope, newest[k])
			} else {
				newest[k] = g
			}
		case Prepared:
			if g := e.Branch.Epoch.Generation; e.Branch.Txn == "" && g < newest[k] {
				f.add("%s was prepared in %s after generation %d had been opened there", e.Branch, e.Store, newest[k])
			}
		}
	}
	return f.all
}

// nothingLeft is C6.
func nothingLeft(events []Event, _ Bounds) []Finding {
	f := findings{rule: "C6"}
	for _, e := range events {
		if e.Kind == Held {
			f.add("%s still holds %s", e.Store, e.Handle)
		}
	}
	return f.all
}

// sameState is C7.
func sameState(events []Event, _ Bounds) []Finding {
	f := findings{rule: "C7"}
	first := map[uint64]Event{}
	told := map[uint64]bool{}
	for _, e := range events {
		if e.Kind != State {
			continue
		}
		if was, ok := first[e.Index]; !ok {
			first[e.Index] = e
		} else if was.Hash != e.Hash && !told[e.Index] {
			told[e.Index] = true
			f.add("at entry %d the state of %s is %.8s and that of %s is %.8s", e.Index, was.Who, was.Hash, e.Who, e.Hash)
		}
	}
	applied := map[string]string{}
	for _, e := range events {
		if e.Kind != Decided {
			continue
		}
		k := e.Branch.Scope + "@" + e.Branch.Epoch.String()
		at := fmt.Sprint(e.Index)
		if was, ok := applied[k]; ok && was != at {
			f.add("%s is entry %s on one node and %s on %s", k, was, at, e.Who)
		}
		applied[k] = at
	}
	return f.all
}

// sameLog is C8.
func sameLog(events []Event, _ Bounds) []Finding {
	f := findings{rule: "C8"}
	type place struct{ index, term uint64 }
	entries := map[place]Event{}
	leaders := map[uint64]string{}
	for _, e := range events {
		//exhaustive:ignore
		switch e.Kind {
		case Entry:
			k := place{e.Index, e.Term}
			if was, ok := entries[k]; !ok {
				entries[k] = e
			} else if was.Hash != e.Hash {
				f.add("entry %d of term %d is %.8s on %s and %.8s on %s", e.Index, e.Term, was.Hash, was.Who, e.Hash, e.Who)
			}
		case Leads:
			if was, ok := leaders[e.Term]; !ok {
				leaders[e.Term] = e.Who
			} else if was != e.Who {
				f.add("%s and %s both lead term %d", was, e.Who, e.Term)
			}
		}
	}
	return f.all
}

// lively is C9.
func lively(events []Event, b Bounds) []Finding {
	f := findings{rule: "C9"}
	healed, at := false, time.Duration(0)
	var end time.Duration
	after := map[string]time.Duration{}
	open := map[uint64]Event{}
	for _, e := range events {
		end = e.At
		//exhaustive:ignore
		switch e.Kind {
		case Healed:
			healed, at = true, e.At
		case Decided:
			if _, ok := after[e.Branch.Scope]; healed && !ok {
				after[e.Branch.Scope] = e.At - at
			}
		case Invoke:
			open[e.Call] = e
		case Return:
			delete(open, e.Call)
		}
	}
	if !healed {
		f.add("the run ended before everything was healed")
		return f.all
	}
	for scope := range b.Resources {
		if took, ok := after[scope]; !ok {
			f.add("%s decided nothing in the %s after everything was healed", scope, end-at)
		} else if took > b.DecideWithin {
			f.add("%s decided again %s after everything was healed; at most %s were allowed", scope, took, b.DecideWithin)
		}
	}
	for _, e := range open {
		f.add("call %d (%s %s) of %s was never answered", e.Call, e.Op, e.Branch.Txn, e.Who)
	}
	return f.all
}

// available is C10.
func available(events []Event, b Bounds) []Finding {
	f := findings{rule: "C10"}
	since := time.Duration(-1)
	counted := map[uint64]bool{}
	asked, answered := 0, 0
	for _, e := range events {
		//exhaustive:ignore
		switch e.Kind {
		case Minority:
			since = e.At
		case MinorityEnd:
			since = -1
		case Invoke:
			if since >= 0 && e.At >= since+b.Grace {
				counted[e.Call] = true
			}
		case Return:
			// A call that outlives the minority says nothing about it.
			if counted[e.Call] && since >= 0 {
				asked++
				if e.Answer != AnswerUnknown {
					answered++
				}
			}
			delete(counted, e.Call)
		}
	}
	if asked > 0 && float64(answered) < b.Share*float64(asked) {
		f.add("of %d calls made while a minority was down only %d were answered", asked, answered)
	}
	return f.all
}

// bounded is C11.
func bounded(events []Event, b Bounds) []Finding {
	f := findings{rule: "C11"}
	type owner struct {
		store, scope, member, resource string
		generation                     uint64
	}
	pending := map[owner]map[string]uint64{} // handle -> number of its epoch
	told := map[owner]bool{}
	last, first, changes := uint64(0), uint64(0), 0
	for _, e := range events {
		k := owner{e.Store, e.Branch.Scope, e.Branch.Member, e.Branch.Resource, e.Branch.Epoch.Generation}
		//exhaustive:ignore
		switch e.Kind {
		case Begun:
			// Of an epoch that was prepared twice one handle counts.
			epochs := map[uint64]bool{e.Branch.Epoch.N: true}
			for _, n := range pending[k] {
				epochs[n] = true
			}
			if bound := b.MaxPending[e.Branch.Scope]; bound > 0 && len(epochs) > bound && !told[k] {
				told[k] = true
				f.add("%s was begun in %s while %d epochs before it were pending; %d in all are allowed", e.Branch, e.Store, len(epochs)-1, bound)
			}
		case Prepared:
			changes++
			if pending[k] == nil {
				pending[k] = map[string]uint64{}
			}
			pending[k][e.Handle] = e.Branch.Epoch.N
			bound := b.MaxPending[e.Branch.Scope]
			if n := len(pending[k]); e.Branch.Txn == "" && bound > 0 && n > bound && !told[k] {
				told[k] = true
				f.add("%d branches of generation %d of %s are pending in %s/%s; %d are allowed",
					n, k.generation, k.scope, k.member, k.resource, bound)
			}
		case Committed, RolledBack:
			changes++
			delete(pending[k], e.Handle)
		case Invoke, Opened, Fault, Leads, Closed, Decided:
			changes++
		case Entry:
			if first == 0 {
				first = e.Index
			}
			last = max(last, e.Index)
		}
	}
	if grown := last - first; b.EntriesPerChange > 0 && grown > 100+uint64(b.EntriesPerChange*changes) {
		f.add("the log grew by %d entries for %d changes", grown, changes)
	}
	return f.all
}

// honest is C12.
func honest(events []Event, _ Bounds) []Finding {
	f := findings{rule: "C12"}
	effect := map[string]bool{}
	prepared := map[string]bool{}
	quiet := false
	for _, e := range events {
		//exhaustive:ignore
		switch e.Kind {
		case Committed:
			effect[e.Branch.Txn] = true
		case Prepared:
			prepared[e.Branch.Txn] = true
		case Quiet:
			quiet = true
		}
	}
	commits := map[string]map[Answer]bool{}
	for _, e := range events {
		if e.Kind != Return {
			continue
		}
		txn := e.Branch.Txn
		if e.Answer == AnswerCommitted && prepared[txn] && !effect[txn] && quiet {
			f.add("call %d of %s was answered committed, and %s is nowhere", e.Call, e.Who, txn)
		}
		if e.Answer == AnswerAborted && effect[txn] {
			f.add("call %d of %s was answered aborted, and %s is committed", e.Call, e.Who, txn)
		}
		if e.Op == "commit" {
			if commits[txn] == nil {
				commits[txn] = map[Answer]bool{}
			}
			commits[txn][e.Answer] = true
		}
	}
	for txn, answers := range commits {
		if len(answers) == 1 && answers[AnswerRefused] && effect[txn] {
			f.add("every call to commit %s was refused, and it is committed", txn)
		}
	}
	return f.all
}

// discreet is C13.
func discreet(events []Event, b Bounds) []Finding {
	f := findings{rule: "C13"}
	told := map[string]bool{}
	for _, e := range events {
		texts := append([]string{e.Text, e.Handle, e.Hash}, e.Records...)
		for _, secret := range b.Secrets {
			if !told[e.Who] && slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, secret) }) {
				told[e.Who] = true
				f.add("%s shows a secret at %s", e.Who, e.At)
			}
		}
	}
	return f.all
}
