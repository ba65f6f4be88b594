package participant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/unisink/unisink/internal/branchname"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// ByHandTimeout is how long a client may take from the first word it writes to the decision, if it
// has not announced the transaction with a deadline of its own; the coordinator's default.
const ByHandTimeout = time.Minute

// Swept is what one Sweep came to.
type Swept struct {
	Committed  int // branches brought to their decided end, and proven
	RolledBack int
	// Aborted are the transactions that nobody knew, aborted by this sweep's question.
	Aborted []string
	// Undecided are branches of announced transactions; their deadline decides.
	Undecided int
}

// Sweep finishes what transactions run by hand have left in resources of one's own, whoever ran
// them: resources are given by the names that transactions call them. What is decided is committed
// or rolled back by the decision's handles, and its proof reported. What nobody knows is listed
// twice, timeout apart (0: ByHandTimeout, and not less than clients take to prepare and commit); if it is
// still there and still unknown it is asked for, which aborts it, and rolled back. So with such work
// about a Sweep takes at least timeout. What is announced and undecided is left to its deadline.
//
// What a process has prepared under names of its own, as in Kafka, may be a branch that was announced and aborted: while it is
// there that one is not finished. Nor is it while something that was prepared before a backup of the coordinator was restored may
// be it: that is left alone, and a person decides.
//
// It may run beside everything else, and a repeat does what is left. Each branch is tried once; the error joins those
// that could not be finished, each with its resource, and ErrHeuristic where one shows the opposite
// of the decision, ErrUndeterminable where nobody can tell how one ended. A resource that can't list is finished as far as the ledger has handles. Calls of
// processes that still write may fail when their transaction is found aborted.
func (c *Client) Sweep(ctx context.Context, resources map[string]Resource, timeout time.Duration) (Swept, error) {
	if timeout <= 0 {
		timeout = ByHandTimeout
	}
	ns, err := c.Namespace(ctx)
	if err != nil {
		return Swept{}, fmt.Errorf("sweep: %w", err)
	}
	s := &sweep{c: c, ns: ns, resources: resources, names: slices.Sorted(maps.Keys(resources))}
	found := s.list(ctx)
	unknown := s.finishListed(ctx, found, nil)
	if len(unknown) > 0 && route.Sleep(ctx, timeout) {
		found = s.list(ctx)
		s.finishListed(ctx, found, unknown)
	}
	s.finishRecorded(ctx)
	if ctx.Err() != nil {
		s.fail(fmt.Errorf("the sweep was cut short: %w", context.Cause(ctx)))
	}
	return s.done, errors.Join(s.errs...)
}

// sweep is one call of Sweep.
type sweep struct {
	c         *Client
	ns        Namespace
	resources map[string]Resource
	names     []string // of resources, sorted
	done      Swept
	errs      []error
}

// leftover is a branch run by hand that a resource lists.
type leftover struct {
	resource string
	Listed
}

func (s *sweep) fail(err error) { s.errs = append(s.errs, err) }

// list names what is prepared, or being written, in all resources.
func (s *sweep) list(ctx context.Context) []leftover {
	var out []leftover
	for _, name := range s.names {
		listed, err := s.resources[name].List(ctx, s.ns)
		if err != nil {
			s.fail(fmt.Errorf("list what is prepared in %s: %w", name, err))
			continue
		}
		for _, l := range listed {
			if l.Name.Txn != "" {
				out = append(out, leftover{name, l})
			}
		}
	}
	return out
}

// finishListed ends what is decided and returns what nobody knows. Those that were unknown before
// are asked for. It looks up each transaction once.
func (s *sweep) finishListed(ctx context.Context, found, before []leftover) []leftover {
	verdicts := map[string]knownTxn{}
	var unknown []leftover
	s.done.Undecided = 0
	for _, l := range found {
		txn := l.Name.Txn
		known, seen := verdicts[txn]
		if !seen {
			var err error
			if known, err = s.verdict(ctx, txn, wasThere(before, txn)); err != nil {
				s.fail(err)
				continue // without a verdict nothing is touched
			}
			verdicts[txn] = known
		}
		switch known.outcome {
		case outcomeUnset:
			unknown = append(unknown, l)
		case OutcomePending:
			s.done.Undecided++
		case OutcomeCommitted, OutcomeAborted:
			s.end(ctx, l, known)
		}
	}
	return unknown
}

// wasThere reports whether a transaction was listed before.
func wasThere(before []leftover, txn string) bool {
	return slices.ContainsFunc(before, func(l leftover) bool { return l.Name.Txn == txn })
}

