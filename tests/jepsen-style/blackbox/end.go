package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/adapters/file"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/house"
	"github.com/unisink/unisink/tests/jepsen-style/check"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

const (
	// decideIn allows for the delay, at most a minute, that the ledger puts between generations that failed at once.
	decideIn = 75 * time.Second
	drainIn  = 90 * time.Second
	finishIn = 90 * time.Second
	leaveIn  = 20 * time.Second
	readIn   = 10 * time.Minute        // of hours of results
	watchFor = 1500 * time.Millisecond // the states of nodes at rest
)

// end heals everything, lets what was begun be finished, and reads what is left.
func (r *run) end(ctx context.Context, stopWriting func(), report *Report) error {
	r.nemesis.mu.Lock()
	r.nemesis.doing = [2]string{"everything is healed", ""}
	r.nemesis.mu.Unlock()
	for _, n := range r.group.nodes {
		n.release()
	}
	for _, k := range r.workers.all() {
		k.release()
	}
	if err := r.group.healthy(ctx, settleIn); err != nil {
		return fmt.Errorf("after everything was healed: %w", err)
	}
	r.book.Add(check.Event{Who: "nemesis", Kind: check.Healed})
	// That nothing decides is a finding of C9, not the end of the run.
	if err := r.decides(ctx, decideIn); err != nil {
		report.Problems = append(report.Problems, "after everything was healed: "+err.Error())
	}
	for _, t := range r.workers.tellers {
		if err := t.stop(ctx, leaveIn); err != nil {
			report.Problems = append(report.Problems, err.Error())
		}
	}
	stopWriting()
	for _, p := range []*keeper{r.workers.orders, r.workers.lines} {
		if err := r.drain(ctx, p); err != nil {
			report.Problems = append(report.Problems, fmt.Sprintf("drain %s: %v", p.name, err))
		}
	}
	if err := r.finish(ctx); err != nil {
		report.Problems = append(report.Problems, err.Error())
	}
	if err := r.workers.sweeper.stop(ctx, 2*leaveIn); err != nil {
		report.Problems = append(report.Problems, err.Error())
	}
	for _, k := range []*keeper{r.workers.orders, r.workers.lines} {
		if err := k.stop(ctx, leaveIn); err != nil {
			report.Problems = append(report.Problems, err.Error())
		}
	}
	r.book.Add(check.Event{Who: "run", Kind: check.Quiet})
	if err := rig.Sleep(ctx, watchFor); err != nil {
		return err
	}
	return r.read(ctx, report)
}

// drain lets a pipeline read all that was written, fire what is open, and end.
func (r *run) drain(ctx context.Context, k *keeper) error {
	if k == r.workers.orders {
		if err := r.readAll(ctx); err != nil {
			return err
		}
	}
	k.let()
	return rig.Drain(ctx, r.group.ask, k.name, patience)
}

var patience = rig.Patience{Limit: drainIn, Answer: answerIn}

func (r *run) pipeline(ctx context.Context, name string) (*unisinkv1.GetPipelineResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	return r.group.ask.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: name})
}

// readAll waits until every order that was written is in a proven epoch.
func (r *run) readAll(ctx context.Context) error {
	return rig.AllRead(ctx, r.group.ask, ordersPipeline, r.workers.written.Load(), patience)
}

// finish waits until nothing is in doubt any more; the sweeper sees to that.
func (r *run) finish(ctx context.Context) error {
	return rig.Await(ctx, finishIn, "nothing to be in doubt", func() error {
		left, err := r.inDoubt(ctx)
		if err == nil && len(left) > 0 {
			err = errors.New(left[0] + fmt.Sprintf(" (%d of them)", len(left)))
		}
		return err
	})
}

// inDoubt lists what is prepared and not finished, as everybody sees it who could know.
func (r *run) inDoubt(ctx context.Context) (left []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	resp, err := r.group.ask.Transactions().ListTransactions(ctx, &unisinkv1.ListTransactionsRequest{InDoubt: true})
	if err != nil {
		return nil, err
	}
	for _, t := range resp.GetTransactions() {
		left = append(left, fmt.Sprintf("ledger: %s is %s and not resolved", t.GetTxn(), t.GetOutcome()))
	}
	for _, name := range r.house.Prepared() {
		left = append(left, "accounts: "+name)
	}
	for _, dir := range []string{r.workers.filesDir(), r.workers.in("orders"), r.workers.in("lines")} {
		staged, err := rig.Staged(dir)
		if err != nil {
			return nil, err
		}
		for _, s := range staged {
			left = append(left, filepath.Base(dir)+": "+s)
		}
	}
	return left, nil
}

// read writes into the book what everybody holds at the end.
func (r *run) read(ctx context.Context, report *Report) error {
	left, err := r.inDoubt(ctx)
	if err != nil {
		return fmt.Errorf("look for what is in doubt: %w", err)
	}
	_, open, err := rig.LeftOpen(ctx, r.client, namespace)
	if err != nil {
		return err
	}
	for _, l := range append(left, open...) {
		r.book.Add(check.Event{Who: "run", Kind: check.Held, Store: "at the end", Handle: l})
	}
	for _, p := range []string{ordersPipeline, linesPipeline} {
		if err := r.readEpochs(ctx, p); err != nil {
			return err
		}
		if err := r.readManifests(p, filepath.Join(r.workers.disk.Dir(), p)); err != nil {
			return err
		}
	}
	if err := r.readManifests(house.Files, r.workers.filesDir()); err != nil {
		return err
	}
	if err := r.readTopic(ctx); err != nil {
		return err
	}
	return r.verify(ctx, report)
}

