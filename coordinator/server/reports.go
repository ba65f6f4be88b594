package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// reports are what resolvers told last, in the leader's memory: what nobody tells again is forgotten.
type reports struct {
	mu  sync.Mutex // guards the rest; held for memory only
	all map[string]report
	// undeterminable are branches of transactions by hand that nobody can tell of, with what is missing.
	undeterminable map[byHandBranch]string
	prune          int // number of them at which resolved ones are forgotten
}

type report struct {
	*unisinkv1.ReportRequest
	until time.Time
}

const (
	leastReport, mostReport = 100 * time.Millisecond, time.Hour
	// silence is how many of its intervals a resolver may say nothing.
	silence = 3
)

// mostResolvers bounds how many are remembered: a report may be megabytes.
const mostResolvers = 64

// add takes a report in; a later one of the same resolver takes its place. False: there are too many others.
func (r *reports) add(q *unisinkv1.ReportRequest, now time.Time) bool {
	every := time.Duration(min(q.GetIntervalMs(), mostReport.Milliseconds())) * time.Millisecond
	every = max(every, leastReport)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]report{}
	}
	maps.DeleteFunc(r.all, func(_ string, o report) bool { return now.After(o.until) })
	if _, known := r.all[q.GetResolver()]; !known && len(r.all) >= mostResolvers {
		return false
	}
	r.all[q.GetResolver()] = report{q, now.Add(silence * every)}
	return true
}

// list returns what is remembered, by resolver.
func (r *reports) list(now time.Time) []*unisinkv1.ReportRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.all, func(_ string, o report) bool { return now.After(o.until) })
	out := make([]*unisinkv1.ReportRequest, 0, len(r.all))
	for _, name := range slices.Sorted(maps.Keys(r.all)) {
		out = append(out, r.all[name].ReportRequest)
	}
	return out
}

// Report takes in what a resolver reaches and tries.
func (r *resolution) Report(_ context.Context, req *unisinkv1.ReportRequest) (*unisinkv1.ReportResponse, error) {
	if req.GetResolver() == "" {
		return nil, invalid("a report needs the resolver's name")
	}
	if n := len(req.GetResolver()); n > ledger.MaxInstance || len(req.GetVersion()) > ledger.MaxInstance {
		return nil, invalid("the names of a resolver and of its version may have %d bytes, not %d", ledger.MaxInstance, max(n, len(req.GetVersion())))
	}
	if !r.reports.add(req, time.Now()) {
		return nil, busy("%d resolvers report already, and one more is not shown; what it finishes counts all the same", mostResolvers)
	}
	return &unisinkv1.ReportResponse{}, nil
}

// ListResources shows what the ledger and the resolvers know of each resource. It is for people, and reads what
// this node has applied.
func (r *resolution) ListResources(ctx context.Context, _ *unisinkv1.ListResourcesRequest) (*unisinkv1.ListResourcesResponse, error) {
	t := table{rows: map[resource]*unisinkv1.ResourceStatus{}, now: time.Now().UnixMilli(), alive: r.s.living()}
	uses := t.scopes(r.s.c.Node)
	if err := t.byHand(ctx, r.s.c.Node); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	resolvers := r.reports.list(time.Now())
	for _, q := range resolvers {
		t.reported(q)
	}
	t.called(uses)
	return &unisinkv1.ListResourcesResponse{Resources: t.list(), Resolvers: resolvers}, nil
}

// table gathers what is known of each resource.
type table struct {
	rows  map[resource]*unisinkv1.ResourceStatus
	now   int64
	alive func(ledger.ScopeID, string) LivingMember
}

func (t *table) row(r resource) *unisinkv1.ResourceStatus {
	if t.rows[r] == nil {
		t.rows[r] = &unisinkv1.ResourceStatus{Resource: &unisinkv1.ResourceRef{Kind: r.kind, Identity: r.identity}}
	}
	return t.rows[r]
}

// unreached is the row of what no resolver has reached yet: it has no identity, and is told apart by what it is called.
func (t *table) unreached(x *unisinkv1.ResolverResource) *unisinkv1.ResourceStatus {
	key := resource{x.GetResource().GetKind(), "\x00" + x.GetText()} // no identity is like that
	if t.rows[key] == nil {
		t.rows[key] = &unisinkv1.ResourceStatus{Resource: &unisinkv1.ResourceRef{Kind: key.kind}}
	}
	return t.rows[key]
}

// used enters who uses what; a resource that no generation was opened with yet has no identity.
func (t *table) used(uses []ledger.ResourceUse) {
	for _, u := range uses {
		row := t.row(resource{u.Kind, u.Identity})
		row.UsedBy = append(row.UsedBy, fmt.Sprintf("%s %s %s", u.Scope, u.ID.Member, u.ID.Resource))
		who := fmt.Sprintf("%s %s", u.Scope, u.ID.Member)
		if t.alive(u.Scope, u.ID.Member).Attached && !slices.Contains(row.GetHeldBy(), who) {
			row.HeldBy = append(row.HeldBy, who)
		}
	}
}

