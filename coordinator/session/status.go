package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
)

// code is the one place that says which status code a reason travels under.
func code(reason string) codes.Code {
	switch reason {
	case grpcerr.NotFound:
		return codes.NotFound
	case grpcerr.Invalid:
		return codes.InvalidArgument
	case grpcerr.OutcomeUnknown, grpcerr.LeaseLost, grpcerr.Slow:
		return codes.Unavailable
	default:
		return codes.FailedPrecondition
	}
}

func refuse(reason string, meta map[string]string, format string, args ...any) error {
	return grpcerr.New(code(reason), reason, fmt.Sprintf(format, args...), meta)
}

func invalid(format string, args ...any) error {
	return refuse(grpcerr.Invalid, nil, format, args...)
}

func fenced(format string, args ...any) error {
	return refuse(grpcerr.Fenced, nil, format, args...)
}

// message is the text of a status, for people.
func message(err error) string { return status.Convert(err).Message() }

// closedStatus answers what came too late for its generation.
func closedStatus(g ledger.Generation, final uint64, cause string) error {
	return refuse(grpcerr.Closed, map[string]string{
		grpcerr.MetaGeneration: strconv.FormatUint(uint64(g), 10),
		grpcerr.MetaFinal:      strconv.FormatUint(final, 10),
	}, "generation %d is closed at %d: %s", g, final, cause)
}

// ctxStatus is the status of a call whose context ended while it waited.
func ctxStatus(err error) error { return status.FromContextError(err).Err() }

// proposal is the status of a proposal that failed.
func (m *Manager) proposal(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ctxStatus(err)
	case m.c.Unknown(err):
		return refuse(grpcerr.OutcomeUnknown, nil, "it is not known whether the change was made (%v); ask again with the same request id", err)
	default:
		return m.c.NotLeader()
	}
}

// RefusalError is the status of a command that was not applied; nil when it was.
func RefusalError(r ledger.Result) error {
	if r.OK() {
		return nil
	}
	reasons := map[ledger.Refusal]string{
		ledger.NotFound: grpcerr.NotFound, ledger.Stale: grpcerr.Stale, ledger.FencedOff: grpcerr.Fenced,
		ledger.HaltedScope: grpcerr.Halted, ledger.NotDesired: grpcerr.NotDesired, ledger.Backoff: grpcerr.Backoff,
		ledger.TooOld: grpcerr.TooOld, ledger.TooNew: grpcerr.TooNew, ledger.Contradicts: grpcerr.Contradicts,
		ledger.Busy: grpcerr.Busy, ledger.Invalid: grpcerr.Invalid, ledger.Unsupported: grpcerr.Unsupported,
	}
	return refuse(reasons[r.Refusal], nil, "%s", r.Text)
}