// verdict is what the ledger says of a transaction. With ask one that nobody knows is aborted. One
// that is too old to have a record is dead, for it can't be committed any more.
func (s *sweep) verdict(ctx context.Context, txn string, ask bool) (knownTxn, error) {
	known, err := s.c.lookup(ctx, txn)
	if errors.Is(err, ErrTooOld) {
		return knownTxn{outcome: OutcomeAborted}, nil
	}
	if err != nil || known.outcome != outcomeUnset || !ask {
		return known, err
	}
	out, err := s.c.Outcome(ctx, txn)
	switch {
	case errors.Is(err, ErrTooOld):
		return knownTxn{outcome: OutcomeAborted}, nil
	case err != nil:
		return knownTxn{}, err
	case out == OutcomeAborted:
		s.done.Aborted = append(s.done.Aborted, txn)
		return knownTxn{outcome: out}, nil
	}
	return s.c.lookup(ctx, txn) // decided meanwhile: by which handles
}

// end brings one listed branch to what is decided of its transaction.
func (s *sweep) end(ctx context.Context, l leftover, known knownTxn) {
	if d, named := known.names(l.Handle); named {
		s.finish(ctx, l.resource, l.Name.Txn, d.Resource, d.Handle, Committed)
		return
	}
	name := ""
	if known.outcome == OutcomeAborted && slices.ContainsFunc(known.branches, func(b HandBranch) bool { return b.Resource == l.Name.Resource }) {
		name = l.Name.Resource // announced, so that the ledger waits for its proof
	}
	s.finish(ctx, l.resource, l.Name.Txn, name, l.Handle, RolledBack)
}

// finish makes one attempt, and reports the proof of a branch that the ledger knows under a name.
func (s *sweep) finish(ctx context.Context, resource, txn, name string, h Handle, want Verdict) {
	call, what := s.resources[resource].Commit, "commit"
	if want == RolledBack {
		call, what = s.resources[resource].Rollback, "roll back"
	}
	limited, cancel := context.WithTimeout(ctx, attemptLimit)
	proof, err := call(limited, h)
	cancel()
	if err == nil && proof.Verdict != Committed && proof.Verdict != RolledBack {
		err = fmt.Errorf("%w: the answer proves nothing", ErrBug)
	}
	if err != nil {
		if name != "" && errors.Is(err, ErrUndeterminable) {
			s.c.tellUndeterminable(ctx, txn, name, err)
		}
		s.fail(fmt.Errorf("%w: %s %s of transaction %s in %s: %w", ErrUnfinished, what, h.Name, txn, resource, err))
		return
	}
	if proof.Verdict == Committed {
		s.done.Committed++
	} else {
		s.done.RolledBack++
	}
	if name != "" {
		if err := s.c.Resolve(ctx, txn, name, proof); err != nil && !errors.Is(err, ErrNotFound) {
			s.fail(err)
		}
	}
	if proof.Verdict != want && name != "" {
		s.fail(fmt.Errorf("%w: %s in transaction %s: %s", ErrHeuristic, resource, txn, proof.Evidence))
	}
}

// recordedAtOnce is how many transactions in doubt are asked for at once.
const recordedAtOnce = 1000

// finishRecorded ends what the ledger waits for and no resource lists: branches whose finisher died
// between the resource's commit and its report, and announced ones that were never prepared.
func (s *sweep) finishRecorded(ctx context.Context) {
	is := s.identities(ctx)
	for after, more := "", true; more; {
		resp, err := s.c.Transactions().ListTransactions(ctx, &unisinkv1.ListTransactionsRequest{InDoubt: true, ByHand: true, After: after, Limit: recordedAtOnce})
		if err != nil {
			s.fail(fmt.Errorf("list the transactions in doubt: %w", unknownIfCut(ctx, err)))
			return
		}
		more = false
		for _, t := range resp.GetTransactions() {
			// A node of an earlier release lists epochs too, which are their members' business, and begins at the first again.
			if t.GetScope() == nil && t.GetTxn() > after {
				after, more = t.GetTxn(), true
				s.finishRecord(ctx, is, t)
			}
		}
	}
}

