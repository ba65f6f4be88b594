package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant"
)

// Commit makes a prepared transaction visible and proves it. It needs nothing but the handle.
func (s *Sink) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	return s.end(ctx, h, true)
}

// Rollback aborts a prepared transaction and proves it. One that the cluster knows nothing of,
// and whose commit nothing shows, counts as rolled back.
func (s *Sink) Rollback(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	return s.end(ctx, h, false)
}

// end is the one way by which transactions end, live or recovered.
func (s *Sink) end(ctx context.Context, h participant.Handle, commit bool) (participant.Proof, error) {
	verb := "roll back"
	if commit {
		verb = "commit"
	}
	f, err := s.finishing(ctx, h)
	if err != nil {
		return participant.Proof{}, fmt.Errorf("%s %s: %w", verb, h.Name, err)
	}
	proof, err := f.end(ctx, commit)
	if err != nil {
		return participant.Proof{}, fmt.Errorf("%s %s: %w", verb, h.Name, err)
	}
	if t := s.current(); t != nil {
		t.resolved(f.b.name(), proof.Verdict)
		t.fenceEnded(ctx, f.b)
	}
	return proof, nil
}

// fenceEnded initialises the id of an older generation of our own, once what it held is proven.
// When it fails, the id is fenced before the first branch of this generation instead.
func (t *tenure) fenceEnded(ctx context.Context, b *body) {
	n, _ := parseSlotID(b.TxnID)
	if groupOf(n) != t.group || n.Generation >= t.name.Generation {
		return
	}
	d, err := describe(ctx, t.cl, b.TxnID)
	if err != nil || len(d) != 1 || d[0].err != nil || unfinished(d[0].state) || d[0].pid != b.PID || d[0].epoch > b.Epoch+1 {
		return // it goes on with another transaction, or is fenced already
	}
	if _, _, err := initialise(ctx, t.cl, b.TxnID); err != nil {
		t.sink.log().WarnContext(ctx, "an older transactional id is not fenced yet", obs.Branch(b.TxnID), obs.Err(err))
	}
}

// Inspect looks at the coordinator first and for the witness and the markers second.
func (s *Sink) Inspect(ctx context.Context, h participant.Handle) (participant.State, error) {
	f, err := s.finishing(ctx, h)
	if err != nil {
		return 0, fmt.Errorf("inspect %s: %w", h.Name, err)
	}
	at, err := f.look(ctx)
	if err != nil {
		return 0, fmt.Errorf("inspect %s: %w", h.Name, err)
	}
	if at.open || at.verdict == 0 {
		if at.open {
			return participant.Undecided, nil
		}
		return participant.Unknown, nil
	}
	if open, err := f.openOn(ctx); err != nil || len(open) > 0 {
		return participant.Undecided, err
	}
	if at.verdict == participant.Committed {
		if lost, err := f.confirmed(ctx); err != nil || lost != "" {
			return participant.Unknown, err
		}
		return participant.StateCommitted, nil
	}
	return participant.StateRolledBack, nil
}

// finish is the work on one handle.
type finish struct {
	sink *Sink
	cl   *kgo.Client // pinned to the handle's EndTxn class
	b    *body
	lost string // what the cluster no longer has of the branch's records; a commit says so
}

// finishing reads a handle and checks that it is of this cluster.
func (s *Sink) finishing(ctx context.Context, h participant.Handle) (*finish, error) {
	b, err := decode(h)
	if err != nil {
		return nil, err
	}
	c, err := s.probed(ctx)
	if err != nil {
		return nil, err
	}
	if h.Identity != c.cluster || b.Cluster != c.cluster {
		return nil, fmt.Errorf("%w: it is of cluster %s, %s is cluster %s", participant.ErrUnknownHandle, h.Identity, s.at, c.cluster)
	}
	cl, err := s.client(b.Class)
	if err != nil {
		return nil, err
	}
	return &finish{sink: s, cl: cl, b: b}, nil
}

// leaderWait is how long a commit is put off that would find a partition without a leader.
const leaderWait = 500 * time.Millisecond

// end sends EndTxn until the answer is definite, looks up what an ambiguous one means, and
// proves the outcome.
func (f *finish) end(ctx context.Context, commit bool) (participant.Proof, error) {
	if commit {
		lost, err := f.ready(ctx)
		if err != nil {
			return participant.Proof{}, err
		}
		f.lost = lost
	}
	wait := short()
	for {
		fault.Point("kafka/before-endtxn")
		answer := f.endTxn(ctx, commit)
		fault.Point("kafka/after-endtxn")
		switch {
		case answer == nil:
			v := participant.RolledBack
			if commit {
				v = participant.Committed
			}
			if err := markersTake(ctx); err != nil {
				return participant.Proof{}, err
			}
			return f.prove(ctx, outcome{verdict: v, evidence: "EndTxn was answered well"})
		case errors.Is(answer, kerr.ConcurrentTransactions):
			// Some decision is being completed, not necessarily this one.
			if err := wait.wait(ctx); err != nil {
				return participant.Proof{}, fmt.Errorf("%w: %w", answer, err)
			}
		case ambiguous(answer):
			return f.settle(ctx, commit, answer)
		default:
			return participant.Proof{}, classed(fmt.Errorf("EndTxn: %w", answer))
		}
	}
}

