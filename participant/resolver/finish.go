package resolver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// chain is what must be finished in order: one member's branches in one resource. A transaction by hand is one alone.
type chain struct {
	pipeline string
	shard    uint32
	member   string
	resource string
	txn      string
}

func chainOf(b *unisinkv1.BranchRef) chain {
	return chain{b.GetScope().GetPipeline(), b.GetScope().GetShard(), b.GetMember(), b.GetResource(), b.GetTxn()}
}

// branchKey names a branch.
type branchKey struct {
	chain
	generation, n uint64
}

func keyOf(b *unisinkv1.BranchRef) branchKey {
	return branchKey{chainOf(b), b.GetEpoch().GetGeneration(), b.GetEpoch().GetN()}
}

// startChains starts the chains that have something to be done, and nothing on its way.
func (l *lane) startChains(ctx context.Context) {
	work := map[chain][]*unisinkv1.Duty{}
	var order []chain
	for _, d := range l.now.duties {
		if !l.mine(d) || l.since(l.proven[keyOf(d.GetBranch())]) {
			continue
		}
		c := chainOf(d.GetBranch())
		if work[c] == nil {
			order = append(order, c)
		}
		work[c] = append(work[c], d)
	}
	for c, t := range l.chains {
		// What these orders do not name may come with the next: it is not tried sooner for that.
		if work[c] == nil && !t.flying && (l.now.whole || time.Since(t.next) > longestWait) {
			delete(l.chains, c)
		}
	}
	for k, at := range l.proven {
		if at.Before(l.now.asOf) {
			delete(l.proven, k)
		}
	}
	for _, c := range order {
		if l.flying >= startedAtOnce {
			return
		}
		l.startChain(ctx, c, work[c])
	}
}

// mine reports a duty of this resource, that can be done by its handle.
func (l *lane) mine(d *unisinkv1.Duty) bool {
	is, _ := l.identity()
	h := d.GetHandle()
	return h.GetName() != "" && h.GetKind() == is.GetKind() && h.GetIdentity() == is.GetIdentity()
}

// handOwn reports a duty of a transaction by hand that is this resource's, by its handle or by the name that it was announced
// under.
func (l *lane) handOwn(d *unisinkv1.Duty) bool {
	b := d.GetBranch()
	return b.GetTxn() != "" && (l.mine(d) || d.GetHandle().GetName() == "" && b.GetResource() == l.alias)
}

func (l *lane) startChain(ctx context.Context, c chain, list []*unisinkv1.Duty) {
	t := l.chains[c]
	if t == nil {
		t = &try{}
		l.chains[c] = t
	}
	// The first waits for one that is not in this resource, or not in these orders any more.
	if t.flying || time.Now().Before(t.next) || list[0].GetWaits() && !l.gone(list[0]) || l.left(list[0]) {
		return
	}
	if mutant.On("resolver/in-order") {
		list = slices.Clone(list)
		slices.Reverse(list)
	}
	t.begin()
	l.flying++
	o := l.now
	l.task(ctx, func(ctx context.Context) func() {
		done, at, err := l.finish(ctx, o, list)
		return func() { l.finished(ctx, t, done, at, err) }
	})
}

// gone reports that what a duty waits for was proven since the orders were asked for.
func (l *lane) gone(d *unisinkv1.Duty) bool {
	for k, at := range l.proven {
		if k.chain == chainOf(d.GetBranch()) && l.since(at) {
			return true
		}
	}
	return false
}

// left reports a duty that is left to its member.
func (l *lane) left(d *unisinkv1.Duty) bool {
	return d.GetHeld() && l.now.age(d.GetDecidedAtMs()) < l.r.c.HeldFor
}

