package server

import (
	"slices"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// resource is what a resource is, independent of its address.
type resource struct{ kind, identity string }

// place is one member's resource, by the name that it has there.
type place struct {
	scope  ledger.ScopeID
	branch ledger.BranchID
}

// duties is what is outstanding, as one look at the ledger shows it.
type duties struct {
	wanted      map[resource]bool // nil: all
	namespace   string
	incarnation uint64
	out         ledger.Outstanding
	is          map[place]resource
	instance    map[generationMember]string
}

type generationMember struct {
	scope      ledger.ScopeID
	generation ledger.Generation
	member     string
}

func wanted(refs []*unisinkv1.ResourceRef) map[resource]bool {
	if len(refs) == 0 {
		return nil
	}
	w := map[resource]bool{}
	for _, r := range refs {
		w[resource{r.GetKind(), r.GetIdentity()}] = true
	}
	return w
}

// read takes in what is outstanding in the resources that are wanted.
func (d *duties) read(m *ledger.Machine) {
	d.namespace, d.incarnation = m.Namespace()
	d.out = m.Outstanding()
	d.is, d.instance = map[place]resource{}, map[generationMember]string{}
	if len(d.out.Debts) > 0 {
		for _, u := range m.ResourceUses() {
			d.is[place{u.Scope, u.ID}] = resource{u.Kind, u.Identity}
		}
	}
	if d.wanted != nil {
		d.out.Debts = slices.DeleteFunc(d.out.Debts, func(o ledger.Debt) bool { return !d.wanted[d.is[place{o.Scope, o.Branch}]] })
	}
	for _, u := range d.out.Unfinished {
		if u.Scope.Pipeline != "" {
			g := generationMember{u.Scope, u.Epoch.Generation, u.Branch.Member}
			d.instance[g] = m.InstanceOf(g.scope, g.generation, g.member)
		}
	}
}

func (d *duties) any() bool {
	return len(d.out.Debts) > 0 || slices.ContainsFunc(d.out.Unfinished, d.asked)
}

// asked reports whether a branch is of a resource that is wanted. Of one that was announced and never heard of again
// nobody knows where it would be.
func (d *duties) asked(u ledger.Unfinished) bool {
	return d.wanted == nil || u.Handle.Name == "" || d.wanted[resource{u.Handle.Kind, u.Handle.Identity}]
}

// unfinished are the branches in the order in which they must be finished. A branch is held if the process that
// prepared it is attached, or another of its name that is beyond waiting for its generation: it finishes what is
// decided before it writes.
func (d *duties) unfinished(alive func(ledger.ScopeID, string) LivingMember) []*unisinkv1.Duty {
	var out []*unisinkv1.Duty
	earlier := map[place]bool{}
	for _, u := range d.out.Unfinished {
		duty := &unisinkv1.Duty{
			Branch: branchRef(u.Txn, u.Scope, u.Epoch, u.Branch), Handle: wire.FromHandle(u.Handle),
			Outcome: wire.FromOutcome(u.Outcome), DecidedAtMs: u.Since,
		}
		if u.Scope.Pipeline != "" {
			m := alive(u.Scope, u.Branch.Member)
			mine := m.Instance == d.instance[generationMember{u.Scope, u.Epoch.Generation, u.Branch.Member}]
			duty.Held = m.Attached && (mine || atWork(m.Phase))
			at := place{u.Scope, u.Branch}
			duty.Waits = earlier[at]
			earlier[at] = true
		}
		if d.asked(u) {
			out = append(out, duty)
		}
	}
	return out
}

// debts are what must be swept. One is held by a member that is restoring, which sweeps before it is ready.
func (d *duties) debts(alive func(ledger.ScopeID, string) LivingMember) []*unisinkv1.SweepDuty {
	var out []*unisinkv1.SweepDuty
	for _, o := range d.out.Debts {
		is := d.is[place{o.Scope, o.Branch}]
		m := alive(o.Scope, o.Branch.Member)
		out = append(out, &unisinkv1.SweepDuty{
			Scope: wire.FromScope(o.Scope), Generation: uint64(o.Generation), Member: o.Branch.Member, Resource: o.Branch.Resource,
			Identity: &unisinkv1.ResourceRef{Kind: is.kind, Identity: is.identity}, ClosedAtMs: o.Since, Held: m.Attached && atWork(m.Phase),
		})
	}
	return out
}

func atWork(phase string) bool { return phase == "restoring" || phase == "ready" || phase == "running" }

func branchRef(txn ledger.TxnID, scope ledger.ScopeID, epoch ledger.Epoch, b ledger.BranchID) *unisinkv1.BranchRef {
	if scope.Pipeline == "" {
		return &unisinkv1.BranchRef{Txn: string(txn), Resource: b.Resource}
	}
	return &unisinkv1.BranchRef{Scope: wire.FromScope(scope), Epoch: wire.FromEpoch(epoch), Member: b.Member, Resource: b.Resource}
}

// living looks up members, asking about each scope once.
func (s *Server) living() func(ledger.ScopeID, string) LivingMember {
	scopes := map[ledger.ScopeID][]LivingMember{}
	return func(id ledger.ScopeID, member string) LivingMember {
		all, asked := scopes[id]
		if !asked {
			all = s.c.Sessions.Living(id).Members
			scopes[id] = all
		}
		i := slices.IndexFunc(all, func(m LivingMember) bool { return m.Name == member })
		if i < 0 {
			return LivingMember{}
		}
		return all[i]
	}
}