// markersTake waits for as long as brokers need at least to write the markers after they have answered.
func markersTake(ctx context.Context) error {
	wait := pause{next: time.Millisecond}
	if err := wait.wait(ctx); err != nil {
		return fmt.Errorf("the markers are still being written: %w", err)
	}
	return nil
}

// endTxn sends one request, with the version class of the handle.
func (f *finish) endTxn(ctx context.Context, commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = f.b.TxnID, f.b.PID, f.b.Epoch, commit
	resp, err := req.RequestWith(ctx, f.cl)
	if err != nil {
		return err
	}
	if resp.Version != f.version() {
		return fmt.Errorf("%w: EndTxn was sent as version %d, but the transaction is of class %d: the brokers' transaction.version has been changed", participant.ErrMisconfigured, resp.Version, f.b.Class)
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// version is the request version of the handle's class.
func (f *finish) version() int16 { return int16(f.b.Class) }

// ambiguous answers say that the transaction is not open with our epoch any more, and not how it
// ended.
func ambiguous(err error) bool {
	return isAny(err, kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping,
		kerr.InvalidTxnState, kerr.TransactionalIDNotFound, kerr.TransactionAbortable, kerr.UnknownProducerID)
}

// settle finds out what an ambiguous answer means. What cannot be proven stays in doubt.
func (f *finish) settle(ctx context.Context, commit bool, answer error) (participant.Proof, error) {
	if commit && mutant.On("kafka/fenced-is-no-success") {
		return participant.Proof{Verdict: participant.Committed, Evidence: "taken for committed"}, nil
	}
	at, err := f.look(ctx)
	switch {
	case err != nil:
		return participant.Proof{}, fmt.Errorf("after %w: %w", answer, err)
	case at.open:
		return participant.Proof{}, &participant.RetryAfter{After: 10 * time.Millisecond, Err: fmt.Errorf("EndTxn was answered %w, but %s", answer, at.evidence)}
	case at.verdict != 0:
		return f.prove(ctx, at)
	case commit && !mutant.On("kafka/absence-is-no-abort"):
		return f.untold(ctx, at, answer)
	}
	return f.prove(ctx, outcome{verdict: participant.RolledBack, guessed: true, evidence: fmt.Sprintf("EndTxn was answered %v, and nothing shows a commit", answer)})
}

// untold is the answer where neither the coordinator nor the witness nor some of the logs show how a transaction ended:
// the rest of them is read. A log that nobody knows of may be there again, unless its topic is known to be gone.
func (f *finish) untold(ctx context.Context, at outcome, answer error) (participant.Proof, error) {
	rest, err := f.markers(ctx, markersIn, math.MaxInt)
	if err != nil {
		return participant.Proof{}, fmt.Errorf("after %w: %w", answer, err)
	}
	if rest.verdict != 0 {
		return f.prove(ctx, rest)
	}
	class := participant.ErrUndeterminable
	if f.lost == "" && (at.unsure || rest.unsure) {
		class = participant.ErrRetry
	}
	return participant.Proof{}, fmt.Errorf("in doubt: EndTxn was answered %w, and neither the coordinator nor the witness nor the log shows how the transaction ended: %w", answer, class)
}

// prove waits until the coordinator is done with the transaction and no partition shows it open,
// writing the markers that the brokers have dropped. Until then the branch is not resolved, and its
// slot not touched.
func (f *finish) prove(ctx context.Context, ended outcome) (participant.Proof, error) {
	wait := short()
	for {
		d, err := f.described(ctx)
		if err != nil {
			return participant.Proof{}, err
		}
		if !d.ending(f.b) {
			ended.evidence += "; " + d.said()
			break
		}
		if err := wait.wait(ctx); err != nil {
			return participant.Proof{}, fmt.Errorf("the markers are still being written: %w", err)
		}
	}
	fault.Point("kafka/before-proof")
	open, err := f.openOn(ctx)
	if err != nil {
		return participant.Proof{}, err
	}
	if len(open) > 0 && !mutant.On("kafka/no-partition-open") {
		mended, err := f.mend(ctx, ended, open)
		if err != nil {
			return participant.Proof{}, err
		}
		ended.evidence += "; " + mended
	}
	ended.evidence += "; no partition shows it open"
	if ended.verdict != participant.Committed {
		return participant.Proof{Verdict: ended.verdict, Evidence: ended.evidence}, nil
	}
	if f.lost == "" {
		if f.lost, err = f.confirmed(ctx); err != nil {
			return participant.Proof{}, err
		}
	}
	if f.lost != "" {
		return participant.Proof{Verdict: participant.RolledBack, Evidence: f.lost + "; what is left of the branch is committed (" + ended.evidence + ")"}, nil
	}
	return participant.Proof{Verdict: participant.Committed, Evidence: ended.evidence}, nil
}

// proven looks for a proof without ending anything.
func (f *finish) proven(ctx context.Context) (participant.Proof, bool, error) {
	at, err := f.look(ctx)
	if err != nil || at.open || at.verdict == 0 {
		return participant.Proof{}, false, err
	}
	p, err := f.prove(ctx, at)
	return p, err == nil, err
}
