package resolver

import (
	"context"
	"errors"
	"fmt"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Prepared is one thing that a listing found prepared and not finished, and what is to become of it.
type Prepared struct {
	participant.Listed
	// Resource is the resource's own text.
	Resource string
	// Sentence is the ledger's, and Why says what it rests on.
	Sentence unisinkv1.Sentence
	Why      string
	// Ended: it was dead and has been rolled back.
	Ended bool
	// Err says why it could not be.
	Err error
}

// Finished is one decided branch that was brought to its end, or could not be.
type Finished struct {
	Branch  *unisinkv1.BranchRef
	Handle  *unisinkv1.Handle
	Outcome unisinkv1.Outcome
	Proof   participant.Proof
	// Err says why it is not finished; Proof is then empty.
	Err error
}

// Look lists every resource once and has judged what is there. With sweep it rolls back what is dead and nothing
// else; what is decided is for Finish. The error joins those of whole resources; what others hold is returned all the
// same. It is for use instead of Run.
func (r *Resolver) Look(ctx context.Context, sweep bool) (all []Prepared, err error) {
	for _, l := range r.lanes {
		d, lookErr := l.ask(ctx)
		var listing []judged
		if lookErr == nil {
			listing, lookErr = r.lookInto(ctx, l, sweep)
		}
		text := d.Text
		if text == "" {
			text = l.said.text
		}
		if lookErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", text, lookErr))
		}
		for _, x := range listing {
			all = append(all, Prepared{Listed: x.Listed, Resource: text, Sentence: x.sentence, Why: x.why, Ended: x.ended, Err: x.err})
		}
	}
	return all, err
}

func (r *Resolver) lookInto(ctx context.Context, l *lane, sweep bool) ([]judged, error) {
	// What is listed is judged by a ledger that is at least as new as the listing.
	o, err := r.calls.ListDuties(ctx, &unisinkv1.ListDutiesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask for the namespace: %w", err)
	}
	j := job{ns: participant.Namespace{Name: o.GetNamespace(), Incarnation: o.GetIncarnation()}}
	listing, _, err := l.look(ctx, j)
	if err == nil && sweep {
		l.dropAll(ctx, listing, j)
	}
	return listing, err
}

// Finish brings to their end the decided branches of one transaction, or of all if txn is empty, as far as they lie in
// the resources and nothing earlier of the same participant and resource is in front of them (P6). Branches whose
// member lives are finished as well: two at once do no harm. It is for use instead of Run.
func (r *Resolver) Finish(ctx context.Context, txn string) (all []Finished, err error) {
	o, err := r.calls.ListDuties(ctx, &unisinkv1.ListDutiesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask what is to be done: %w", err)
	}
	reached := map[string]*lane{}
	for _, l := range r.lanes {
		d, askErr := l.ask(ctx)
		if askErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", l.said.text, askErr))
			continue
		}
		reached[d.Kind+"\x00"+d.Identity] = l
	}
	proven := map[chain]bool{}
	for _, d := range o.GetDuties() {
		if txn != "" && txnOf(d.GetBranch()) != txn {
			continue
		}
		f := Finished{Branch: d.GetBranch(), Handle: d.GetHandle(), Outcome: d.GetOutcome()}
		h := d.GetHandle()
		l := reached[h.GetKind()+"\x00"+h.GetIdentity()]
		switch {
		case h.GetName() == "":
			f.Err = errors.New("it was announced and never prepared; a listing after its time proves that")
		case l == nil:
			f.Err = fmt.Errorf("none of the resources is %s %s", h.GetKind(), h.GetIdentity())
		case d.GetWaits() && !proven[chainOf(d.GetBranch())]:
			f.Err = errors.New("an earlier branch of the same participant and resource comes first")
		default:
			if f.Err = owned(h, d.GetBranch(), o.GetNamespace()); f.Err != nil {
				break
			}
			f.Proof, f.Err = l.bring(ctx, handleFromWire(h), d.GetOutcome() != unisinkv1.Outcome_OUTCOME_ABORTED)
			switch {
			case f.Err == nil:
				f.Err = l.prove(ctx, d, f.Proof, 0)
			case errors.Is(f.Err, participant.ErrUndeterminable):
				r.undeterminable(ctx, d.GetBranch(), f.Err)
			}
			proven[chainOf(d.GetBranch())] = f.Err == nil
		}
		all = append(all, f)
	}
	return all, err
}
