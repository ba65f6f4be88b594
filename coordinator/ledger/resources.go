package ledger

import (
	"slices"
)

// ResourceUse is a resource that a member of a pipeline is declared to write to, as the scope knows it.
type ResourceUse struct {
	Scope ScopeID
	ID    BranchID
	Kind  string
	// Identity is empty as long as no generation was opened with one.
	Identity string
}

// ResourceUsesOf lists what the members of one scope write to, by branch.
func (m *Machine) ResourceUsesOf(id ScopeID) (out []ResourceUse) {
	sc, p := m.scopes[id], m.pipelines[id.Pipeline]
	if sc == nil || p == nil {
		return nil
	}
	for _, d := range p.Members {
		for _, r := range d.Resources {
			b := BranchID{Member: d.Name, Resource: r.Name}
			out = append(out, ResourceUse{Scope: id, ID: b, Kind: r.Kind, Identity: sc.identity(b)})
		}
	}
	slices.SortFunc(out, func(a, b ResourceUse) int { return a.ID.Compare(b.ID) })
	return out
}

// InstanceOf is the process that was a member in a generation; empty when that is not known any more.
func (m *Machine) InstanceOf(id ScopeID, g Generation, member string) string {
	sc := m.scopes[id]
	if sc == nil {
		return ""
	}
	r := sc.generation(g)
	if r == nil {
		return ""
	}
	i := slices.IndexFunc(r.Members, func(i MemberInstance) bool { return i.Member == member })
	if i < 0 {
		return ""
	}
	return r.Members[i].Instance
}
