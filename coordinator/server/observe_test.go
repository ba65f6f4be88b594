package server

import (
	"context"
	"log/slog"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/internal/invariant"
)

// call makes one unary call to a handler that panics, and tells how it came back.
func call(t *testing.T, what any) (panicked any, err error) {
	t.Helper()
	defer func() { panicked = recover() }()
	handler := func(context.Context, any) (any, error) { panic(what) }
	_, err = recoverUnary(slog.New(slog.DiscardHandler))(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/x/Y"}, handler)
	return nil, err
}

func TestABrokenInvariantIsNeverAnsweredAndAnyOtherPanicIs(t *testing.T) {
	panicked, err := call(t, "index out of range")
	if panicked != nil || status.Code(err) != codes.Internal {
		t.Errorf("a plain panic: %v, panic %v", err, panicked)
	}
	broken := invariant.Violation{Message: "decided twice"}
	if panicked, err := call(t, broken); panicked != broken {
		t.Errorf("a broken invariant was answered with %v, panic %v", err, panicked)
	}
}