// finishRecord ends what the ledger waits for of one transaction, in the resources that are ours.
func (s *sweep) finishRecord(ctx context.Context, is map[[2]string]string, t *unisinkv1.Transaction) {
	for i, d := range readTxn(t).branches {
		if t.GetBranches()[i].GetProof().GetVerdict() != unisinkv1.Verdict_VERDICT_UNSPECIFIED {
			continue
		}
		switch outcomeFromWire(t.GetOutcome()) {
		case OutcomeCommitted:
			if mine := is[[2]string{d.Handle.Kind, d.Handle.Identity}]; mine != "" {
				s.finish(ctx, mine, t.GetTxn(), d.Resource, d.Handle, Committed)
			}
		case OutcomeAborted:
			s.neverPrepared(ctx, t.GetTxn(), d.Resource, time.UnixMilli(t.GetDecidedAtMs()))
		case OutcomePending, outcomeUnset:
		}
	}
}

// identities tells which of the resources a handle belongs to.
func (s *sweep) identities(ctx context.Context) map[[2]string]string {
	is := map[[2]string]string{}
	for _, name := range s.names {
		d, err := s.resources[name].Describe(ctx)
		if err != nil {
			s.fail(fmt.Errorf("describe %s: %w", name, err))
			continue
		}
		is[[2]string{d.Kind, d.Identity}] = name
	}
	return is
}

// clockMargin is how far the clocks of a resource and of the coordinator may be apart: as far as those of clients are let be.
const clockMargin = time.Minute

// neverPrepared proves that an announced branch of an aborted transaction left nothing, by a listing
// after the decision. One that is prepared late all the same is found aborted by the next sweep (P13). What a process has
// prepared by hand under names of its own, as in Kafka, may be the branch unless it was begun long after the decision: as
// long as that is there nothing is proven; nor while something of an earlier incarnation may be it, which is left alone.
func (s *sweep) neverPrepared(ctx context.Context, txn, resource string, decided time.Time) {
	r := s.resources[resource]
	if r == nil {
		return
	}
	if d, err := r.Describe(ctx); err != nil || !d.CanList {
		return // told by identities, or for whoever prepares it to prove
	}
	listed, err := r.List(ctx, s.ns)
	if err != nil {
		s.fail(fmt.Errorf("list what is prepared in %s: %w", resource, err))
		return
	}
	perhaps := ""
	for _, l := range listed {
		if l.Name.Txn == txn && l.Name.Resource == resource {
			s.finish(ctx, resource, txn, resource, l.Handle, RolledBack)
			return
		}
		if ofProcess(l, decided) && !mutant.On("participant/names-of-its-own") {
			perhaps = l.Name.String()
		}
	}
	if perhaps != "" {
		s.fail(fmt.Errorf("%w: transaction %s was aborted, and %s in %s, which does not name its transaction, may be its branch: nothing is proven until that has ended, by the resource's own time-out or by a person at the resource",
			ErrUnfinished, txn, perhaps, resource))
		return
	}
	switch perhaps, err = s.earlier(ctx, r, txn, resource, decided); {
	case err != nil:
		s.fail(fmt.Errorf("list what is prepared in %s: %w", resource, err))
		return
	case perhaps != "":
		s.fail(fmt.Errorf("%w: transaction %s was aborted, and %s in %s, prepared before a backup was restored, may be its branch: it is left alone, and nothing is proven until a person has ended it at the resource, or has looked there and accepts it (unisink txn resolve %s --force accept-loss --branch %s --why …)",
			ErrUnfinished, txn, perhaps, resource, txn, resource))
		return
	}
	if err := s.c.Resolve(ctx, txn, resource, Proof{Verdict: RolledBack, Evidence: "nothing of it is listed after it was aborted"}); err != nil && !errors.Is(err, ErrNotFound) {
		s.fail(err)
	}
}

// ofProcess reports something that a process has prepared by hand under a name of its own, and not begun long after a decision.
func ofProcess(l Listed, decided time.Time) bool {
	return l.Name.Pipeline == branchname.HandPipeline && !l.Since.After(decided.Add(clockMargin))
}

// earlier is the name of what is prepared under an earlier incarnation of the namespace, from before a backup was restored, and
// may be an aborted branch; empty: nothing is.
func (s *sweep) earlier(ctx context.Context, r Resource, txn, resource string, decided time.Time) (string, error) {
	for n := uint64(1); n < s.ns.Incarnation && !mutant.On("participant/earlier-incarnations"); n++ {
		listed, err := r.List(ctx, Namespace{Name: s.ns.Name, Incarnation: n})
		if err != nil {
			return "", err
		}
		for _, l := range listed {
			if l.Name.Txn == txn && l.Name.Resource == resource || ofProcess(l, decided) {
				return l.Name.String(), nil
			}
		}
	}
	return "", nil
}
