package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// script runs the lines of a scenario:
//
//	at 1000 · at +2000            the leader's clock of what follows
//	init, node, raise             the group
//	put p a:out=kafka b:dir=file [rev=1] [fp=v2] [k=1] [shards=2] [stopped]
//	delete p 1 · desired p running stopping · reshard p 1 2
//	open p/0 0 [i=1] [fp=v1] [scratch] [only=a] [is=a/out@id,a/in@id2!]   instances are a1, b1, ...; ! allows the change
//	close p/0 1 [halt=why]
//	decide p/0@1.1 a b[ro] [final]    in brackets: ro, thru=1, i=a9, h=name, part=x+y
//	prove p/0@1.1 a/out committed|rolled-back · thru p/0@1.0 a 1 · sweep p/0 1 a/out
//	force p/0@1.1 a/out accept-loss · writeoff p/0 1 a/out
//	rewind p/0 1.1 · resume p/0 [1.1] · pin p/0 1.1 · unpin p/0 1.1 · retire 0 [most=2]
//	announce 1000:1 r s [deadline=5000] · commit 1000:1 r s · abort 1000:1
//	show p/0 · outcome p/0@1.1 · todo · txns · cut p/0 · refs x · reopened p/0 · floor
//
// Every command takes req=... . After each the invariants are checked, and a machine loaded from
// the state goes on with the script.
type script struct {
	t   testing.TB
	m   *Machine
	at  int64
	pos []string
	opt map[string]string
}

func newScript(t testing.TB) *script { return &script{t: t, m: New(), at: 1000} }

// run answers one line.
func (p *script) run(line string) string {
	p.pos, p.opt = nil, map[string]string{}
	var verb string
	for i, word := range strings.Fields(line) {
		key, value, isOpt := strings.Cut(word, "=")
		switch {
		case i == 0:
			verb = word
		case isOpt && !strings.ContainsAny(key, ":["):
			p.opt[key] = value
		default:
			p.pos = append(p.pos, word)
		}
	}
	if verb == "at" {
		if strings.HasPrefix(p.arg(0), "+") {
			p.at += int64(p.num(0))
		} else {
			p.at = int64(p.num(0))
		}
		return ""
	}
	if out, isView := p.view(verb); isView {
		return out
	}
	r, effects := p.m.Apply(Command{Request: p.opt["req"], Actor: "op", At: p.at, Body: p.body(verb)})
	check(p.t, p.m)
	loaded, err := Load(p.m.State())
	if err != nil {
		p.t.Fatal(err)
	}
	loaded.unguarded = p.m.unguarded
	p.m = loaded
	return showResult(r) + showEffects(effects)
}

func (p *script) arg(i int) string {
	if i < len(p.pos) {
		return p.pos[i]
	}
	return ""
}

func (p *script) num(i int) uint64 {
	n, err := strconv.ParseUint(strings.TrimPrefix(p.arg(i), "+"), 10, 64)
	if err != nil {
		p.t.Fatalf("word %d of %v is no number", i, p.pos)
	}
	return n
}

func (p *script) flag(name string) bool {
	i := slices.Index(p.pos, name)
	if i >= 0 {
		p.pos = slices.Delete(p.pos, i, i+1)
	}
	return i >= 0
}

