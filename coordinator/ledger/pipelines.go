package ledger

import (
	"fmt"
	"slices"
	"strings"
)

func (m *Machine) setPipeline(p Pipeline) {
	e := m.enc.reset()
	e.text("pipeline")
	e.pipeline(p)
	old := m.pipelines[p.Name]
	if old == nil {
		old = &pipeline{}
		m.pipelines[p.Name] = old
	}
	old.Pipeline = p
	m.seal(&old.sum, e.sum())
}

// each calls f for the scope of every shard of the pipeline, in order.
func (m *Machine) each(p *Pipeline, f func(*scope)) {
	for shard := range p.Shards {
		s := m.scopes[ScopeID{Pipeline: p.Name, Shard: shard}]
		must(s != nil, "pipeline %s has no scope for shard %d", p.Name, shard)
		f(s)
	}
}

// addScopes makes the scopes of a pipeline that are not there. One that is there belonged to a
// deleted pipeline of that name: it keeps what its generations decided, and nothing else.
func (m *Machine) addScopes(p *Pipeline) {
	for shard := range p.Shards {
		id := ScopeID{Pipeline: p.Name, Shard: shard}
		if m.scopes[id] == nil {
			s := &scope{id: id}
			m.addScope(s)
			m.sealScope(s)
		}
	}
}

// unquiet says what of the pipeline is open, unresolved or (with debts) owed; "" when nothing is.
func (m *Machine) unquiet(p *Pipeline, debts bool) string {
	why := ""
	m.each(p, func(s *scope) {
		switch g := s.newest(); {
		case why != "":
		case g != nil && g.Open:
			why = fmt.Sprintf("generation %d of scope %s is open", g.Generation, s.id)
		case len(s.open) > 0:
			why = fmt.Sprintf("epoch %s of scope %s has a branch that is not proven", s.open[0].Epoch, s.id)
		case debts && s.debts > 0:
			why = fmt.Sprintf("scope %s has %d resources of closed generations to be swept", s.id, s.debts)
		}
	})
	return why
}

// fillDefaults puts the defaults where the settings are zero.
func fillDefaults(p *Pipeline) {
	s := &p.Settings
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&s.EpochInterval, 1000)
	set(&s.PrepareTimeout, 30_000)
	set(&s.Lease, 3000)
	set(&s.CommitBudget, 10_000)
	if s.MaxPending == 0 {
		s.MaxPending = 2
	}
	if s.RestorePoints == 0 {
		s.RestorePoints = 3
	}
}

// complaints collects every mistake of a pipeline.
type complaints []string

func (c *complaints) add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

func (c *complaints) name(kind, s string, limit int) {
	if err := CheckName(kind, s, limit); err != nil {
		c.add("%v", err)
	}
}

func (c *complaints) between(what string, v, low, high int64) {
	if v < low || v > high {
		c.add("%s is %d, it must be between %d and %d", what, v, low, high)
	}
}

func (c *complaints) settings(s Settings) {
	const day = 86_400_000
	c.between("epoch_interval (ms)", s.EpochInterval, 1, day)
	c.between("prepare_timeout (ms)", s.PrepareTimeout, 1, day)
	c.between("max_pending", int64(s.MaxPending), 1, 64)
	c.between("lease (ms)", s.Lease, 10, day)
	c.between("restore_points", int64(s.RestorePoints), 1, 1000)
	c.between("commit_budget (ms)", s.CommitBudget, 1, day)
}

func (c *complaints) members(ms []MemberSpec) {
	c.between("the number of members", int64(len(ms)), 1, MaxMembers)
	seen := map[string]bool{}
	for _, m := range ms {
		c.name("member", m.Name, MaxMember)
		if seen[m.Name] {
			c.add("member %q is declared twice", m.Name)
		}
		seen[m.Name] = true
		if len(m.Resources) > MaxResources {
			c.add("member %q declares %d resources, at most %d are allowed", m.Name, len(m.Resources), MaxResources)
		}
		own := map[string]bool{}
		for _, r := range m.Resources {
			c.name("resource", r.Name, MaxResource)
			if own[r.Name] {
				c.add("resource %q of member %q is declared twice", r.Name, m.Name)
			}
			own[r.Name] = true
			if r.Kind == "" || len(r.Kind) > MaxInstance {
				c.add("resource %q of member %q needs a kind of 1 to %d bytes", r.Name, m.Name, MaxInstance)
			}
		}
	}
}

