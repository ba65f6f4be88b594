package sim_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// read takes what the ledger and the stores hold at the end.
func (w *world) read(ctx context.Context) {
	w.readDebts(ctx)
	for _, pl := range w.plan.pipelines {
		w.readEpochs(ctx, pl.name)
		if st := w.status(ctx, pl.name); st.GetUnfinished() > 0 || st.GetOpen() {
			w.hist.Add(check.Event{Who: "ledger", Kind: check.Held, Store: "ledger", Handle: fmt.Sprintf(
				"%s: %d unfinished, open %t", pl.name, st.GetUnfinished(), st.GetOpen())})
		}
	}
	for _, s := range w.seats {
		for _, to := range s.targets {
			if err := to.read(ctx); err != nil {
				w.complain("read what %s wrote: %v", s.id(), err)
			}
		}
	}
	for alias, store := range w.accounts {
		w.held("account-"+alias, store)
	}
	time.Sleep(time.Second) // the nodes come to one state, and the watchers see it
}

func (w *world) held(who string, store *participanttest.Store) {
	for _, name := range store.Prepared() {
		b, err := participant.ParseBranchName(name)
		if err != nil {
			w.complain("%s holds %q: %v", who, name, err)
			continue
		}
		w.leftBehind(who, b)
	}
}

// debt is what the sweep of a generation owes in one resource.
type debt struct {
	scope, member, resource string
	generation              uint64
}

// readDebts asks for the debts that stand. A pipeline whose last generation died while it was being stopped is stopped
// with its debts: its members pay them when it is started again, or a resolver does, and here is neither.
func (w *world) readDebts(ctx context.Context) {
	var r *unisinkv1.ListDutiesResponse
	err := w.patiently(ctx, time.Minute, func(ctx context.Context) (err error) {
		r, err = w.operator.Resolution().ListDuties(ctx, &unisinkv1.ListDutiesRequest{})
		return err
	})
	if err != nil {
		w.complain("list the debts: %v", err)
	}
	w.owed = map[debt]bool{}
	for _, s := range r.GetSweeps() {
		w.owed[debt{fmt.Sprintf("%s/%d", s.GetScope().GetPipeline(), s.GetScope().GetShard()), s.GetMember(), s.GetResource(), s.GetGeneration()}] = true
	}
}

// leftBehind puts into the history what a store holds prepared at the end, unless the ledger says that it is still to be swept.
func (w *world) leftBehind(store string, b participant.BranchName) {
	if b.Txn == "" && w.owed[debt{b.Scope(), b.Member, b.Resource, b.Generation}] {
		w.say("run", "%s holds %s, which is still to be swept", store, b)
		return
	}
	w.hist.Add(check.Event{Who: "run", Kind: check.Held, Store: store, Handle: b.String()})
}

func (w *world) readEpochs(ctx context.Context, pipeline string) {
	scope := &unisinkv1.Scope{Pipeline: pipeline}
	var all []*unisinkv1.EpochRecord
	err := w.patiently(ctx, time.Minute, func(ctx context.Context) error {
		r, err := w.operator.Pipelines().ListEpochs(ctx, &unisinkv1.ListEpochsRequest{Scope: scope, Limit: 1000})
		all = r.GetEpochs()
		return err
	})
	if err != nil || len(all) >= 1000 {
		w.complain("list the epochs of %s: %d of them, %v", pipeline, len(all), err)
	}
	for _, r := range all {
		if r.GetOutcome() != unisinkv1.Outcome_OUTCOME_COMMITTED {
			continue
		}
		d := check.Decision{Offsets: map[string]int64{}}
		for _, p := range r.GetPositions() {
			member, _, _ := strings.Cut(p.GetSplit(), ".") // the splits of a source with windows are m1.0, m1.1, …
			d.Offsets[member] += p.GetOffset()
		}
		for _, b := range r.GetBranches() {
			d.Handles = append(d.Handles, b.GetHandle().GetName())
			if b.GetProof().GetVerdict() == unisinkv1.Verdict_VERDICT_COMMITTED {
				d.Proven = append(d.Proven, b.GetHandle().GetName())
			}
		}
		w.hist.Add(check.Event{Who: "ledger", Kind: check.Record, Decision: d, Branch: check.Branch{
			Scope: pipeline + "/0", Epoch: check.Epoch{Generation: r.GetEpoch().GetGeneration(), N: r.GetEpoch().GetN()},
		}})
	}
}

// goroutines are the stacks that pass through some packages: what has stopped shows where it stands.
func goroutines(packages ...string) string {
	buf := make([]byte, 16<<20)
	var b strings.Builder
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if slices.ContainsFunc(packages, func(p string) bool { return strings.Contains(stack, p) }) {
			b.WriteString(stack + "\n\n")
		}
	}
	return b.String()
}
