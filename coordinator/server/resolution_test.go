package server

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// applied is a node whose log is one machine, and applies one command at a time.
type applied struct {
	shown
	barriers *int
	one      *sync.Mutex
}

func (a applied) Barrier(context.Context) error { *a.barriers++; return nil }

func (a applied) Propose(_ context.Context, c ledger.Command) (ledger.Result, error) {
	a.one.Lock()
	defer a.one.Unlock()
	c.At = 5000
	r, _ := a.m.Apply(c)
	return r, nil
}

// present are sessions with members as a test says.
type present struct {
	Sessions
	members map[string]LivingMember
}

func (p present) Living(ledger.ScopeID) Living {
	var l Living
	for _, m := range p.members {
		l.Members = append(l.Members, m)
	}
	return l
}

// resolving is the service over a ledger of one pipeline with two epochs decided, and one transaction by hand.
func resolving(t *testing.T) (*resolution, *ledger.Machine, present, *int) {
	t.Helper()
	m := doubtful(t, 1)
	scope := ledger.ScopeID{Pipeline: "p"}
	second := ledger.Decide{Scope: scope, Epoch: ledger.Epoch{Generation: 1, N: 2}, Votes: []ledger.Vote{{
		Member: "a", Instance: "1", Branches: []ledger.Prepared{{Resource: "out", Handle: ledger.Handle{Kind: "memory", Version: 1, Identity: "i", Name: "n2"}}},
	}}}
	if r, _ := m.Apply(ledger.Command{At: 1000, Actor: "test", Body: second}); !r.OK() {
		t.Fatal(r.Text)
	}
	living, barriers := present{members: map[string]LivingMember{}}, new(int)
	node := applied{shown: shown{m: m}, barriers: barriers, one: &sync.Mutex{}}
	return &resolution{s: &Server{c: Config{Node: node, Sessions: living, HandTimeout: time.Minute}}, reports: &reports{}}, m, living, barriers
}

func closed(t *testing.T, m *ledger.Machine) {
	t.Helper()
	for _, b := range []ledger.Body{
		ledger.CloseGeneration{Scope: ledger.ScopeID{Pipeline: "p"}, Generation: 1, Cause: "test"},
		ledger.OpenGeneration{
			Scope: ledger.ScopeID{Pipeline: "p"}, From: 1, Fingerprint: "f", Cause: "test", Members: []ledger.MemberInstance{{Member: "a", Instance: "2"}},
			Identities: []ledger.ResourceIdentity{{ID: ledger.BranchID{Member: "a", Resource: "out"}, Identity: "i"}},
		},
		ledger.CloseGeneration{Scope: ledger.ScopeID{Pipeline: "p"}, Generation: 2, Cause: "test"},
	} {
		if r, _ := m.Apply(ledger.Command{At: 100_000, Actor: "test", Body: b}); !r.OK() {
			t.Fatalf("%T: %s", b, r.Text)
		}
	}
}

