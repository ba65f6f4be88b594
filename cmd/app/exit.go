package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/cmd/adapters"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/route"
	"github.com/unisink/unisink/processor/spec"
)

// Code is the exit code of the command line.
type Code int

// The exit codes that scripts may rely on.
const (
	CodeOK         Code = 0
	CodeFailed     Code = 1  // anything without a code of its own
	CodeUsage      Code = 2  // the command line is wrong
	CodeNoLeader   Code = 3  // no coordinator answered, or none leads
	CodeDeadline   Code = 4  // time ran out: the outcome is unknown
	CodeNotFound   Code = 5  // what was named does not exist
	CodeRefused    Code = 6  // refused by the state of things
	CodeNotAllowed Code = 7  // refused by permissions, or for want of trust
	CodeUnhealthy  Code = 10 // looked, and found it not well
	CodeHuman      Code = 11 // halted: a person must decide
)

// coded is an error with the exit code it asks for.
type coded struct {
	code Code
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

func withCode(code Code, err error) error { return &coded{code: code, err: err} }

func failf(code Code, format string, args ...any) error {
	return withCode(code, fmt.Errorf(format, args...))
}

func usagef(format string, args ...any) error { return failf(CodeUsage, format, args...) }

var reasonCodes = map[string]Code{
	grpcerr.NotLeader: CodeNoLeader, grpcerr.OutcomeUnknown: CodeDeadline, grpcerr.NotFound: CodeNotFound,
	grpcerr.Halted: CodeHuman, grpcerr.Invalid: CodeUsage, grpcerr.NotAllowed: CodeNotAllowed, grpcerr.Distrusted: CodeNotAllowed,
	grpcerr.MemberAlive: CodeRefused, grpcerr.Fenced: CodeRefused, grpcerr.Closed: CodeRefused, grpcerr.ChangedSpecification: CodeRefused, grpcerr.ChangedResource: CodeRefused,
	grpcerr.Stale: CodeRefused, grpcerr.Busy: CodeRefused, grpcerr.NotDesired: CodeRefused, grpcerr.Backoff: CodeRefused,
	grpcerr.LeaseLost: CodeRefused, grpcerr.Slow: CodeRefused, grpcerr.RateLimited: CodeRefused,
	grpcerr.TooOld: CodeRefused, grpcerr.TooNew: CodeRefused, grpcerr.Contradicts: CodeRefused, grpcerr.Unsupported: CodeRefused,
}

// codeOf is the one place where errors become exit codes.
func codeOf(err error) Code {
	var c *coded
	if errors.As(err, &c) {
		return c.code
	}
	reason, _ := grpcerr.Reason(err)
	if code, known := reasonCodes[reason]; known {
		return code
	}
	var mistakes spec.Mistakes
	switch {
	case errors.Is(err, adapters.ErrUnreachable):
		return CodeNoLeader
	case errors.Is(err, adapters.ErrNotFound):
		return CodeNotFound
	case errors.As(err, &mistakes):
		return CodeUsage
	case errors.Is(err, participant.ErrMemberAlive), errors.Is(err, participant.ErrFenced):
		return CodeRefused
	case errors.Is(err, participant.ErrUndeterminable):
		return CodeHuman
	case errors.Is(err, participant.ErrMisconfigured):
		return CodeUsage
	case errors.Is(err, route.ErrForeignNode), errors.Is(err, route.ErrForeignCaller):
		return CodeNotAllowed
	case errors.Is(err, route.ErrUnreachable), errors.Is(err, route.ErrNotLeader):
		return CodeNoLeader
	case errors.Is(err, context.DeadlineExceeded):
		return CodeDeadline
	}
	switch status.Code(err) {
	case codes.Unavailable:
		return CodeNoLeader
	case codes.DeadlineExceeded:
		return CodeDeadline
	case codes.NotFound:
		return CodeNotFound
	case codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted:
		return CodeRefused
	case codes.PermissionDenied, codes.Unauthenticated:
		return CodeNotAllowed
	case codes.InvalidArgument:
		return CodeUsage
	default:
		return CodeFailed
	}
}

// sentences are what a person reads of an error: one, or one for each mistake of a specification.
func sentences(err error) []string {
	var mistakes spec.Mistakes
	if !errors.As(err, &mistakes) || len(mistakes) < 2 {
		if text := sentence(err); text != "" {
			return []string{text}
		}
		return nil
	}
	out := make([]string, len(mistakes))
	for i := range mistakes {
		out[i] = sentence(mistakes[i])
	}
	return out
}

// sentence is what a person reads of an error: one line, and a status's own words without gRPC's
// wrapping.
func sentence(err error) string {
	text := err.Error()
	var g interface{ GRPCStatus() *status.Status }
	if errors.As(err, &g) {
		raw := g.GRPCStatus()
		text = strings.ReplaceAll(text, "rpc error: code = "+raw.Code().String()+" desc = ", "")
	}
	return plain(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}