func checkPipeline(p Pipeline) string {
	var c complaints
	c.name("pipeline", p.Name, MaxPipeline)
	c.settings(p.Settings)
	c.members(p.Members)
	c.between("the number of shards", int64(p.Shards), 1, MaxShards)
	c.between("the number of key groups", int64(p.KeyGroups), 1, MaxKeyGroups)
	if len(p.Fingerprint) > MaxText || len(p.Description) > MaxText {
		c.add("fingerprint and description may have %d bytes at most", MaxText)
	}
	return strings.Join(c, "; ")
}

// lost names a member or resource of old that is gone from now, or means something else there.
func lost(old, now []MemberSpec) string {
	for _, o := range old {
		i := slices.IndexFunc(now, func(n MemberSpec) bool { return n.Name == o.Name })
		if i < 0 {
			return fmt.Sprintf("member %q", o.Name)
		}
		if now[i].Source != o.Source {
			return fmt.Sprintf("the role of member %q", o.Name)
		}
		for _, r := range o.Resources {
			if !slices.Contains(now[i].Resources, r) {
				return fmt.Sprintf("resource %q of member %q", r.Name, o.Name)
			}
		}
	}
	return ""
}

func (m *Machine) putPipeline(s *step, c *Command, p Pipeline) {
	old := m.pipelines[p.Name]
	if old != nil && repeated(c, old.LastRequest) {
		s.showPipeline(old)
		return
	}
	switch {
	case old == nil && p.Revision != 0:
		s.refuse(NotFound, "there is no pipeline %q at revision %d to change", p.Name, p.Revision)
		return
	case old != nil && p.Revision != old.Revision:
		s.refuse(Stale, "pipeline %q is at revision %d, the change was made from %d: read it again", p.Name, old.Revision, p.Revision)
		return
	}
	fillDefaults(&p)
	if old == nil {
		m.createPipeline(s, c, p)
	} else {
		m.changePipeline(s, c, old, p)
	}
}

func (m *Machine) createPipeline(s *step, c *Command, p Pipeline) {
	if p.Shards == 0 {
		p.Shards = 1
	}
	if p.KeyGroups == 0 {
		p.KeyGroups = 128
	}
	if p.Desired == desiredUnset {
		p.Desired = Running
	}
	if p.Desired != Running && p.Desired != Stopped {
		s.refuse(Invalid, "a new pipeline is running or stopped")
		return
	}
	if bad := checkPipeline(p); bad != "" {
		s.refuse(Invalid, "pipeline %q: %s", p.Name, bad)
		return
	}
	p.Revision, p.LastRequest = 1, c.Request
	m.setPipeline(p)
	m.addScopes(&p)
	if m.unguarded.reuseGenerations {
		m.lastGeneration = 0
		m.sealHead()
	}
	s.showPipeline(m.pipelines[p.Name])
	s.effect(Effect{Kind: EffectPipeline, Pipeline: p.Name, Text: "made"})
}