// readEpochs reads the ledger's records.
func (r *run) readEpochs(ctx context.Context, pipeline string) error {
	resp, err := r.group.ask.Pipelines().ListEpochs(ctx, &unisinkv1.ListEpochsRequest{Scope: &unisinkv1.Scope{Pipeline: pipeline}, Limit: 1000})
	if err != nil {
		return fmt.Errorf("list the epochs of %s: %w", pipeline, err)
	}
	for _, e := range resp.GetEpochs() {
		if e.GetOutcome() != unisinkv1.Outcome_OUTCOME_COMMITTED {
			continue
		}
		r.book.Add(check.Event{Who: "ledger", Kind: check.Record, Branch: check.Branch{
			Scope: pipeline + "/0", Epoch: check.Epoch{Generation: e.GetEpoch().GetGeneration(), N: e.GetEpoch().GetN()},
		}})
	}
	return nil
}

// readManifests reads what readers of a directory see: of transfers the money, of epochs the order in
// which they became visible.
func (r *run) readManifests(store, dir string) error {
	manifests, err := file.ReadManifests(nil, dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing was ever written
	}
	if err != nil {
		return err
	}
	at := map[string]time.Time{}
	for _, m := range manifests {
		info, err := os.Stat(filepath.Join(dir, "_manifests", m.Name.String()+".json"))
		if err != nil {
			return fmt.Errorf("look when %s became visible: %w", m.Name, err)
		}
		at[m.Name.String()] = info.ModTime()
	}
	slices.SortStableFunc(manifests, func(a, b file.Manifest) int { return at[a.Name.String()].Compare(at[b.Name.String()]) })
	for _, m := range manifests {
		e := check.Event{
			Who: "run", Kind: check.Committed, Store: store, Handle: m.Name.String(), AtEnd: true,
			Branch: check.Branch{Txn: m.Name.Txn, Resource: m.Name.Resource},
		}
		if m.Name.Txn == "" {
			e.Branch = check.Branch{
				Scope: m.Name.Scope(), Member: m.Name.Member, Resource: m.Name.Resource,
				Epoch: check.Epoch{Generation: m.Name.Generation, N: m.Name.N},
			}
		} else if e.Records, err = readRecords(dir, m); err != nil {
			return err
		}
		r.book.Add(e)
	}
	return nil
}

func readRecords(dir string, m file.Manifest) (records []string, err error) {
	for _, f := range m.Files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name))
		if errors.Is(err, os.ErrNotExist) {
			return []string{"gone: " + f.Name}, nil // which is no money, and found so
		}
		if err != nil {
			return nil, fmt.Errorf("read a transfer: %w", err)
		}
		if int64(len(text)) != f.Bytes {
			return []string{fmt.Sprintf("damaged: %s has %d bytes, not %d", f.Name, len(text), f.Bytes)}, nil
		}
		for line := range strings.Lines(string(text)) {
			records = append(records, strings.TrimSpace(line))
		}
	}
	return records, nil
}

// readTopic reads the order in which epochs became visible in each partition of the results.
func (r *run) readTopic(ctx context.Context) error {
	last := map[int32]string{}
	return rig.ReadCommitted(ctx, r.kafka.Addrs(), topicOut, readIn, func(rec *kgo.Record) {
		for _, h := range rec.Headers {
			if h.Key != "unisink-epoch" || last[rec.Partition] == string(h.Value) {
				continue
			}
			last[rec.Partition] = string(h.Value)
			r.sawEpoch(rec, string(h.Value))
		}
	})
}

func (r *run) sawEpoch(rec *kgo.Record, value string) {
	b := check.Branch{Scope: ordersPipeline + "/0", Resource: "totals"}
	if _, err := fmt.Sscanf(value, "%d.%d", &b.Epoch.Generation, &b.Epoch.N); err != nil {
		r.book.Add(check.Event{Who: "run", Kind: check.Heuristic, Text: fmt.Sprintf("a record of %s has the epoch %q", rec.Topic, value)})
		return
	}
	r.book.Add(check.Event{
		Who: "run", Kind: check.Committed, Store: fmt.Sprintf("%s/%d", rec.Topic, rec.Partition), AtEnd: true, Branch: b,
	})
}

// verify lets the binary recompute both pipelines' outputs.
func (r *run) verify(ctx context.Context, report *Report) error {
	for name, args := range map[string][]string{
		ordersPipeline: append([]string{ordersPipeline}, r.workers.ordersFlags()...), linesPipeline: {r.workers.linesSpec()},
	} {
		for _, c := range r.group.addresses() {
			args = append(args, "--coordinator", c)
		}
		text, problem, err := rig.Verify(ctx, r.c.Binary, args...)
		if err != nil {
			return err
		}
		report.addWindows(name, text, problem)
	}
	return nil
}

// resumeHalted resumes a scope that halted because ten generations in a row decided nothing, as an
// operator would who knows what was done to it. Whatever else halts a scope is left so, and found.
func (r *run) resumeHalted(ctx context.Context) error {
	const look = 2 * time.Second
	for rig.Sleep(ctx, look) == nil {
		for _, name := range []string{ordersPipeline, linesPipeline} {
			p, err := r.pipeline(ctx, name)
			if err != nil {
				continue
			}
			for _, s := range p.GetScopes() {
				if !strings.Contains(s.GetHalted(), decidedNothing) {
					continue
				}
				_, err := r.group.ask.Pipelines().Resume(ctx, &unisinkv1.ResumeRequest{
					Meta: r.group.ask.NewMeta(), Scope: s.GetScope(), Why: "faults were the cause",
				})
				if err == nil {
					r.book.Add(check.Event{Who: "operator", Kind: check.Note, Text: "resumed " + name + ": " + s.GetHalted()})
				}
			}
		}
	}
	return nil
}

// decidedNothing stands in the cause of a halt after ten generations without a decision.
const decidedNothing = "generations in a row"
