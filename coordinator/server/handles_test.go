package server

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// unread is a node that was just started and leads, and has not applied its log yet.
type unread struct{ shown }

func (unread) NodeStatus() NodeStatus   { return NodeStatus{ID: "n1", Bootstrapped: true} }
func (unread) Leader() (string, string) { return "n1", "n1:7400" }

// A refusal for good would be taken for the end of the transaction, and its branches rolled back.
func TestANodeThatDoesNotKnowItsGroupYetRefusesNoHandle(t *testing.T) {
	commit := func(m *ledger.Machine) error {
		s := &transactions{s: &Server{c: Config{Node: unread{shown{m: m}}, HandTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}}}
		const txn = "00000000-03e8-7000-8000-0000000000ff"
		return s.ownHandles(t.Context(), &unisinkv1.Meta{}, txn, []*unisinkv1.HandBranch{{
			Resource: "out", Handle: &unisinkv1.Handle{Kind: "memory", Version: 1, Name: "test." + txn + ".out"},
		}})
	}
	if err := commit(ledger.New()); status.Code(err) == codes.InvalidArgument || err == nil || !strings.Contains(err.Error(), "n1") {
		t.Errorf("before the log is applied: %v, want an answer after which the call is made again", err)
	}
	if err := commit(doubtful(t, 0)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
