package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/grpcerr"
)

func refuse(reason string, meta map[string]string, format string, args ...any) error {
	return grpcerr.New(wire.Code(reason), reason, fmt.Sprintf(format, args...), meta)
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
	case m.c.TooLarge(err):
		return invalid("%v", err)
	case m.c.Unknown(err):
		return refuse(grpcerr.OutcomeUnknown, nil, "it is not known whether the change was made (%v); ask again with the same request id", err)
	default:
		return m.c.NotLeader()
	}
}