func list(t *testing.T, r *resolution, of ...*unisinkv1.ResourceRef) *unisinkv1.ListDutiesResponse {
	t.Helper()
	got, err := r.ListDuties(t.Context(), &unisinkv1.ListDutiesRequest{Resources: of})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Row P6.
func TestP6_DutiesComeInOrderAndSayWhatWaits(t *testing.T) {
	r, _, _, barriers := resolving(t)
	got := list(t, r)
	var waits []bool
	for _, d := range got.GetDuties() {
		waits = append(waits, d.GetWaits())
	}
	if len(waits) != 3 || waits[0] || !waits[1] || waits[2] {
		t.Fatalf("duties that wait: %v; want two epochs, the second waiting, and one by hand that does not", waits)
	}
	if n := got.GetDuties()[1].GetBranch().GetEpoch().GetN(); n != 2 || got.GetNamespace() != "test" || got.GetNowMs() == 0 {
		t.Errorf("second duty is epoch %d of namespace %q", n, got.GetNamespace())
	}
	if *barriers == 0 {
		t.Error("duties were told without a look through the log")
	}
	*barriers = 0
	if other := list(t, r, &unisinkv1.ResourceRef{Kind: "memory", Identity: "other"}); len(other.GetDuties()) > 0 || *barriers > 0 {
		t.Errorf("another resource owes %d, at the price of %d entries", len(other.GetDuties()), *barriers)
	}
	if one := list(t, r, &unisinkv1.ResourceRef{Kind: "memory", Identity: "i"}); len(one.GetDuties()) != 3 {
		t.Errorf("the resource itself owes %d", len(one.GetDuties()))
	}
}

func TestADutyIsHeldByWhoFinishesItAnyway(t *testing.T) {
	for name, c := range map[string]struct {
		is   LivingMember
		want bool
	}{
		"gone":                                  {LivingMember{}, false},
		"its own process":                       {LivingMember{Instance: "1", Attached: true, Phase: "idle"}, true},
		"its own process, cut off":              {LivingMember{Instance: "1", Phase: "running"}, false},
		"another, waiting for its generation":   {LivingMember{Instance: "9", Attached: true, Phase: "idle"}, false},
		"another, restoring: it finishes first": {LivingMember{Instance: "9", Attached: true, Phase: "restoring"}, true},
	} {
		r, m, living, _ := resolving(t)
		closed(t, m)
		c.is.Name = "a"
		living.members["a"] = c.is
		got := list(t, r)
		if held := got.GetDuties()[0].GetHeld(); held != c.want {
			t.Errorf("%s: held is %v", name, held)
		}
		if debts := got.GetSweeps(); len(debts) != 2 || debts[0].GetHeld() != (c.is.Phase == "restoring") || debts[0].GetIdentity().GetIdentity() != "i" {
			t.Errorf("%s: debts %v", name, debts)
		}
	}
}

func TestProofsAndSweepsThroughTheService(t *testing.T) {
	r, m, _, _ := resolving(t)
	closed(t, m)
	ctx := t.Context()
	scope := &unisinkv1.Scope{Pipeline: "p"}
	first := &unisinkv1.BranchRef{Scope: scope, Epoch: &unisinkv1.Epoch{Generation: 1, N: 1}, Member: "a", Resource: "out"}
	second := &unisinkv1.BranchRef{Scope: scope, Epoch: &unisinkv1.Epoch{Generation: 1, N: 2}, Member: "a", Resource: "out"}
	prove := func(b *unisinkv1.BranchRef, v unisinkv1.Verdict) (bool, error) {
		got, err := r.Prove(ctx, &unisinkv1.ProveRequest{Meta: &unisinkv1.Meta{Actor: "resolver"}, Branch: b, Proof: &unisinkv1.Proof{Verdict: v, Evidence: "seen"}})
		return got.GetHeuristic(), err
	}
	if h, err := prove(first, unisinkv1.Verdict_VERDICT_COMMITTED); err != nil || h {
		t.Errorf("a proof as decided: heuristic %v, %v", h, err)
	}
	if h, err := prove(first, unisinkv1.Verdict_VERDICT_COMMITTED); err != nil || h {
		t.Errorf("its repeat: heuristic %v, %v", h, err)
	}
	if _, err := prove(first, unisinkv1.Verdict_VERDICT_ROLLED_BACK); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a second, different proof: %v", err)
	}
	if h, err := prove(second, unisinkv1.Verdict_VERDICT_ROLLED_BACK); err != nil || !h || m.Halted(ledger.ScopeID{Pipeline: "p"}) == "" {
		t.Errorf("a broken promise: heuristic %v, %v", h, err)
	}
	hand := &unisinkv1.BranchRef{Txn: "00000000-03e8-7000-8000-000000000000", Resource: "out"}
	if h, err := prove(hand, unisinkv1.Verdict_VERDICT_ROLLED_BACK); err != nil || !h {
		t.Errorf("a broken promise by hand: heuristic %v, %v", h, err)
	}
	pay := &unisinkv1.PaySweepRequest{Meta: &unisinkv1.Meta{Actor: "resolver"}, Sweeps: list(t, r).GetSweeps()}
	pay.Sweeps = append(pay.Sweeps, &unisinkv1.SweepDuty{Scope: &unisinkv1.Scope{Pipeline: "gone"}, Generation: 1})
	if _, err := r.PaySweep(ctx, &unisinkv1.PaySweepRequest{}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "no debt is named") {
		t.Errorf("nothing is paid: %v", err)
	}
	for range 2 {
		if _, err := r.PaySweep(ctx, pay); err != nil {
			t.Error(err)
		}
	}
	if left := list(t, r); len(left.GetSweeps()) > 0 || len(left.GetDuties()) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestForceTakesADebtByItsGenerationAndABranchByItsEpoch(t *testing.T) {
	r, m, _, _ := resolving(t)
	closed(t, m)
	at := func(g, n uint64) *unisinkv1.BranchRef {
		return &unisinkv1.BranchRef{Scope: &unisinkv1.Scope{Pipeline: "p"}, Epoch: &unisinkv1.Epoch{Generation: g, N: n}, Member: "a", Resource: "out"}
	}
	force := func(b *unisinkv1.BranchRef, a unisinkv1.ForceAction, why string) error {
		_, err := r.Force(t.Context(), &unisinkv1.ForceRequest{Meta: &unisinkv1.Meta{Actor: "ada"}, Branch: b, Action: a, Why: why})
		return err
	}
	if err := force(at(1, 0), unisinkv1.ForceAction_FORCE_ACTION_WRITE_OFF, "the disk is gone"); err != nil {
		t.Error(err)
	}
	if err := force(at(1, 1), unisinkv1.ForceAction_FORCE_ACTION_ACCEPT_LOSS, "agreed with the readers"); err != nil {
		t.Error(err)
	}
	if err := force(at(1, 2), unisinkv1.ForceAction_FORCE_ACTION_ACCEPT_LOSS, ""); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an act without a reason: %v", err)
	}
	if left := list(t, r); len(left.GetSweeps()) != 1 || len(left.GetDuties()) != 2 {
		t.Errorf("left: %v", left)
	}
	e, _ := m.Epoch(ledger.ScopeID{Pipeline: "p"}, ledger.Epoch{Generation: 1, N: 1})
	if e.Branches[0].Forced != "accept-loss by ada: agreed with the readers" {
		t.Errorf("kept as evidence: %q", e.Branches[0].Forced)
	}
}