func (m *Machine) changePipeline(s *step, c *Command, old *pipeline, p Pipeline) {
	if p.Shards == 0 {
		p.Shards = old.Shards
	}
	if p.KeyGroups == 0 {
		p.KeyGroups = old.KeyGroups
	}
	p.Desired = old.Desired
	if bad := checkPipeline(p); bad != "" {
		s.refuse(Invalid, "pipeline %q: %s", p.Name, bad)
		return
	}
	if p.Shards != old.Shards || p.KeyGroups != old.KeyGroups {
		s.refuse(Invalid, "pipeline %q has %d shards and %d key groups; the first changes by reshard only, the second never",
			p.Name, old.Shards, old.KeyGroups)
		return
	}
	if gone := lost(old.Members, p.Members); gone != "" {
		// P25: a branch under the old name could still land after newer ones.
		if why := m.unquiet(&old.Pipeline, true); why != "" {
			s.refuse(Busy, "%s of pipeline %q cannot change now: %s", gone, p.Name, why)
			return
		}
		m.each(&p, func(sc *scope) {
			sc.forget(p.Members, old.Members)
			m.sealScope(sc)
		})
	}
	p.Revision, p.LastRequest = old.Revision+1, c.Request
	m.setPipeline(p)
	s.showPipeline(old)
	s.effect(Effect{Kind: EffectPipeline, Pipeline: p.Name, Text: "changed"})
}

func (s *step) showPipeline(p *pipeline) {
	v := p.Pipeline
	s.Pipeline = &v
}

// repeated reports that the object was last changed by this very request.
func repeated(c *Command, last string) bool { return c.Request != "" && c.Request == last }

// deletePipeline forgets a pipeline and all its history but what each generation decided: that
// stays with its scopes, so that no later question about an old epoch gets a wrong answer.
func (m *Machine) deletePipeline(s *step, c *Command, b DeletePipeline) {
	p := m.pipelines[b.Name]
	if p == nil {
		if gone := m.scopes[ScopeID{Pipeline: b.Name}]; gone == nil || !repeated(c, gone.lastRequest) {
			s.refuse(NotFound, "there is no pipeline %q", b.Name)
		}
		return
	}
	if p.Revision != b.Revision {
		s.refuse(Stale, "pipeline %q is at revision %d, not %d: read it again", b.Name, p.Revision, b.Revision)
		return
	}
	if why := m.unquiet(&p.Pipeline, true); why != "" {
		s.refuse(Busy, "pipeline %q cannot be deleted yet: %s", b.Name, why)
		return
	}
	m.each(&p.Pipeline, func(sc *scope) { s.Retired = append(s.Retired, m.bury(sc, c.Request)...) })
	m.digest -= p.sum
	delete(m.pipelines, b.Name)
	s.effect(Effect{Kind: EffectPipeline, Pipeline: b.Name, Text: "deleted"})
}

// bury leaves of a scope what its generations decided, and returns its state parts.
func (m *Machine) bury(s *scope, request string) []Retired {
	var parts []Retired
	for _, e := range s.epoch {
		parts = append(parts, m.dropVotes(s, e)...)
		m.digest -= e.sum
	}
	s.epoch = nil
	m.trimGenerations(s, func(*GenerationRecord) bool { return true })
	s.restore, s.pinned, s.halted, s.barren, s.openAfter = Epoch{}, nil, "", 0, 0
	s.identities = nil
	s.lastRequest = request
	m.sealScope(s)
	return parts
}

// setDesired changes what the pipeline is wanted to do. A stop or drain under way is not taken
// back while a generation is open: its final barrier may already be on its way.
func (m *Machine) setDesired(s *step, c *Command, b SetDesired) {
	p := m.pipelines[b.Pipeline]
	if p == nil {
		s.refuse(NotFound, "there is no pipeline %q", b.Pipeline)
		return
	}
	if repeated(c, p.LastRequest) {
		s.showPipeline(p)
		return
	}
	if b.From != p.Desired {
		s.refuse(Stale, "pipeline %q is wanted %s, not %s", b.Pipeline, p.Desired, b.From)
		return
	}
	if why, text := m.transition(p, b.To); why != refusalUnset {
		s.refuse(why, "pipeline %q cannot go from %s to %s: %s", b.Pipeline, b.From, b.To, text)
		return
	}
	if b.To == Draining && b.From != Draining {
		m.each(&p.Pipeline, func(sc *scope) { m.unfinal(sc, sc.restore) })
	}
	v := p.Pipeline
	v.Desired, v.LastRequest = b.To, c.Request
	m.setPipeline(v)
	s.showPipeline(p)
	s.effect(Effect{Kind: EffectPipeline, Pipeline: b.Pipeline, Text: "wanted " + b.To.String()})
}

