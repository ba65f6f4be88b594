package ledger

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/unisink/unisink/internal/mutant"
)

// openGeneration starts a generation. Everything that Restore needs is read here, at this entry:
// read any earlier, it could miss a decision that stands between the reading and the entry (P3).
func (m *Machine) openGeneration(s *step, c *Command, b OpenGeneration) {
	p, sc := m.pipelines[b.Scope.Pipeline], m.scopes[b.Scope]
	if p == nil || sc == nil || b.Scope.Shard >= p.Shards {
		s.refuse(NotFound, "there is no scope %s", b.Scope)
		return
	}
	if repeated(c, sc.lastRequest) {
		if o, ok := m.Reopened(b.Scope); ok {
			s.Opened = &o
			return
		}
	}
	if !m.mayFollow(s, sc, b.From) || !m.mayOpen(s, c, p, sc, &b) {
		return
	}
	members := slices.SortedFunc(slices.Values(b.Members), func(x, y MemberInstance) int { return cmp.Compare(x.Member, y.Member) })
	if bad := checkMembers(p.Members, members); bad != "" {
		s.refuse(Invalid, "a generation of scope %s: %s", b.Scope, bad)
		return
	}
	if bad := checkIdentities(p, &b); bad != "" {
		s.refuse(Invalid, "a generation of scope %s: %s", b.Scope, bad)
		return
	}
	if other := sc.foreign(p, b.Identities, b.FromScratch); other != "" && !m.unguarded.anyResource {
		s.refuse(Contradicts, "%s", other)
		return
	}
	if wait := sc.openAfter - c.At; wait > 0 && wait <= barrenWait(sc.barren) {
		s.refuse(Backoff, "scope %s: %d generations in a row decided nothing or ended within %d s, the next may start in %d ms",
			b.Scope, sc.barren, settled/1000, wait)
		s.RetryAt, s.RetryIn = sc.openAfter, wait
		return
	}
	m.lastGeneration++
	m.sealHead()
	g := &GenerationRecord{Generation: m.lastGeneration, Members: members, Open: true, OpenedAt: c.At, Cause: clip(b.Cause)}
	last := sc.newest()
	must(last == nil || last.Generation < g.Generation || m.unguarded.reuseGenerations,
		"generation %d of scope %s would not be newer than the last", g.Generation, b.Scope)
	sc.gens = append(sc.gens, g)
	m.digest += m.genSum(sc, g)
	if b.FromScratch {
		sc.putAside(Epoch{})
		sc.restore = Epoch{}
	}
	sc.know(b.Identities)
	sc.lastRequest = c.Request
	m.sealScope(sc)
	o, _ := m.Reopened(b.Scope)
	s.Opened = &o
	s.effect(Effect{Kind: EffectOpened, Scope: b.Scope, Epoch: Epoch{Generation: g.Generation}, Text: g.Cause})
}

// mayFollow refuses unless from is the scope's newest generation, and closed.
func (m *Machine) mayFollow(s *step, sc *scope, from Generation) bool {
	var last Generation
	g := sc.newest()
	if g != nil {
		last = g.Generation
	}
	if from != last {
		s.refuse(Stale, "the newest generation of scope %s is %d, not %d: read it again", sc.id, last, from)
		return false
	}
	if g != nil && g.Open && !m.unguarded.openUnclosed {
		s.refuse(Busy, "generation %d of scope %s is open: close it first", last, sc.id)
		s.Final = g.Final
		return false
	}
	return true
}

// mayOpen refuses what the desired state, a halt or another specification forbids.
//
// Opening needs running, or draining as long as the drain has not come to its end: a drain whose
// members crash before the final epoch is decided must be carried on, or the open windows would
// never fire. A stop is complete at any decided epoch, so a stopping pipeline is not opened again.
func (m *Machine) mayOpen(s *step, c *Command, p *pipeline, sc *scope, b *OpenGeneration) bool {
	switch {
	case sc.halted != "":
		s.refuse(HaltedScope, "scope %s is halted (%s): resume it when the cause is gone", sc.id, sc.halted)
	case sc.owesProofs() && (p.Desired == Stopping || p.Desired == Draining):
		// What is decided must be proven before a stop is complete, and its members are those who
		// can: they come back for it, restore, and write one last epoch.
		return m.runsSpecification(s, p, b)
	case p.Desired == Draining && sc.drained():
		s.refuse(NotDesired, "scope %s has come to the end of its drain", sc.id)
	case p.Desired != Running && p.Desired != Draining && !m.unguarded.desiredFirst:
		s.refuse(NotDesired, "pipeline %s is wanted %s", p.Name, p.Desired)
	default:
		return m.runsSpecification(s, p, b)
	}
	return false
}

