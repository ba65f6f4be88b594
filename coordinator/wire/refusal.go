package wire

import (
	"strconv"

	"google.golang.org/grpc/codes"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
)

// Drained is why a generation was closed that has come to the end of a drain.
const Drained = "drained: the last epoch is proven"

// Code is the one place that says which status code a reason travels under.
func Code(reason string) codes.Code {
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

// Refusal is the status of a command that was not applied; nil when it was.
func Refusal(r ledger.Result) error {
	if r.OK() {
		return nil
	}
	reasons := map[ledger.Refusal]string{
		ledger.NotFound: grpcerr.NotFound, ledger.Stale: grpcerr.Stale, ledger.FencedOff: grpcerr.Fenced,
		ledger.HaltedScope: grpcerr.Halted, ledger.NotDesired: grpcerr.NotDesired, ledger.Backoff: grpcerr.Backoff,
		ledger.TooOld: grpcerr.TooOld, ledger.TooNew: grpcerr.TooNew, ledger.Contradicts: grpcerr.Contradicts,
		ledger.Busy: grpcerr.Busy, ledger.Invalid: grpcerr.Invalid, ledger.Unsupported: grpcerr.Unsupported,
	}
	reason := reasons[r.Refusal]
	var meta map[string]string
	if r.RetryAt != 0 {
		meta = map[string]string{grpcerr.MetaRetryAt: strconv.FormatInt(r.RetryAt, 10)}
	}
	return grpcerr.New(Code(reason), reason, r.Text, meta)
}