func (l *lane) finished(ctx context.Context, t *try, done []branchKey, at *unisinkv1.BranchRef, err error) {
	t.flying = false
	l.flying--
	for _, k := range done {
		l.proven[k] = time.Now()
	}
	if len(done) > 0 || err == nil {
		t.failures, t.err, t.next, t.branch = 0, nil, time.Time{}, nil
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	wait := t.failed(err)
	t.branch = at
	log := l.r.log.WarnContext
	if forPeople(err) {
		log = l.r.log.ErrorContext // a person must act; until then it is in doubt, never given up
	}
	log(ctx, "branch not finished, trying again", obs.Txn(txnOf(at)), obs.Member(at.GetMember()), obs.Resource(at.GetResource()),
		obs.Attempt(t.failures), obs.Next(wait), obs.Err(err))
}

// forPeople reports what no repetition mends.
func forPeople(err error) bool {
	for _, kind := range []error{participant.ErrMisconfigured, participant.ErrUnknownHandle, participant.ErrBug, participant.ErrUndeterminable} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// forReport is an error as it is told to people.
func forReport(err error) string {
	if forPeople(err) && !mutant.On("resolver/told-to-a-person") {
		return err.Error() + "; that does not pass by itself: a person must act, and it is tried on"
	}
	return err.Error()
}

// finish brings the branches of a chain to their end, each proven in the ledger before the next is touched (P6). It
// stops at the first that it cannot finish, or that its member still holds.
func (l *lane) finish(ctx context.Context, o *orders, list []*unisinkv1.Duty) (done []branchKey, at *unisinkv1.BranchRef, err error) {
	for _, d := range list {
		if d.GetHeld() && o.age(d.GetDecidedAtMs()) < l.r.c.HeldFor {
			return done, nil, nil
		}
		if err := owned(d.GetHandle(), d.GetBranch(), o.ns.Name); err != nil {
			return done, d.GetBranch(), err
		}
		proof, err := l.bring(ctx, handleFromWire(d.GetHandle()), d.GetOutcome() != unisinkv1.Outcome_OUTCOME_ABORTED)
		if errors.Is(err, participant.ErrUndeterminable) {
			l.r.undeterminable(ctx, d.GetBranch(), err)
		}
		if err != nil {
			return done, d.GetBranch(), err
		}
		if err := l.prove(ctx, d, proof, o.age(d.GetDecidedAtMs())); err != nil {
			return done, d.GetBranch(), err
		}
		done = append(done, keyOf(d.GetBranch()))
	}
	return done, nil, nil
}

// bring makes one attempt, whose end without a proof means unknown.
func (l *lane) bring(ctx context.Context, h participant.Handle, commit bool) (participant.Proof, error) {
	ctx, cancel := context.WithTimeout(ctx, l.r.c.Attempt)
	defer cancel()
	call, what := l.f.Rollback, "roll back"
	if commit {
		call, what = l.f.Commit, "commit"
	}
	proof, err := call(ctx, h)
	switch {
	case errors.Is(err, participant.ErrUnknownHandle):
		return proof, fmt.Errorf("waiting for a newer resolver: %w", err)
	case err != nil:
		return proof, fmt.Errorf("%s %s: %w", what, h.Name, err)
	case proof.Verdict != participant.Committed && proof.Verdict != participant.RolledBack:
		return proof, fmt.Errorf("%w: %s %s: the answer proves nothing", participant.ErrBug, what, h.Name)
	}
	return proof, nil
}

// prove puts a proof into the ledger. Another proof that stands first, or a record that is gone, ends the duty too.
func (l *lane) prove(ctx context.Context, d *unisinkv1.Duty, proof participant.Proof, age time.Duration) error {
	b := d.GetBranch()
	about := []any{
		obs.Txn(txnOf(b)), obs.Member(b.GetMember()), obs.Resource(b.GetResource()), obs.Branch(d.GetHandle().GetName()), obs.Proof(proof.Evidence), obs.Waited(age),
	}
	answer, err := l.r.calls.Prove(ctx, &unisinkv1.ProveRequest{Meta: l.r.c.Client.NewMeta(), Branch: b, Proof: proofToWire(proof)})
	switch reason, _ := grpcerr.Reason(err); {
	case reason == grpcerr.Contradicts:
		l.r.log.ErrorContext(ctx, "another proof stands first", append(about, obs.Err(err))...)
		return nil
	case reason == grpcerr.NotFound:
		return nil // proven and retired, or gone with its pipeline
	case err != nil:
		return fmt.Errorf("report the proof of %s: %w", d.GetHandle().GetName(), err)
	case answer.GetHeuristic():
		l.r.log.ErrorContext(ctx, "heuristic outcome: the resource shows the opposite of the decision", about...)
	default:
		l.r.log.InfoContext(ctx, "finished what its process did not", about...)
	}
	return nil
}

// undeterminable tells that nobody can tell how a branch ended. It is tried on and told again, with growing waits, until a
// person has put back what is missing or has forced the branch.
func (r *Resolver) undeterminable(ctx context.Context, b *unisinkv1.BranchRef, why error) {
	_, err := r.calls.Prove(ctx, &unisinkv1.ProveRequest{
		Meta: r.c.Client.NewMeta(), Branch: b, Proof: &unisinkv1.Proof{Verdict: unisinkv1.Verdict_VERDICT_UNDETERMINABLE, Evidence: why.Error()},
	})
	if err != nil && ctx.Err() == nil {
		r.log.WarnContext(ctx, "that nobody can tell how a branch ended is not reported", obs.Txn(txnOf(b)), obs.Resource(b.GetResource()), obs.Err(err))
	}
}

// txnOf names a branch's transaction for people and logs.
func txnOf(b *unisinkv1.BranchRef) string {
	if b.GetTxn() != "" {
		return b.GetTxn()
	}
	return fmt.Sprintf("%s/%d@%d.%d", b.GetScope().GetPipeline(), b.GetScope().GetShard(), b.GetEpoch().GetGeneration(), b.GetEpoch().GetN())
}