func (m *Machine) runsSpecification(s *step, p *pipeline, b *OpenGeneration) bool {
	if b.Fingerprint != p.Fingerprint {
		s.refuse(Stale, "the members run specification %q, pipeline %s is %q: put the pipeline first", b.Fingerprint, p.Name, p.Fingerprint)
		return false
	}
	return true
}

// owesProofs reports whether a decided branch of the scope is not proven.
func (s *scope) owesProofs() bool {
	return slices.ContainsFunc(s.open, func(e *epoch) bool { return !allResolved(e.Branches) })
}

// checkMembers compares instances, in order of their members, with the declared members.
func checkMembers(declared []MemberSpec, got []MemberInstance) string {
	for i, g := range got {
		if g.Instance == "" || len(g.Instance) > MaxInstance {
			return fmt.Sprintf("member %q needs an instance id of 1 to %d bytes", g.Member, MaxInstance)
		}
		if i > 0 && got[i-1].Member == g.Member {
			return fmt.Sprintf("member %q is named twice", g.Member)
		}
		if !slices.ContainsFunc(declared, func(d MemberSpec) bool { return d.Name == g.Member }) {
			return fmt.Sprintf("member %q is not declared", g.Member)
		}
	}
	if len(got) != len(declared) {
		return fmt.Sprintf("%d members are declared, %d are named", len(declared), len(got))
	}
	return ""
}

// closeGeneration ends a generation, or answers with the final of one that has ended.
func (m *Machine) closeGeneration(s *step, c *Command, b CloseGeneration) {
	sc := m.scopes[b.Scope]
	if sc == nil {
		s.refuse(NotFound, "there is no scope %s", b.Scope)
		return
	}
	newest := sc.newest()
	if newest == nil && b.Generation == 0 && b.Halt != "" && m.pipelines[b.Scope.Pipeline] != nil {
		m.halt(s, sc, clip(b.Halt)) // it should have had some
		sc.lastRequest = c.Request
		m.sealScope(sc)
		return
	}
	if newest == nil || b.Generation > newest.Generation || b.Generation == 0 {
		s.refuse(NotFound, "scope %s has no generation %d", b.Scope, b.Generation)
		return
	}
	s.Final = sc.final(b.Generation)
	if b.Generation < newest.Generation && !mutant.On("ledger/deposed-duty") || m.pipelines[b.Scope.Pipeline] == nil {
		return // it ended long ago
	}
	if b.Halt != "" { // before the close, which may find a reason of its own
		m.halt(s, sc, clip(b.Halt))
		sc.lastRequest = c.Request
	}
	if newest.Open {
		m.close(s, c, sc, newest, clip(b.Cause))
		sc.lastRequest = c.Request
	}
	m.sealScope(sc)
	if m.unguarded.finalForClose {
		s.Final = 0
	}
}

// final is the last decided number of a generation of the scope. Generations that decided nothing
// are not kept for ever, so what is not found has none.
func (s *scope) final(g Generation) uint64 {
	if r := s.generation(g); r != nil {
		return r.Final
	}
	return 0
}

// close ends an open generation: it leaves a debt for every resource of its members, and counts if
// it was barren. The caller seals the scope.
func (m *Machine) close(s *step, c *Command, sc *scope, g *GenerationRecord, cause string) {
	must(g.Open, "generation %d of scope %s is closed twice", g.Generation, sc.id)
	p := m.pipelines[sc.id.Pipeline]
	must(p != nil, "scope %s has an open generation and no pipeline", sc.id)
	m.editGeneration(sc, g, func() {
		g.Open, g.ClosedAt, g.Cause = false, c.At, cause
		g.Debts = debtsOf(p.Members, g.Members)
	})
	s.effect(Effect{Kind: EffectClosed, Scope: sc.id, Epoch: Epoch{Generation: g.Generation, N: g.Final}, Text: cause})
	// A pipeline that is being stopped opens no next generation, so none has to be delayed. Who
	// ends a generation on purpose otherwise does count: a cause is text for people.
	switch age := g.age(c.At); {
	case m.unguarded.backoff || p.Desired != Running && p.Desired != Draining:
	case g.Final == 0 || age < settled:
		m.countBarren(s, c, sc, cause)
	case age >= maxBarrenWait: // what it decided while it was young was not in vain
		sc.barren, sc.openAfter = 0, 0
	}
}

// age is how long the generation has been open. When the clock went back, to another leader's, it
// is not known, and counts as long.
func (g *GenerationRecord) age(now int64) int64 {
	if now < g.OpenedAt {
		return math.MaxInt64
	}
	return now - g.OpenedAt
}

