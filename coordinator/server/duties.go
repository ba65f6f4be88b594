package server

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	byHand      int               // about so many branches by hand at most; 0: all
	after       string            // the place of an earlier answer to go on from
	next        string            // the place to go on from; empty: there is no more
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

const (
	// lookedAtOnce is how many transactions by hand are looked at for one piece, and handBytes about how many bytes of
	// handles it has: decisions wait for the look.
	lookedAtOnce = 10_000
	handBytes    = 4 << 20
)

// read takes in what is outstanding in the resources that are wanted: all of it that is of epochs, and so much of what is by
// hand as was asked for.
func (d *duties) read(m *ledger.Machine) {
	d.namespace, d.incarnation = m.Namespace()
	d.out = m.OutstandingEpochs()
	d.readByHand(m)
	d.is, d.instance = map[place]resource{}, map[generationMember]string{}
	of := ledger.ScopeID{}
	for _, o := range d.out.Debts { // scope by scope
		if o.Scope == of {
			continue
		}
		of = o.Scope
		for _, u := range m.ResourceUsesOf(of) {
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

// readByHand takes in what is by hand, from the place behind d.after on, or from the first where that is no place.
func (d *duties) readByHand(m *ledger.Machine) {
	looked, found, bytes := 0, 0, 0
	var last ledger.Unfinished
	d.next = ""
	for of := range m.UnfinishedByHand(placeOf(d.after)) {
		if d.byHand > 0 && (looked == lookedAtOnce || found >= d.byHand || bytes >= handBytes) {
			d.next = fmt.Sprintf("%d %s", last.Since, last.Txn)
			return
		}
		looked, last = looked+1, of[0]
		for _, u := range of {
			if d.asked(u) {
				d.out.Unfinished = append(d.out.Unfinished, u)
				found, bytes = found+1, bytes+len(u.Handle.Body)+len(u.Handle.Text)+len(u.Handle.Name)
			}
		}
	}
}

// placeOf reads a place that an earlier answer named.
func placeOf(text string) (at ledger.Unfinished) {
	since, id, _ := strings.Cut(text, " ")
	ms, err := strconv.ParseInt(since, 10, 64)
	if err != nil {
		return at
	}
	return ledger.Unfinished{Txn: ledger.TxnID(id), Since: ms}
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
