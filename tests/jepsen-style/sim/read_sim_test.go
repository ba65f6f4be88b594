package sim_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// read takes what the ledger and the stores hold at the end.
func (w *world) read(ctx context.Context) {
	for _, pl := range w.plan.pipelines {
		w.readEpochs(ctx, pl.name)
		// A debt stays until somebody sweeps: what it is for is seen in the stores.
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
	for _, store := range w.accounts {
		w.held(store)
	}
	time.Sleep(time.Second) // the nodes come to one state, and the watchers see it
}

func (w *world) held(store *participanttest.Store) {
	for _, name := range store.Prepared() {
		w.hist.Add(check.Event{Who: "run", Kind: check.Held, Store: "store", Handle: name})
	}
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
			d.Offsets[p.GetSplit()] = p.GetOffset()
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
