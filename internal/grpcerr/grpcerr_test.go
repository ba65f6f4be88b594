package grpcerr_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/internal/grpcerr"
)

func TestReasonSurvivesWrappingAndKeepsItsFacts(t *testing.T) {
	err := grpcerr.New(codes.FailedPrecondition, grpcerr.NotLeader, "node b does not lead; ask a", map[string]string{grpcerr.MetaLeader: "a:7000"})
	for _, e := range []error{err, fmt.Errorf("attach: %w", err)} {
		reason, meta := grpcerr.Reason(e)
		if reason != grpcerr.NotLeader || meta[grpcerr.MetaLeader] != "a:7000" {
			t.Fatalf("Reason(%v) = %q, %v", e, reason, meta)
		}
		if status.Code(e) != codes.FailedPrecondition {
			t.Fatalf("code of %v is %s", e, status.Code(e))
		}
	}
}

func TestReasonOfForeignErrorsIsEmpty(t *testing.T) {
	for _, e := range []error{nil, errors.New("x"), status.Error(codes.Unavailable, "gone")} {
		if reason, meta := grpcerr.Reason(e); reason != "" || meta != nil {
			t.Fatalf("Reason(%v) = %q, %v", e, reason, meta)
		}
	}
}

func TestACallerThatAsksTooMuchIsToldWhenItIsItsTurn(t *testing.T) {
	err := fmt.Errorf("ask: %w", grpcerr.NewRateLimited("wait", 1500*time.Millisecond))
	reason, _ := grpcerr.Reason(err)
	if wait, told := grpcerr.RetryAfter(err); !told || wait != 1500*time.Millisecond || reason != grpcerr.RateLimited || status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("%v: wait %s (told %t), reason %q, code %s", err, wait, told, reason, status.Code(err))
	}
	for _, e := range []error{nil, errors.New("x"), status.Error(codes.ResourceExhausted, "full")} {
		if wait, told := grpcerr.RetryAfter(e); told {
			t.Errorf("RetryAfter(%v) = %s", e, wait)
		}
	}
}