func (p *script) scope(i int) ScopeID {
	id, err := ParseScopeID(p.arg(i))
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

func (p *script) epochAt(i int) Epoch {
	if p.arg(i) == "" {
		return Epoch{}
	}
	e, err := ParseEpoch(p.arg(i))
	if err != nil {
		p.t.Fatal(err)
	}
	return e
}

func (p *script) branch(i int) BranchID {
	member, resource, two := strings.Cut(p.arg(i), "/")
	if !two {
		return BranchID{Resource: member}
	}
	return BranchID{Member: member, Resource: resource}
}

// txn reads p/0@1.1, or 1000:1 for the first hand-run id of that time.
func (p *script) txn(i int) TxnID {
	ms, n, byHand := strings.Cut(p.arg(i), ":")
	if !byHand {
		return TxnID(p.arg(i))
	}
	at, err1 := strconv.ParseInt(ms, 10, 64)
	k, err2 := strconv.Atoi(n)
	if err1 != nil || err2 != nil {
		return TxnID(p.arg(i))
	}
	return handID(at, k)
}

func (p *script) or(key, otherwise string) string {
	if v, found := p.opt[key]; found {
		return v
	}
	return otherwise
}

func (p *script) body(verb string) Body {
	switch verb {
	case "init":
		return Init{Namespace: p.arg(0), Incarnation: p.num(1)}
	case "node":
		return PutNode{Node: Node{ID: p.arg(0), RaftAddress: p.or("raft", "r"), ClientAddress: "c", FeatureLevel: uint32(p.num(1))}}
	case "raise":
		return RaiseFeatureLevel{Level: uint32(p.num(0))}
	case "put":
		return p.putPipeline()
	case "delete":
		return DeletePipeline{Name: p.arg(0), Revision: p.num(1)}
	case "desired":
		return SetDesired{Pipeline: p.arg(0), From: desired(p.arg(1)), To: desired(p.arg(2))}
	case "reshard":
		return Reshard{Pipeline: p.arg(0), Revision: p.num(1), Shards: uint32(p.num(2))}
	case "open":
		return p.openGeneration()
	case "close":
		return CloseGeneration{Scope: p.scope(0), Generation: Generation(p.num(1)), Cause: p.or("cause", "lease"), Halt: p.opt["halt"]}
	case "decide":
		return p.decide()
	default:
		return p.rest(verb)
	}
}

func (p *script) rest(verb string) Body {
	switch verb {
	case "prove":
		return Resolve{Txn: p.txn(0), Branch: p.branch(1), Proof: Proof{Verdict: verdict(p.arg(2)), Evidence: p.or("by", "seen")}}
	case "thru":
		return Resolve{Txn: p.txn(0), Branch: BranchID{Member: p.arg(1)}, ProvenThrough: p.num(2)}
	case "sweep":
		return Swept{Scope: p.scope(0), Generation: Generation(p.num(1)), Branch: p.branch(2)}
	case "force":
		return Force{Txn: p.txn(0), Branch: p.branch(1), Action: AcceptLoss, Why: p.or("why", "gone")}
	case "writeoff":
		return Force{Scope: p.scope(0), Generation: Generation(p.num(1)), Branch: p.branch(2), Action: WriteOff, Why: p.or("why", "gone")}
	case "rewind":
		return Rewind{Scope: p.scope(0), To: p.epochAt(1), Why: "bad output"}
	case "resume":
		return Resume{Scope: p.scope(0), From: p.epochAt(1), Why: "repaired"}
	case "pin", "unpin":
		return Pin{Scope: p.scope(0), Epoch: p.epochAt(1), Unpin: verb == "unpin"}
	case "retire":
		most, _ := strconv.ParseUint(p.or("most", "0"), 10, 32)
		return Retire{KeepFor: int64(p.num(0)), KeepEpochs: uint32(most)}
	case "announce":
		d, _ := strconv.ParseInt(p.or("deadline", "0"), 10, 64)
		return Announce{Txn: p.txn(0), Branches: p.hand(false), Deadline: d}
	case "commit":
		return Commit{Txn: p.txn(0), Branches: p.hand(true)}
	case "abort":
		return PresumeAbort{Txn: p.txn(0), Why: p.or("why", "asked")}
	default:
		p.t.Fatalf("%q is no command of a scenario", verb)
		return nil
	}
}

func desired(s string) Desired {
	for d := Running; d <= Stopped; d++ {
		if d.String() == s {
			return d
		}
	}
	return desiredUnset
}

func verdict(s string) Verdict {
	if s == "committed" {
		return ProvenCommitted
	}
	return ProvenRolledBack
}

func (p *script) hand(handles bool) []HandBranch {
	var bs []HandBranch
	for _, r := range p.pos[1:] {
		b := HandBranch{Resource: r}
		if handles {
			b.Handle = Handle{Kind: "mem", Version: 1, Name: p.or("h", "h-"+r)}
		}
		bs = append(bs, b)
	}
	return bs
}

func (p *script) putPipeline() Body {
	rev, _ := strconv.ParseUint(p.or("rev", "0"), 10, 64)
	keep, _ := strconv.ParseUint(p.or("k", "0"), 10, 32)
	shards, _ := strconv.ParseUint(p.or("shards", "0"), 10, 32)
	v := Pipeline{Revision: rev, Fingerprint: p.or("fp", "v1"), Shards: uint32(shards), Settings: Settings{RestorePoints: uint32(keep)}}
	if p.flag("stopped") {
		v.Desired = Stopped
	}
	v.Name = p.arg(0)
	for _, word := range p.pos[1:] {
		name, resources, _ := strings.Cut(word, ":")
		m := MemberSpec{Name: name}
		for _, r := range strings.Split(resources, ",") {
			if n, kind, ok := strings.Cut(r, "="); ok {
				m.Resources = append(m.Resources, ResourceSpec{Name: n, Kind: kind})
			}
		}
		v.Members = append(v.Members, m)
	}
	return PutPipeline{Pipeline: v}
}

func (p *script) openGeneration() Body {
	b := OpenGeneration{FromScratch: p.flag("scratch"), Scope: p.scope(0), From: Generation(p.num(1)), Fingerprint: p.or("fp", "v1"), Cause: "start"}
	pl, _ := p.m.Pipeline(b.Scope.Pipeline)
	for _, m := range pl.Members {
		if only := p.or("only", m.Name); only == m.Name {
			b.Members = append(b.Members, MemberInstance{Member: m.Name, Instance: m.Name + p.or("i", p.arg(1))})
		}
	}
	for word := range strings.SplitSeq(p.opt["is"], ",") {
		if at, id, ok := strings.Cut(word, "@"); ok {
			member, resource, _ := strings.Cut(at, "/")
			r := ResourceIdentity{ID: BranchID{Member: member, Resource: resource}}
			r.Identity, r.AllowChanged = strings.TrimSuffix(id, "!"), strings.HasSuffix(id, "!")
			b.Identities = append(b.Identities, r)
		}
	}
	return b
}

// decide votes for every declared resource of a member with a handle named after the epoch.
func (p *script) decide() Body {
	b := Decide{Final: p.flag("final")}
	scope, e, ok := p.txn(0).Epoch()
	if !ok {
		p.t.Fatalf("%q is no epoch", p.arg(0))
	}
	b.Scope, b.Epoch = scope, e
	g, _ := p.m.Newest(scope)
	pl, _ := p.m.Pipeline(scope.Pipeline)
	for _, word := range p.pos[1:] {
		name, with, _ := strings.Cut(strings.TrimSuffix(word, "]"), "[")
		v := Vote{Member: name, Positions: []Position{{Resource: "in", Split: "0", Offset: int64(e.N)}}}
		for _, o := range g.Members {
			if o.Member == name {
				v.Instance = o.Instance
			}
		}
		opts := map[string]string{}
		for _, o := range strings.Split(with, ";") {
			k, value, _ := strings.Cut(o, "=")
			opts[k] = value
		}
		if _, readOnly := opts["ro"]; !readOnly {
			for _, m := range pl.Members {
				for _, r := range m.Resources {
					if m.Name == name {
						v.Branches = append(v.Branches, Prepared{Resource: r.Name, Handle: Handle{Kind: r.Kind, Version: 1, Name: e.String() + opts["h"]}})
					}
				}
			}
		}
		v.ProvenThrough, _ = strconv.ParseUint(opts["thru"], 10, 64)
		if opts["i"] != "" {
			v.Instance = opts["i"]
		}
		for _, part := range strings.Split(opts["part"], "+") {
			if part != "" {
				v.Parts = append(v.Parts, StatePart{ID: part, Store: "shared"})
			}
		}
		b.Votes = append(b.Votes, v)
	}
	return b
}

// view answers the lines that change nothing.
func (p *script) view(verb string) (string, bool) {
	var b strings.Builder
	switch verb {
	case "show":
		p.showScope(&b, p.scope(0))
	case "outcome":
		scope, e, _ := p.txn(0).Epoch()
		fmt.Fprintln(&b, p.m.EpochOutcome(scope, e))
	case "todo":
		o := p.m.Outstanding()
		for _, u := range o.Unfinished {
			fmt.Fprintf(&b, "unfinished %s %s %s, %s\n", u.Txn, u.Branch, u.Handle.Name, u.Outcome)
		}
		for _, d := range o.Debts {
			fmt.Fprintf(&b, "debt %s generation %d %s\n", d.Scope, d.Generation, d.Branch)
		}
		for _, t := range o.Announced {
			fmt.Fprintf(&b, "announced %s until %d\n", t.ID, t.Deadline)
		}
	case "txns":
		for _, t := range p.m.Txns(false, "", 0) {
			fmt.Fprintf(&b, "%s %s%s\n", t.ID, t.Outcome, showBranches(t.Branches))
		}
	case "cut":
		r, ok := p.m.ProvenCut(p.scope(0))
		fmt.Fprintln(&b, r.Epoch, ok)
	case "refs":
		fmt.Fprintln(&b, p.m.Refs(p.arg(0)))
	case "floor":
		fmt.Fprintln(&b, p.m.Floor())
	case "reopened":
		o, ok := p.m.Reopened(p.scope(0))
		fmt.Fprintf(&b, "%t%s\n", ok, showOpened(&o))
	default:
		return "", false
	}
	return b.String(), true
}

func (p *script) showScope(b *strings.Builder, id ScopeID) {
	s, ok := p.m.Scope(id)
	if !ok {
		fmt.Fprintln(b, "no such scope")
		return
	}
	fmt.Fprintf(b, "scope %s from %s barren=%d after=%d", s.ID, s.RestorePoint, s.Barren, s.OpenAfter)
	for _, r := range s.Identities {
		fmt.Fprintf(b, " %s@%s", r.ID, r.Identity)
	}
	if s.Resumed != 0 {
		fmt.Fprintf(b, " resumed=%d", s.Resumed)
	}
	for _, r := range s.Rewinds {
		fmt.Fprintf(b, " rewound=%s/%s", r.Newest, r.To)
	}
	if s.Halted != "" {
		fmt.Fprintf(b, " halted: %s", s.Halted)
	}
	fmt.Fprintln(b)
	for _, g := range s.Generations {
		state := "closed"
		if g.Open {
			state = "open"
		}
		fmt.Fprintf(b, "  generation %d %s final=%d members=%d debts=%v: %s\n", g.Generation, state, g.Final, len(g.Members), g.Debts, g.Cause)
	}
	for _, e := range s.Epochs {
		kept := ""
		if len(e.Votes) > 0 {
			kept = " restore-point"
		}
		if slices.Contains(s.Pinned, e.Epoch) {
			kept += " pinned"
		}
		if e.Final {
			kept += " final"
		}
		fmt.Fprintf(b, "  epoch %s%s%s\n", e.Epoch, kept, showBranches(e.Branches))
	}
}

func showBranches(bs []Branch) string {
	var b strings.Builder
	for _, x := range bs {
		fmt.Fprintf(&b, " %s=%s", x.ID, x.Proof.Verdict)
		if x.Forced != "" {
			fmt.Fprintf(&b, "(%s)", x.Forced)
		}
	}
	return b.String()
}

func showOpened(o *Opened) string {
	var b strings.Builder
	fmt.Fprintf(&b, " generation=%d", o.Generation)
	if o.RestorePoint != nil {
		fmt.Fprintf(&b, " restore=%s", o.RestorePoint.Epoch)
	}
	if len(o.KeptParts) > 0 {
		fmt.Fprintf(&b, " parts=%v", o.KeptParts)
	}
	for _, u := range o.Unfinished {
		fmt.Fprintf(&b, " unfinished=%s:%s", u.Epoch, u.Branch)
	}
	for _, d := range o.Debts {
		fmt.Fprintf(&b, " debt=%d:%s", d.Generation, d.Branch)
	}
	return b.String()
}

func showResult(r Result) string {
	var b strings.Builder
	if r.OK() {
		b.WriteString("ok")
	} else {
		fmt.Fprintf(&b, "%s: %s", r.Refusal, r.Text)
	}
	fields := map[string]int64{"final": int64(r.Final), "deadline": r.Deadline, "retry-at": r.RetryAt}
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		if fields[k] != 0 {
			fmt.Fprintf(&b, " %s=%d", k, fields[k])
		}
	}
	if r.Outcome != outcomeUnset {
		fmt.Fprintf(&b, " outcome=%s", r.Outcome)
	}
	if r.Opened != nil {
		b.WriteString(showOpened(r.Opened))
	}
	if r.Pipeline != nil {
		fmt.Fprintf(&b, " revision=%d shards=%d %s", r.Pipeline.Revision, r.Pipeline.Shards, r.Pipeline.Desired)
	}
	for _, x := range r.Retired {
		fmt.Fprintf(&b, " retired=%s:%s:%s", x.Scope, x.Member, x.Part)
	}
	return b.String() + "\n"
}

func showEffects(effects []Effect) string {
	var b strings.Builder
	for _, e := range effects {
		fmt.Fprintf(&b, "  ! %s", e.Kind)
		switch {
		case e.Pipeline != "":
			fmt.Fprintf(&b, " %s", e.Pipeline)
		case e.Scope.Pipeline != "":
			fmt.Fprintf(&b, " %s %s", e.Scope, e.Epoch)
		default:
			fmt.Fprintf(&b, " %s %s", e.Txn, e.Outcome)
		}
		if e.Text != "" {
			fmt.Fprintf(&b, ": %s", e.Text)
		}
		b.WriteString("\n")
	}
	return b.String()
}
