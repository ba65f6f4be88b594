package grpcerr_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

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

// A caller's own text may stand in a message, and may be of megabytes or no text at all. The reason must arrive all the same.
func TestAMessageOfAnySizeAndBytesKeepsItsReasonOnTheWire(t *testing.T) {
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		msg := map[string]string{"/x/long": strings.Repeat("ä", 4<<20), "/x/bytes": "the name \"\xff\xfe\"", "/x/cut": strings.Repeat("a", 2047) + "ä"}[method]
		return grpcerr.New(codes.InvalidArgument, grpcerr.Invalid, msg, nil)
	}))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithMaxHeaderListSize(16<<10),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, method := range []string{"/x/long", "/x/bytes", "/x/cut"} {
		err := conn.Invoke(t.Context(), method, &errdetails.ErrorInfo{}, &errdetails.ErrorInfo{})
		if reason, _ := grpcerr.Reason(err); reason != grpcerr.Invalid || status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: reason %q, %.200v", method, reason, err)
		}
		if n := len(status.Convert(err).Message()); n == 0 || n > 4<<10 {
			t.Errorf("%s: a message of %d bytes", method, n)
		}
	}
}
