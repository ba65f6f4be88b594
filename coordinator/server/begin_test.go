package server

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// aboutNow is a node whose leader has this machine's clock.
type aboutNow struct{ shown }

func (a aboutNow) Propose(_ context.Context, c ledger.Command) (ledger.Result, error) {
	c.At = time.Now().UnixMilli()
	r, _ := a.m.Apply(c)
	return r, nil
}

// Counted in nanoseconds a long time-out wraps around: the last but one of these came to half a millisecond.
func TestATimeOutThatIsNoneIsRefusedAndNeverTakenForAnother(t *testing.T) {
	for ms, want := range map[int64]codes.Code{
		-1: codes.InvalidArgument, ledger.MaxDeadline + 1: codes.InvalidArgument, 18446744073710: codes.InvalidArgument, math.MaxInt64: codes.InvalidArgument,
		0: codes.OK, 60_000: codes.OK,
	} {
		s := &transactions{s: &Server{c: Config{Node: aboutNow{shown{m: doubtful(t, 0)}}, HandTimeout: time.Minute}}}
		_, err := s.Begin(t.Context(), &unisinkv1.BeginRequest{
			Txn: "00000000-03e8-7000-8000-0000000000ff", TimeoutMs: ms, Branches: []*unisinkv1.HandBranch{{Resource: "out"}},
		})
		if status.Code(err) != want {
			t.Errorf("%d ms: %v, want %v", ms, err, want)
		}
	}
}

func TestAnAnnouncementOfNothingIsToldWhatIsMissing(t *testing.T) {
	s := &transactions{s: &Server{c: Config{Node: aboutNow{shown{m: doubtful(t, 0)}}, HandTimeout: time.Minute}}}
	for want, branches := range map[string][]*unisinkv1.HandBranch{
		"announces no branch: name the resource": nil,
		"has two branches":                       {{Resource: "out"}, {Resource: "out"}},
	} {
		_, err := s.Begin(t.Context(), &unisinkv1.BeginRequest{Txn: "00000000-03e8-7000-8000-0000000000ff", Branches: branches})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v branches: %v, want %q", branches, err, want)
		}
	}
}

// ahead is a node whose clock was ahead and is set right: entries are stamped with times to come until it has come up.
type ahead struct {
	shown
	by time.Duration
}

func (a ahead) Propose(_ context.Context, c ledger.Command) (ledger.Result, error) {
	c.At = time.Now().Add(a.by).UnixMilli()
	r, _ := a.m.Apply(c)
	r.At = c.At
	return r, nil
}

// A deadline that this node's clock made, and that the log's has passed, is none that the client has chosen.
func TestAnAnnouncementIsTakenWhileTheLogsClockIsAheadOfTheNodes(t *testing.T) {
	m := doubtful(t, 0)
	s := &transactions{s: &Server{c: Config{Node: ahead{shown{m: m}, 2 * time.Minute}, HandTimeout: time.Minute}}}
	for txn, ms := range map[string]int64{"00000000-03e8-7000-8000-0000000000fe": 0, "00000000-03e8-7000-8000-0000000000ff": 10_000} {
		begun := time.Now()
		got, err := s.Begin(t.Context(), &unisinkv1.BeginRequest{Txn: txn, TimeoutMs: ms, Branches: []*unisinkv1.HandBranch{{Resource: "out"}}})
		if err != nil {
			t.Errorf("%d ms: %v", ms, err)
			continue
		}
		if left := time.UnixMilli(got.GetDeadlineUnixMs()).Sub(begun); left < time.Duration(ms)*time.Millisecond || left > 3*time.Minute+time.Second {
			t.Errorf("%d ms: the deadline is in %s", ms, left)
		}
	}
}
