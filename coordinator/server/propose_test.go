package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// proposing counts what would stand in the log of every node.
type proposing struct {
	aboutNow
	entries *int
}

func (p proposing) Propose(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	*p.entries++
	return p.aboutNow.Propose(ctx, c)
}

// A command that is refused for its own size would grow the log all the same.
func TestALongRequestIDOrActorIsRefusedBeforeItIsWritten(t *testing.T) {
	long := strings.Repeat("x", ledger.MaxInstance+1)
	for name, c := range map[string]struct {
		meta    *unisinkv1.Meta
		want    codes.Code
		entries int
	}{
		"request id": {&unisinkv1.Meta{RequestId: long, Actor: "a"}, codes.InvalidArgument, 0},
		"actor":      {&unisinkv1.Meta{RequestId: "r", Actor: long}, codes.InvalidArgument, 0},
		"neither":    {&unisinkv1.Meta{RequestId: long[1:], Actor: long[1:]}, codes.OK, 1},
	} {
		entries := 0
		node := proposing{aboutNow{shown{m: doubtful(t, 0)}}, &entries}
		s := &transactions{s: &Server{c: Config{Node: node, HandTimeout: time.Minute}}}
		_, err := s.Begin(t.Context(), &unisinkv1.BeginRequest{
			Meta: c.meta, Txn: "00000000-03e8-7000-8000-0000000000ff", Branches: []*unisinkv1.HandBranch{{Resource: "out"}},
		})
		if status.Code(err) != c.want || entries != c.entries {
			t.Errorf("%s: %v with %d entries, want %v with %d", name, err, entries, c.want, c.entries)
		}
	}
}
