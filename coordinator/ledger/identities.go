package ledger

import (
	"fmt"
	"slices"
)

// The identity of a resource is what its branches and positions are about. A process that comes
// back with another directory, database or cluster under the old name would start its output anew
// beside the old one, or read one source at the positions of another.

// Foreign says, in one sentence, why what a member brings is not what the scope knows under its
// name; empty when it is, and for a scope or pipeline that is not there. OpenGeneration refuses by it.
func (m *Machine) Foreign(id ScopeID, given []ResourceIdentity, fromScratch bool) string {
	sc, p := m.scopes[id], m.pipelines[id.Pipeline]
	if sc == nil || p == nil {
		return ""
	}
	return sc.foreign(p, given, fromScratch)
}

func (s *scope) foreign(p *pipeline, given []ResourceIdentity, fromScratch bool) string {
	for _, r := range given {
		known := s.identity(r.ID)
		if r.Identity == "" || known == "" || known == r.Identity {
			continue
		}
		if why := s.keeps(p, r, fromScratch); why != "" {
			return fmt.Sprintf("resource %q of member %s is %q, scope %s knows it as %q: %s",
				r.ID.Resource, r.ID.Member, r.Identity, s.id, known, why)
		}
	}
	return ""
}

// keeps says why a resource must be the one that is known, and what to do; empty when it need not.
func (s *scope) keeps(p *pipeline, r ResourceIdentity, fromScratch bool) string {
	if !declared(p.Members, r.ID) { // an input: what counts are its positions
		if r.AllowChanged || fromScratch || s.restore.IsZero() {
			return ""
		}
		return "its positions say nothing of another source; give back the old one (mount the right directory, name the right cluster), or allow the changed resource to read on there at the old positions"
	}
	if !slices.ContainsFunc(s.gens, func(g *GenerationRecord) bool { return g.Final > 0 }) {
		return "" // nothing of it was ever decided
	}
	if !r.AllowChanged {
		return "its output lies in the old one; give that back (mount the right directory, name the right cluster), or allow the changed resource to go on in the new one"
	}
	unproven := 0
	for _, e := range s.open {
		if slices.ContainsFunc(e.Branches, func(b Branch) bool { return b.ID == r.ID && !b.resolved() }) {
			unproven++
		}
	}
	if unproven > 0 {
		return fmt.Sprintf("what was decided in the old one is not proven yet (branches: %d); give it back until it is", unproven)
	}
	return ""
}

// identity of a resource as the scope knows it; empty when it does not.
func (s *scope) identity(id BranchID) string {
	i, found := slices.BinarySearchFunc(s.identities, id, byID)
	if !found {
		return ""
	}
	return s.identities[i].Identity
}

func byID(r ResourceIdentity, id BranchID) int { return r.ID.Compare(id) }

// know takes over what a generation was opened with. What it does not tell of stays.
func (s *scope) know(given []ResourceIdentity) {
	now := slices.Clone(s.identities)
	for _, r := range given {
		if r.Identity == "" {
			continue
		}
		r.AllowChanged = false
		i, found := slices.BinarySearchFunc(now, r.ID, byID)
		if found {
			now[i] = r
		} else {
			now = slices.Insert(now, i, r)
		}
	}
	s.identities = now
}

// checkIdentities finds what is wrong with the identities of an opening on their face.
func checkIdentities(p *pipeline, b *OpenGeneration) string {
	seen := map[BranchID]bool{}
	perMember := map[string]int{}
	for _, r := range b.Identities {
		perMember[r.ID.Member]++
		switch {
		case !slices.ContainsFunc(p.Members, func(d MemberSpec) bool { return d.Name == r.ID.Member }):
			return fmt.Sprintf("member %q is not declared, and has resource %q", r.ID.Member, r.ID.Resource)
		case seen[r.ID]:
			return fmt.Sprintf("resource %s is named twice", r.ID)
		case len(r.Identity) > MaxIdentity:
			return fmt.Sprintf("the identity of resource %s has %d bytes, at most %d are allowed", r.ID, len(r.Identity), MaxIdentity)
		case perMember[r.ID.Member] > 2*MaxResources:
			return fmt.Sprintf("member %q has more than %d resources and inputs", r.ID.Member, 2*MaxResources)
		}
		if err := CheckName("resource", r.ID.Resource, MaxInstance); err != nil {
			return err.Error()
		}
		seen[r.ID] = true
	}
	return ""
}

// forget drops what is known of members and inputs that the pipeline has no longer. It is called
// when a member or resource was taken out, which waits until everything is proven (P25).
func (s *scope) forget(now, old []MemberSpec) {
	s.identities = slices.DeleteFunc(slices.Clone(s.identities), func(r ResourceIdentity) bool {
		member := slices.ContainsFunc(now, func(d MemberSpec) bool { return d.Name == r.ID.Member })
		return !member || declared(old, r.ID) && !declared(now, r.ID)
	})
}

// declared reports a resource that a member is declared to write to; what is not is an input.
func declared(members []MemberSpec, id BranchID) bool {
	return slices.ContainsFunc(members, func(d MemberSpec) bool {
		return d.Name == id.Member && slices.ContainsFunc(d.Resources, func(r ResourceSpec) bool { return r.Name == id.Resource })
	})
}
