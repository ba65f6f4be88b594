package app

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/route"
)

func TestErrorsBecomeExitCodesInOnePlace(t *testing.T) {
	reason := func(r string) error { return grpcerr.New(codes.FailedPrecondition, r, "why", nil) }
	for _, c := range []struct {
		err  error
		want Code
	}{
		{errors.New("x"), CodeFailed},
		{usagef("x"), CodeUsage},
		{fmt.Errorf("in: %w", failf(CodeHuman, "x")), CodeHuman},
		{errors.Join(usagef("x"), errors.New("y")), CodeUsage},
		{context.DeadlineExceeded, CodeDeadline},
		{fmt.Errorf("a: %w: b", route.ErrUnreachable), CodeNoLeader},
		{fmt.Errorf("a: %w: b", route.ErrNotLeader), CodeNoLeader},
		{fmt.Errorf("%w: %w", route.ErrUnreachable, route.ErrForeignNode), CodeNotAllowed},
		{fmt.Errorf("%w: %w", route.ErrUnreachable, route.ErrForeignCaller), CodeNotAllowed},
		{&route.NotLeaderError{Node: "a", Err: reason(grpcerr.NotLeader)}, CodeNoLeader},
		{fmt.Errorf("a: %w", participant.ErrMemberAlive), CodeRefused},
		{fmt.Errorf("a: %w", participant.ErrFenced), CodeRefused},
		{fmt.Errorf("a: %w", participant.ErrMisconfigured), CodeUsage},
		{reason(grpcerr.Halted), CodeHuman},
		{reason(grpcerr.NotFound), CodeNotFound},
		{fmt.Errorf("a: %w", reason(grpcerr.Busy)), CodeRefused},
		{reason("OF_THE_FUTURE"), CodeRefused}, // by its status code
		{status.Error(codes.PermissionDenied, "x"), CodeNotAllowed},
		{status.Error(codes.Unauthenticated, "x"), CodeNotAllowed},
		{status.Error(codes.Internal, "x"), CodeFailed},
		{status.Error(codes.Unavailable, "x"), CodeNoLeader},
	} {
		if got := codeOf(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

// A reason without an exit code would end as success.
func TestEveryReasonHasAnExitCode(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../internal/grpcerr/grpcerr.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	upper := regexp.MustCompile(`^[A-Z_]+$`)
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		lit, ok := node.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		reason, err := strconv.Unquote(lit.Value)
		if err != nil || !upper.MatchString(reason) {
			return true
		}
		n++
		if code, known := reasonCodes[reason]; !known || code == CodeOK {
			t.Errorf("reason %s has no exit code", reason)
		}
		return true
	})
	if n < 15 {
		t.Errorf("only %d reasons found", n)
	}
}

func TestASentenceIsOneLineInAPersonsWords(t *testing.T) {
	refused := grpcerr.New(codes.NotFound, grpcerr.NotFound, "there is no pipeline x", nil)
	for _, c := range []struct {
		err  error
		want string
	}{
		{refused, "there is no pipeline x"},
		{fmt.Errorf("declare: %w", refused), "declare: there is no pipeline x"},
		{fmt.Errorf("%w: %w", errors.New("refused"), refused), "refused: there is no pipeline x"},
		{errors.Join(errors.New("one"), errors.New("two")), "one; two"},
		{status.Error(codes.Canceled, "gone\r\nfar"), "gone; far"},
		{errors.New("plain"), "plain"},
	} {
		got := sentence(c.err)
		if got != c.want || strings.Contains(got, "rpc error") || strings.ContainsAny(got, "\n\r") {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
