package grpcerr

import (
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain stands in every ErrorInfo of ours.
const Domain = "unisink"

// The reasons. Each says what the caller can do about it.
const (
	// NotLeader: this node does not lead; the call had no effect. MetaLeader names who does.
	NotLeader = "NOT_LEADER"
	// MemberAlive: a living process holds the member's name (MetaMember, MetaInstance).
	MemberAlive = "MEMBER_ALIVE"
	// Fenced: the caller belongs to an older generation or is not the generation's instance. Final.
	Fenced = "FENCED"
	// Closed: the generation named is closed; MetaGeneration and MetaFinal say which and where it ended.
	Closed = "CLOSED"
	// NotFound: nothing of that name is known.
	NotFound = "NOT_FOUND"
	// Invalid: the request breaks a rule on its face and never succeeds as it is.
	Invalid = "INVALID"
	// Halted: the scope is halted; a person must resume it.
	Halted = "HALTED"
	// ChangedSpecification: the caller runs another specification than the pipeline's.
	ChangedSpecification = "CHANGED_SPECIFICATION"
	// ChangedResource: a resource or input of the caller is another one than the scope knows under its name.
	ChangedResource = "CHANGED_RESOURCE"
	// OutcomeUnknown: the change may or may not have been made; ask again with the same request id.
	OutcomeUnknown = "OUTCOME_UNKNOWN"
	// Stale: the state that the request names is not the one found; read again, then decide.
	Stale = "STALE"
	// Busy: something is open, unproven or owed that must end first.
	Busy = "BUSY"
	// NotDesired: the pipeline is not wanted to run.
	NotDesired = "NOT_DESIRED"
	// Backoff: too early after generations that decided nothing; MetaRetryAt says until when.
	Backoff = "BACKOFF"
	// TooOld: the hand-run id is below the floor and has no record; no verdict is given.
	TooOld = "TOO_OLD"
	// TooNew: the hand-run id lies too far ahead of the leader's clock.
	TooNew = "TOO_NEW"
	// Contradicts: it is decided the other way.
	Contradicts = "CONTRADICTS"
	// LeaseLost: the member was silent for its whole lease and its generation is being closed; attach again.
	LeaseLost = "LEASE_LOST"
	// Slow: the member did not read its orders; attach again.
	Slow = "SLOW"
	// RateLimited: the caller asks more than it may; nothing was done. RetryAfter says when to ask again.
	RateLimited = "RATE_LIMITED"
	// NotAllowed: the caller's certificate gives no role that may do this; the text names one that may.
	NotAllowed = "NOT_ALLOWED"
	// Distrusted: the certificate that the connection began with has ended, or its authority is trusted no
	// longer; connect again.
	Distrusted = "DISTRUSTED"
	// Unsupported: the group's feature level does not allow it.
	Unsupported = "UNSUPPORTED"
)

// The facts that a reason may carry.
const (
	// MetaLeader is the leader's client address; "" when none is known.
	MetaLeader = "leader"
	// MetaNoGroup is there, with NotLeader, when the node belongs to no group yet.
	MetaNoGroup = "no_group"
	// MetaMember and MetaInstance name the member's holder.
	MetaMember   = "member"
	MetaInstance = "instance"
	// MetaGeneration is the scope's newest generation.
	MetaGeneration = "generation"
	// MetaFinal is the last decided n of that generation.
	MetaFinal = "final"
	// MetaRetryAt is Unix milliseconds.
	MetaRetryAt = "retry_at_ms"
)

// HeaderLeader is the header of an answer that a node had from the leader and handed on: the leader's client address.
const HeaderLeader = "unisink-leader"

// longest message, bytes. It goes back in the trailers of the answer, twice, which clients bound, some at 8 KiB.
const longest = 2 << 10

// fitting is a message as a status can carry it. One that is no UTF-8 would cost the status its details.
func fitting(msg string) string {
	if len(msg) > longest {
		msg = msg[:longest] + " …"
	}
	return strings.ToValidUTF8(msg, "?")
}

// New makes the error that a gRPC handler returns: a status with an ErrorInfo. The map is
// copied into the status. A message that is too long for the wire is cut.
func New(code codes.Code, reason, msg string, meta map[string]string) error {
	msg = fitting(msg)
	st, err := status.New(code, msg).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: Domain, Metadata: meta})
	if err != nil { // only for code OK or a detail that does not encode
		return status.Error(code, msg)
	}
	return st.Err()
}

// NewRateLimited is New for a caller that asks too much, with the wait after which it is its turn.
func NewRateLimited(msg string, wait time.Duration) error {
	msg = fitting(msg)
	st, err := status.New(codes.ResourceExhausted, msg).WithDetails(
		&errdetails.ErrorInfo{Reason: RateLimited, Domain: Domain}, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil { // only for a detail that does not encode
		return status.Error(codes.ResourceExhausted, msg)
	}
	return st.Err()
}

// RetryAfter returns how long the sender of an error asks its caller to wait; false when it does
// not say.
func RetryAfter(err error) (time.Duration, bool) {
	st, ok := status.FromError(err)
	if !ok || err == nil {
		return 0, false
	}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			return max(0, info.GetRetryDelay().AsDuration()), true
		}
	}
	return 0, false
}

// Reason returns the reason and the facts of an error that New made, here or on the other
// side of the wire, wrapped or not; "" and nil when err carries none of ours.
func Reason(err error) (string, map[string]string) {
	st, ok := status.FromError(err)
	if !ok || err == nil {
		return "", nil
	}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return info.GetReason(), info.GetMetadata()
		}
	}
	return "", nil
}
