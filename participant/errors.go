package participant

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

var (
	// ErrUnreachable: no coordinator answered.
	ErrUnreachable = route.ErrUnreachable
	// ErrNoSuchPipeline: the coordinator knows no pipeline of that name, or it has no such member.
	ErrNoSuchPipeline = errors.New("no such pipeline")
	// ErrNotFound: nothing of that name is known.
	ErrNotFound = errors.New("not found")
	// ErrMemberAlive: another living process holds the member's name, and NoWait was asked for.
	ErrMemberAlive = errors.New("member is alive elsewhere")
	// ErrRefused: the coordinator will never accept the request as it is; the text says why.
	ErrRefused = errors.New("refused")
	// ErrHalted: the scope is halted until a person resumes it.
	ErrHalted = errors.New("scope is halted")
	// ErrOutcomeUnknown: the question or the decision was sent and no answer came. It may be decided
	// either way; ask again with the same transaction id. It never means aborted.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrTooOld: the transaction's id is below the ledger's floor and nothing is recorded of it, so
	// no verdict can be given.
	ErrTooOld = errors.New("transaction id too old")
	// ErrContradicts: it is decided the other way.
	ErrContradicts = errors.New("decided the other way")
	// ErrUnfinished: decided, and not proven in every resource when the caller's time was over. The
	// decision stands; whoever comes next finishes it by handle.
	ErrUnfinished = errors.New("decided but not finished everywhere")
	// ErrHeuristic: a resource broke its promise: decided one way, proven the other.
	ErrHeuristic = errors.New("heuristic outcome")
)

// refusals maps the reasons of the wire to what callers branch on. Reasons that are not listed are
// answers that pass unchanged.
func refusals() map[string]error {
	return map[string]error{
		grpcerr.NotFound:             ErrNotFound,
		grpcerr.MemberAlive:          ErrMemberAlive,
		grpcerr.Fenced:               ErrFenced,
		grpcerr.Closed:               ErrClosed,
		grpcerr.Halted:               ErrHalted,
		grpcerr.Invalid:              ErrRefused,
		grpcerr.ChangedSpecification: ErrRefused,
		grpcerr.ChangedResource:      ErrRefused,
		grpcerr.Unsupported:          ErrRefused,
		grpcerr.NotAllowed:           ErrRefused,
		grpcerr.TooOld:               ErrTooOld,
		grpcerr.TooNew:               ErrRefused,
		grpcerr.Contradicts:          ErrContradicts,
	}
}

// refusal gives a refused call its sentinel.
func refusal(err error) error {
	reason, _ := grpcerr.Reason(err)
	if kind := refusals()[reason]; kind != nil {
		return &refusedError{kind: kind, err: err}
	}
	return err
}

// refusedError is a refusal from the coordinator: the sentinel to branch on, the coordinator's
// words for people.
type refusedError struct{ kind, err error }

func (e *refusedError) Error() string   { return e.kind.Error() + ": " + message(e.err) }
func (e *refusedError) Unwrap() []error { return []error{e.kind, e.err} }

// message is what the coordinator said, without gRPC's frame.
func message(err error) string {
	var st interface{ GRPCStatus() *status.Status }
	if errors.As(err, &st) {
		return st.GRPCStatus().Message()
	}
	return err.Error()
}

// classOf tells the coordinator what may be done about a failure.
func classOf(err error) unisinkv1.ErrorClass {
	switch {
	case errors.Is(err, ErrMisconfigured):
		return unisinkv1.ErrorClass_ERROR_CLASS_MISCONFIGURED
	case errors.Is(err, ErrBug):
		return unisinkv1.ErrorClass_ERROR_CLASS_BUG
	case errors.Is(err, ErrFenced):
		return unisinkv1.ErrorClass_ERROR_CLASS_FENCED
	case errors.Is(err, ErrLost):
		return unisinkv1.ErrorClass_ERROR_CLASS_LOST
	case errors.Is(err, ErrUndeterminable):
		return unisinkv1.ErrorClass_ERROR_CLASS_UNDETERMINABLE
	}
	return unisinkv1.ErrorClass_ERROR_CLASS_RETRY
}

// hopeless reports whether trying again changes nothing.
func hopeless(err error) bool {
	return isAny(err, ErrFenced, ErrLost, ErrMisconfigured, ErrBug, ErrUndeterminable)
}

// forPeople reports what no repetition mends, of a branch that must be finished all the same.
func forPeople(err error) bool { return isAny(err, ErrMisconfigured, ErrUnknownHandle, ErrBug) }

func isAny(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// unknownIfCut turns the end of the caller's patience into ErrOutcomeUnknown.
func unknownIfCut(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil || route.Retryable(err):
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return refusal(err)
}