func TestListResourcesGathersLedgerMembersAndResolvers(t *testing.T) {
	r, m, living, _ := resolving(t)
	closed(t, m)
	living.members["a"] = LivingMember{Name: "a", Instance: "9", Attached: true, Phase: "idle"}
	if _, err := r.Report(t.Context(), &unisinkv1.ReportRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a report of nobody: %v", err)
	}
	called := func(want string) {
		t.Helper()
		got, err := r.ListResources(t.Context(), &unisinkv1.ListResourcesRequest{})
		if err != nil || len(got.GetResources()) != 1 || got.GetResources()[0].GetText() != want {
			t.Errorf("%v, %v; want one that is called %q", got.GetResources(), err, want)
		}
	}
	called("out") // as its pipeline calls it
	living.members["a"] = LivingMember{Name: "a", Instance: "9", Attached: true, Phase: "idle", Texts: map[string]string{"out": "memory at home"}}
	called("memory at home")
	report := &unisinkv1.ReportRequest{Resolver: "r1", IntervalMs: 1000, Resources: []*unisinkv1.ResolverResource{{
		Resource: &unisinkv1.ResourceRef{Kind: "memory", Identity: "i"}, Text: "memory i", ListedAtMs: 7, Prepared: 2, OldestPreparedMs: 300, Trouble: "no route",
	}}}
	if _, err := r.Report(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	got, err := r.ListResources(t.Context(), &unisinkv1.ListResourcesRequest{})
	if err != nil || len(got.GetResources()) != 1 || len(got.GetResolvers()) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	x := got.GetResources()[0]
	if x.GetUnfinished() != 3 || x.GetDebts() != 2 || x.GetPrepared() != 2 || x.GetTrouble() != "r1: no route" || x.GetText() != "memory i" ||
		len(x.GetUsedBy()) != 1 || x.GetUsedBy()[0] != "p/0 a out" || len(x.GetHeldBy()) != 1 || len(x.GetResolvers()) != 1 || x.GetOldestDebtMs() <= 0 {
		t.Errorf("%v", x)
	}
	// Two that the resolver has not reached yet have no identity: two rows, which it is not said to reach.
	report.Resources = append(report.Resources, &unisinkv1.ResolverResource{Text: "file {dir: b}"}, &unisinkv1.ResolverResource{Text: "file {dir: a}", Trouble: "no disk"})
	got, err = r.ListResources(t.Context(), &unisinkv1.ListResourcesRequest{})
	if all := got.GetResources(); err != nil || len(all) != 3 || all[0].GetText() != "file {dir: a}" || all[0].GetTrouble() != "r1: no disk" ||
		all[1].GetText() != "file {dir: b}" || len(all[0].GetResolvers())+len(all[1].GetResolvers()) != 0 || len(all[2].GetResolvers()) != 1 {
		t.Errorf("with two that were never reached: %v, %v", all, err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.reports)
	shown, err := registry.Gather()
	if err != nil || len(shown) != 1 || shown[0].GetName() != obs.MetricPreparedAge || shown[0].GetMetric()[0].GetGauge().GetValue() != 0.3 {
		t.Errorf("shown of what is prepared: %v, %v", shown, err)
	}
	later := time.Now().Add(4 * time.Second)
	if left := r.reports.list(later); len(left) != 0 {
		t.Errorf("a resolver that was silent for four of its intervals is still shown: %v", left)
	}
}

func TestWhoFinishesABranchIsToldWithTheNameOfItsResource(t *testing.T) {
	r, _, living, _ := resolving(t)
	left := ledger.Branch{ID: ledger.BranchID{Member: "a", Resource: "out"}, Handle: ledger.Handle{Kind: "memory", Identity: "i"}}
	epoch := ledger.EpochTxn(ledger.ScopeID{Pipeline: "p"}, ledger.Epoch{Generation: 1, N: 1})
	for _, c := range []struct {
		txn  ledger.TxnID
		text string
		want string
	}{
		{epoch, "", "no resolver reaches memory i: the next process of its member finishes it"},
		{epoch, "memory at home", "no resolver reaches memory at home (memory i): the next process of its member finishes it"},
		{"0193798e-7d1a-7c30-8a5e-3f6d6c7b1a2e", "", "no resolver reaches memory i: its client, which runs it again or sweeps, finishes it"},
	} {
		living.members["a"] = LivingMember{Name: "a", Texts: map[string]string{"out": c.text}}
		if got := r.s.newDoubt(time.Now()).absent(c.txn, left); !strings.Contains(got, c.want) {
			t.Errorf("%s, called %q: %s; want %s", c.txn, c.text, got, c.want)
		}
	}
	announced := ledger.Branch{ID: ledger.BranchID{Resource: "out"}}
	if got := r.s.newDoubt(time.Now()).absent("0193798e-7d1a-7c30-8a5e-3f6d6c7b1a2e", announced); !strings.Contains(got, "a resolver in whose file a resource has the name out, looks") {
		t.Errorf("announced alone: %s", got)
	}
}