func debtsOf(specs []MemberSpec, members []MemberInstance) []BranchID {
	var debts []BranchID
	for _, spec := range specs {
		if !slices.ContainsFunc(members, func(i MemberInstance) bool { return i.Member == spec.Name }) {
			continue
		}
		for _, r := range spec.Resources {
			debts = append(debts, BranchID{Member: spec.Name, Resource: r.Name})
		}
	}
	slices.SortFunc(debts, BranchID.Compare)
	return debts
}

// countBarren delays the generation after one that decided nothing or ended at once, and halts after
// many (P24).
func (m *Machine) countBarren(s *step, c *Command, sc *scope, cause string) {
	sc.barren++
	sc.openAfter = c.At + barrenWait(sc.barren)
	if sc.barren >= MaxBarren {
		m.halt(s, sc, clip(fmt.Sprintf("%d generations in a row decided nothing or ended within %d s; the last was closed because: %s",
			sc.barren, settled/1000, cause)))
	}
}

// halt keeps the first reason. The caller seals the scope.
func (m *Machine) halt(s *step, sc *scope, why string) {
	if sc.halted != "" {
		return
	}
	sc.halted = why
	s.effect(Effect{Kind: EffectHalted, Scope: sc.id, Text: why})
}

// decide commits an epoch.
func (m *Machine) decide(s *step, c *Command, b Decide) {
	sc := m.scopes[b.Scope]
	if sc == nil {
		s.refuse(NotFound, "there is no scope %s", b.Scope)
		return
	}
	g := sc.newest()
	if b.Epoch.N == 0 || g == nil || b.Epoch.Generation > g.Generation {
		s.refuse(NotFound, "scope %s has no epoch %s to decide", b.Scope, b.Epoch)
		return
	}
	final := sc.final(b.Epoch.Generation)
	if b.Epoch.N <= final && !(m.unguarded.gapCheck && sc.find(b.Epoch) == nil) {
		m.redecide(s, sc, &b)
		return
	}
	if !m.mayDecide(s, sc, g, &b) {
		return
	}
	p := m.pipelines[b.Scope.Pipeline]
	must(p != nil, "scope %s decides without a pipeline", b.Scope)
	votes := slices.SortedFunc(slices.Values(b.Votes), func(x, y Vote) int { return cmp.Compare(x.Member, y.Member) })
	if !m.checkVotes(s, p, g, b.Epoch, votes) {
		return
	}
	if b.Final && p.Desired != Stopping && p.Desired != Draining && !m.unguarded.desiredFirst {
		s.refuse(Stale, "epoch %s would be the last, but pipeline %s is wanted %s: set the desired state first", b.Epoch, p.Name, p.Desired)
		return
	}
	m.applyDecision(s, c, sc, g, b, votes)
}

// redecide answers for an epoch that is decided already. A repeat says what was decided; a proposal
// with other branches for the same number must not be taken for the one that was (P7).
func (m *Machine) redecide(s *step, sc *scope, b *Decide) {
	final := sc.final(b.Epoch.Generation)
	if r := sc.find(b.Epoch); r != nil {
		votes := slices.SortedFunc(slices.Values(b.Votes), func(x, y Vote) int { return cmp.Compare(x.Member, y.Member) })
		if !slices.EqualFunc(branchesOf(votes), r.Branches, sameBranch) {
			s.refuse(Contradicts, "epoch %s of scope %s was decided with other branches", b.Epoch, sc.id)
		}
	}
	s.Final, s.Outcome = final, Committed
}

func (m *Machine) mayDecide(s *step, sc *scope, g *GenerationRecord, b *Decide) bool {
	switch {
	case b.Epoch.Generation < g.Generation:
		s.refuse(FencedOff, "generation %d of scope %s is over, %d is the newest", b.Epoch.Generation, sc.id, g.Generation)
		s.Final = sc.final(b.Epoch.Generation)
	case !g.Open && !m.unguarded.decideClosed:
		s.refuse(FencedOff, "generation %d of scope %s is closed, its last epoch is %d", g.Generation, sc.id, g.Final)
		s.Final = g.Final
	case b.Epoch.N != g.Final+1 && !m.unguarded.gapCheck:
		s.refuse(Stale, "epoch %s of scope %s cannot be decided next: the last decided is %d", b.Epoch, sc.id, g.Final)
		s.Final = g.Final
	default:
		if last := sc.find(Epoch{Generation: g.Generation, N: g.Final}); last != nil && last.Final {
			s.refuse(Stale, "generation %d of scope %s has decided its last epoch, %s", g.Generation, sc.id, last.Epoch)
			s.Final = g.Final
			return false
		}
		return true
	}
	return false
}