func (m *Machine) transition(p *pipeline, to Desired) (Refusal, string) {
	if to == desiredUnset || to > Stopped {
		return Invalid, "that is no desired state"
	}
	anyOpen := false
	m.each(&p.Pipeline, func(sc *scope) {
		g := sc.newest()
		anyOpen = anyOpen || g != nil && g.Open
	})
	switch to {
	case p.Desired:
		return refusalUnset, ""
	case Running:
		if anyOpen {
			return Busy, "wait until it has come to its end"
		}
	case Stopping:
		if p.Desired == Stopped {
			return Stale, "it is stopped"
		}
	case Draining:
		if p.Desired == Stopping && anyOpen {
			return Busy, "its last barrier may be on its way; wait until it is stopped"
		}
	case Stopped:
		if why := m.unquiet(&p.Pipeline, false); why != "" {
			return Busy, why
		}
		if p.Desired == Draining {
			return m.drained(p)
		}
	case desiredUnset:
	}
	return refusalUnset, ""
}

// drained refuses unless every scope has decided the final epoch of the drain.
func (m *Machine) drained(p *pipeline) (why Refusal, text string) {
	m.each(&p.Pipeline, func(sc *scope) {
		if why == refusalUnset && !sc.drained() {
			why, text = Busy, fmt.Sprintf("scope %s has not come to its end; start its members, or stop it instead", sc.id)
		}
	})
	return why, text
}

// drained reports that the next generation would start where a drain ended.
func (s *scope) drained() bool {
	e := s.find(s.restore)
	return e != nil && e.Final
}

// unfinal takes the mark off an epoch at which work goes on.
func (m *Machine) unfinal(s *scope, at Epoch) {
	if e := s.find(at); e != nil && e.Final {
		e.Final = false
		m.sealEpoch(s, e)
	}
}

// reshard changes the number of shards. At feature level 1 no scope may have history: the
// positions and key groups of its restore point would have to be handed to other shards.
func (m *Machine) reshard(s *step, c *Command, b Reshard) {
	p := m.pipelines[b.Pipeline]
	switch {
	case p == nil:
		s.refuse(NotFound, "there is no pipeline %q", b.Pipeline)
	case repeated(c, p.LastRequest):
		s.showPipeline(p)
	case p.Revision != b.Revision:
		s.refuse(Stale, "pipeline %q is at revision %d, not %d: read it again", b.Pipeline, p.Revision, b.Revision)
	case b.Shards < 1 || b.Shards > MaxShards:
		s.refuse(Invalid, "a pipeline has 1 to %d shards, not %d", MaxShards, b.Shards)
	default:
		m.applyReshard(s, c, p, b.Shards)
	}
}

func (m *Machine) applyReshard(s *step, c *Command, p *pipeline, shards uint32) {
	if why := m.unquiet(&p.Pipeline, true); why != "" {
		s.refuse(Busy, "pipeline %q cannot be resharded yet: %s", p.Name, why)
		return
	}
	history := ""
	m.each(&p.Pipeline, func(sc *scope) {
		if history == "" && len(sc.epoch) > 0 {
			history = sc.id.String()
		}
	})
	if history != "" {
		s.refuse(Unsupported, "scope %s has history, and feature level %d cannot hand it to other shards: make a new pipeline", history, m.level)
		return
	}
	v := p.Pipeline
	v.Shards, v.Revision, v.LastRequest = shards, p.Revision+1, c.Request
	m.setPipeline(v)
	m.addScopes(&v)
	s.showPipeline(p)
	s.effect(Effect{Kind: EffectPipeline, Pipeline: p.Name, Text: "resharded"})
}