// called gives a name to each resource that no resolver has given one: what a member that has it open said of
// it, else what its pipelines call it.
func (t *table) called(uses []ledger.ResourceUse) {
	for _, u := range uses {
		if row := t.row(resource{u.Kind, u.Identity}); row.GetText() == "" {
			row.Text = t.alive(u.Scope, u.ID.Member).Texts[u.ID.Resource]
		}
	}
	aliases := map[*unisinkv1.ResourceStatus][]string{}
	for _, u := range uses {
		if row := t.row(resource{u.Kind, u.Identity}); row.GetText() == "" && !slices.Contains(aliases[row], u.ID.Resource) {
			aliases[row] = append(aliases[row], u.ID.Resource)
		}
	}
	for row, names := range aliases {
		row.Text = strings.Join(names, ", ")
	}
}

// One look at the ledger is at so many scopes, or transactions by hand: decisions wait for each look, and not for all of
// them. The first of all lists the scopes. What is decided, proven or deleted between two looks is counted as it was or as
// it is.
const scopesInALook, handInALook = 250, 1000

// scopes enters who uses what and what is outstanding of epochs, and returns the uses.
func (t *table) scopes(node Node) (uses []ledger.ResourceUse) {
	var all []ledger.ScopeID
	node.View(func(m *ledger.Machine) { all = m.Scopes() })
	for some := range slices.Chunk(all, scopesInALook) {
		var out ledger.Outstanding
		from := len(uses)
		node.View(func(m *ledger.Machine) {
			for _, id := range some {
				uses = append(uses, m.ResourceUsesOf(id)...)
				unfinished, debts := m.ScopeOutstanding(id)
				out.Unfinished, out.Debts = append(out.Unfinished, unfinished...), append(out.Debts, debts...)
			}
		})
		t.used(uses[from:])
		for _, u := range out.Unfinished {
			t.unfinished(u)
		}
		t.debts(uses[from:], out.Debts)
	}
	return uses
}

// byHand enters what is outstanding of transactions by hand, without a copy of it. The error is the end of ctx.
func (t *table) byHand(ctx context.Context, node Node) error {
	after, more := ledger.Unfinished{}, true
	for more && ctx.Err() == nil {
		looked := 0
		more = false
		node.View(func(m *ledger.Machine) {
			for of := range m.UnfinishedByHand(after) {
				if more = looked == handInALook; more {
					return
				}
				looked, after = looked+1, of[0]
				for _, u := range of {
					t.unfinished(u)
				}
			}
		})
	}
	return ctx.Err()
}

func (t *table) unfinished(u ledger.Unfinished) {
	if u.Handle.Name == "" {
		return // announced and aborted: the ledger does not know in what resource
	}
	row := t.row(resource{u.Handle.Kind, u.Handle.Identity})
	row.Unfinished++
	row.OldestUnfinishedMs = max(row.GetOldestUnfinishedMs(), t.now-u.Since)
}

func (t *table) debts(uses []ledger.ResourceUse, all []ledger.Debt) {
	is := map[place]resource{}
	for _, u := range uses {
		is[place{u.Scope, u.ID}] = resource{u.Kind, u.Identity}
	}
	for _, d := range all {
		row := t.row(is[place{d.Scope, d.Branch}])
		row.Debts++
		row.OldestDebtMs = max(row.GetOldestDebtMs(), t.now-d.Since)
	}
}

// reported enters what a resolver sees. Of several the newest listing counts, and every trouble.
func (t *table) reported(q *unisinkv1.ReportRequest) {
	for _, x := range q.GetResources() {
		var row *unisinkv1.ResourceStatus
		if x.GetResource().GetIdentity() == "" {
			row = t.unreached(x)
		} else {
			row = t.row(resource{x.GetResource().GetKind(), x.GetResource().GetIdentity()})
			row.Resolvers = append(row.Resolvers, q.GetResolver())
		}
		if row.GetText() == "" {
			row.Text = x.GetText()
		}
		if x.GetListedAtMs() > row.GetListedAtMs() {
			row.ListedAtMs, row.Prepared, row.OldestPreparedMs = x.GetListedAtMs(), x.GetPrepared(), x.GetOldestPreparedMs()
		}
		if x.GetTrouble() != "" {
			row.Trouble = strings.TrimPrefix(row.GetTrouble()+"; "+q.GetResolver()+": "+x.GetTrouble(), "; ")
		}
	}
}

func (t *table) list() []*unisinkv1.ResourceStatus {
	out := make([]*unisinkv1.ResourceStatus, 0, len(t.rows))
	for _, row := range t.rows {
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b *unisinkv1.ResourceStatus) int {
		return cmp.Or(strings.Compare(a.GetResource().GetKind()+" "+a.GetResource().GetIdentity(), b.GetResource().GetKind()+" "+b.GetResource().GetIdentity()),
			strings.Compare(a.GetText(), b.GetText()))
	})
	return out
}