// checkVotes wants exactly one vote of every member of the generation, each from the instance that
// the generation names. Votes are in order of their members.
func (m *Machine) checkVotes(s *step, p *pipeline, g *GenerationRecord, at Epoch, votes []Vote) bool {
	if size := votesSize(votes); size > MaxCommand {
		s.refuse(Invalid, "the votes of epoch %s have %d bytes, at most %d are allowed: keep less state inline", at, size, MaxCommand)
		return false
	}
	if len(votes) != len(g.Members) && !m.unguarded.everyVote {
		s.refuse(Invalid, "epoch %s has %d votes, its generation has %d members", at, len(votes), len(g.Members))
		return false
	}
	for i, v := range votes {
		j := i
		if m.unguarded.everyVote {
			j = slices.IndexFunc(g.Members, func(o MemberInstance) bool { return o.Member == v.Member })
		}
		if j < 0 || v.Member != g.Members[j].Member {
			s.refuse(Invalid, "epoch %s: member %q is not in generation %d, or voted twice", at, v.Member, g.Generation)
			return false
		}
		if o := g.Members[j]; v.Instance != o.Instance && !m.unguarded.instanceCheck {
			s.refuse(FencedOff, "epoch %s: member %q voted as instance %q, the generation has %q", at, v.Member, v.Instance, o.Instance)
			return false
		}
		if v.ProvenThrough > g.Final {
			s.refuse(Invalid, "epoch %s: member %q claims %d as proven, the last decided is %d", at, v.Member, v.ProvenThrough, g.Final)
			return false
		}
		if bad := checkVote(p, v); bad != "" {
			s.refuse(Invalid, "epoch %s: member %q: %s", at, v.Member, bad)
			return false
		}
	}
	return true
}

func checkVote(p *pipeline, v Vote) string {
	i := slices.IndexFunc(p.Members, func(d MemberSpec) bool { return d.Name == v.Member })
	must(i >= 0, "member %q of an open generation is not declared", v.Member)
	for k, b := range v.Branches {
		if !slices.ContainsFunc(p.Members[i].Resources, func(r ResourceSpec) bool { return r.Name == b.Resource }) {
			return fmt.Sprintf("resource %q is not declared", b.Resource)
		}
		if slices.ContainsFunc(v.Branches[:k], func(o Prepared) bool { return o.Resource == b.Resource }) {
			return fmt.Sprintf("resource %q has two branches", b.Resource)
		}
		if err := checkHandle("resource "+b.Resource, b.Handle); err != nil {
			return err.Error()
		}
	}
	return ""
}

func branchesOf(votes []Vote) []Branch {
	var bs []Branch
	for _, v := range votes {
		for _, b := range v.Branches {
			bs = append(bs, Branch{ID: BranchID{Member: v.Member, Resource: b.Resource}, Handle: b.Handle})
		}
	}
	slices.SortFunc(bs, func(x, y Branch) int { return x.ID.Compare(y.ID) })
	return bs
}

func sameBranch(a, b Branch) bool { return a.ID == b.ID && sameHandle(a.Handle, b.Handle) }

func sameHandle(a, b Handle) bool {
	return a.Kind == b.Kind && a.Version == b.Version && a.Identity == b.Identity && a.Alias == b.Alias &&
		a.Name == b.Name && a.Text == b.Text && slices.Equal(a.Body, b.Body)
}

func (m *Machine) applyDecision(s *step, c *Command, sc *scope, g *GenerationRecord, b Decide, votes []Vote) {
	for _, v := range votes {
		m.proveThrough(s, c, sc, g.Generation, v.Member, v.ProvenThrough)
	}
	r := EpochRecord{Epoch: b.Epoch, Final: b.Final, Votes: make([]Vote, len(votes)), Branches: branchesOf(votes), DecidedAt: c.At}
	for i, v := range votes {
		v.Branches = nil
		r.Votes[i] = v
	}
	if len(r.Branches) == 0 {
		r.ProvenAt = max(c.At, 1)
	}
	if last := len(sc.epoch) - 1; last >= 0 {
		ownTexts(r.Branches, sc.epoch[last].Branches)
	} else {
		ownTexts(r.Branches, nil)
	}
	m.editGeneration(sc, g, func() { g.Final = b.Epoch.N })
	e := m.addEpoch(sc, r)
	sc.restore = b.Epoch
	if g.age(c.At) >= settled || m.unguarded.youngDecision {
		sc.barren, sc.openAfter = 0, 0
	}
	m.sealScope(sc)
	s.Final, s.Outcome = g.Final, Committed
	s.effect(Effect{Kind: EffectDecided, Scope: sc.id, Epoch: b.Epoch, Txn: EpochTxn(sc.id, b.Epoch), Outcome: Committed})
	if len(e.Branches) == 0 {
		m.resolvedEpoch(s, sc, e)
	}
}
