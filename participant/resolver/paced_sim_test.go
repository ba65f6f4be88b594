package resolver

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// group is a coordinator group that answers as a test says, and has nothing to say of what is listed.
type group struct {
	unisinkv1.ResolutionClient
	list  func(after string) (*unisinkv1.ListDutiesResponse, error)
	prove func() error
}

func (g group) ListDuties(_ context.Context, q *unisinkv1.ListDutiesRequest, _ ...grpc.CallOption) (*unisinkv1.ListDutiesResponse, error) {
	return g.list(q.GetAfter())
}

func (g group) Prove(context.Context, *unisinkv1.ProveRequest, ...grpc.CallOption) (*unisinkv1.ProveResponse, error) {
	return &unisinkv1.ProveResponse{}, g.prove()
}

func (g group) Report(context.Context, *unisinkv1.ReportRequest, ...grpc.CallOption) (*unisinkv1.ReportResponse, error) {
	return &unisinkv1.ReportResponse{}, nil
}

// willing is a resource that commits whatever it is told to, and holds nothing.
type willing struct{ identity string }

func (w willing) Describe(context.Context) (participant.Description, error) {
	return participant.Description{Kind: "memory", Identity: w.identity, CanList: true}, nil
}

func (willing) Commit(context.Context, participant.Handle) (participant.Proof, error) {
	return participant.Proof{Verdict: participant.Committed, Evidence: "seen"}, nil
}

func (willing) Rollback(context.Context, participant.Handle) (participant.Proof, error) {
	return participant.Proof{Verdict: participant.RolledBack, Evidence: "seen"}, nil
}

func (willing) Inspect(context.Context, participant.Handle) (participant.State, error) { return 0, nil }

func (willing) List(context.Context, participant.Namespace) ([]participant.Listed, error) {
	return nil, nil
}

func (willing) Close() error { return nil }

// committed is a duty by hand in a resource of that identity.
func committed(txn int, identity string) *unisinkv1.Duty {
	return &unisinkv1.Duty{
		Branch:  &unisinkv1.BranchRef{Txn: strconv.Itoa(txn), Resource: "out"},
		Handle:  &unisinkv1.Handle{Kind: "memory", Version: 1, Identity: identity, Name: strconv.Itoa(txn)},
		Outcome: unisinkv1.Outcome_OUTCOME_COMMITTED,
	}
}

// resolving runs a resolver of one resource, "mine", in virtual time, as long as f does.
func resolving(t *testing.T, g group, poll time.Duration, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cl, err := participant.NewClient(participant.ClientConfig{Coordinators: []string{"nobody:1"}}) // it is not asked
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{Client: cl, Poll: poll, Resources: []Resource{{Name: "out", Finisher: willing{"mine"}}}})
		if err != nil {
			t.Fatal(err)
		}
		r.calls = g
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		f(t)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Of many pages by hand some are all of resources that others reach. Behind such a page the next is asked for at once, and one
// with work of the resolver's own leaves the time between two polls for it.
func TestPagesOfOthersDoNotDelayOnesOwn(t *testing.T) {
	pages := map[string]*unisinkv1.ListDutiesResponse{
		"":  {Duties: []*unisinkv1.Duty{committed(1, "theirs"), {Branch: &unisinkv1.BranchRef{Txn: "2", Resource: "theirs"}}}, Next: "a"},
		"a": {Next: "b"},
		"b": {Duties: []*unisinkv1.Duty{committed(3, "mine")}, Next: "c"},
		"c": {Next: "d"},
		"d": {Duties: []*unisinkv1.Duty{{Branch: &unisinkv1.BranchRef{Txn: "4", Resource: "out"}}}, Next: "e"}, // announced alone
		"e": {},
	}
	type question struct {
		after string
		in    time.Duration // since the first
	}
	var asked []question
	var first time.Time
	g := group{
		list: func(after string) (*unisinkv1.ListDutiesResponse, error) {
			if len(asked) == 0 {
				first = time.Now()
			}
			asked = append(asked, question{after, time.Since(first)})
			return pages[after], nil
		},
		prove: func() error { return nil },
	}
	const polled = 10 * time.Second
	resolving(t, g, polled, func(*testing.T) { time.Sleep(5 * polled) })
	want := []question{{"", 0}, {"a", 0}, {"b", 0}, {"c", polled}, {"d", polled}, {"e", 2 * polled}, {"", 3 * polled}}
	if n := min(len(asked), len(want)); !slices.Equal(asked[:n], want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
}

// A group that lists duties and takes no proof, for want of a disk for instance, is not asked for each at every poll: the pauses
// grow. Those that have grown while nobody answered at all are over when somebody does.
func TestPausesGrowWhileAnswersComeAndEndWithASilence(t *testing.T) {
	var mu sync.Mutex // guards the rest
	lists, tries := true, 0
	g := group{
		list: func(string) (*unisinkv1.ListDutiesResponse, error) {
			mu.Lock()
			defer mu.Unlock()
			if !lists {
				return nil, route.ErrUnreachable
			}
			return &unisinkv1.ListDutiesResponse{Duties: []*unisinkv1.Duty{committed(1, "mine")}}, nil
		},
		prove: func() error {
			mu.Lock()
			defer mu.Unlock()
			tries++
			return route.ErrUnreachable
		},
	}
	resolving(t, g, time.Second, func(t *testing.T) {
		during := func(d time.Duration) int {
			mu.Lock()
			tries = 0
			mu.Unlock()
			time.Sleep(d) // virtual
			mu.Lock()
			defer mu.Unlock()
			return tries
		}
		if n := during(10 * time.Minute); n < 20 || n > 40 {
			t.Errorf("a proof was tried %d times in 10 minutes, want 8 times and then each 30 s", n)
		}
		answers := func(yes bool) {
			mu.Lock()
			defer mu.Unlock()
			lists = yes
		}
		answers(false)
		if n := during(10 * time.Minute); n < 15 || n > 40 {
			t.Errorf("a proof was tried %d times in 10 minutes without an answer", n)
		}
		answers(true)
		if n := during(2 * time.Second); n < 1 {
			t.Error("once there are answers again it is not tried at once")
		}
		if n := during(10 * time.Minute); n > 40 {
			t.Errorf("after that it was tried %d times in 10 minutes", n)
		}
	})
}
