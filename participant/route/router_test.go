package route_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// node answers Outcome as a test says.
type node struct {
	unisinkv1.UnimplementedTransactionsServer
	net    *bufconn.Listener
	server *grpc.Server

	mu     sync.Mutex
	asked  int
	answer func(ctx context.Context) error
}

func (n *node) Outcome(ctx context.Context, _ *unisinkv1.OutcomeRequest) (*unisinkv1.OutcomeResponse, error) {
	n.mu.Lock()
	n.asked++
	answer := n.answer
	n.mu.Unlock()
	if err := answer(ctx); err != nil {
		return nil, err
	}
	return &unisinkv1.OutcomeResponse{Outcome: unisinkv1.Outcome_OUTCOME_COMMITTED}, nil
}

func (n *node) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

func leads(context.Context) error { return nil }

func follows(leader string) func(context.Context) error {
	return func(context.Context) error {
		return grpcerr.New(codes.FailedPrecondition, grpcerr.NotLeader, "not me", map[string]string{grpcerr.MetaLeader: leader})
	}
}

// handsOn is a node that answers with what it had from the leader.
func handsOn(leader string) func(context.Context) error {
	return func(ctx context.Context) error {
		return grpc.SetHeader(ctx, metadata.Pairs(grpcerr.HeaderLeader, leader))
	}
}

// silent is a node that takes calls and never answers.
func silent(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

type network map[string]*node

func newNetwork(t *testing.T, answers map[string]func(context.Context) error) network {
	n := network{}
	for addr, answer := range answers {
		x := &node{net: bufconn.Listen(1 << 16), server: grpc.NewServer(), answer: answer}
		unisinkv1.RegisterTransactionsServer(x.server, x)
		go func() { _ = x.server.Serve(x.net) }() // ends with Stop
		t.Cleanup(x.server.Stop)
		n[addr] = x
	}
	return n
}

func (n network) dial(ctx context.Context, addr string) (net.Conn, error) {
	x := n[addr]
	if x == nil {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	return x.net.DialContext(ctx)
}

func (n network) router(t *testing.T, addresses []string, opts ...route.Option) *route.Router {
	t.Helper()
	r, err := route.NewRouter(addresses, append(opts, route.WithDial(n.dial))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func ask(ctx context.Context, r *route.Router) error {
	_, err := unisinkv1.NewTransactionsClient(r).Outcome(ctx, &unisinkv1.OutcomeRequest{})
	return err
}

func TestAHintIsFollowedAtOnceAndRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, map[string]func(context.Context) error{"a:1": follows("c:1"), "b:1": follows("c:1"), "c:1": leads})
		r := n.router(t, []string{"a:1", "b:1"}) // c is learnt
		begun := time.Now()
		for range 3 {
			if err := ask(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("a hint was followed after %s", waited)
		}
		if n["a:1"].count() != 1 || n["c:1"].count() != 3 || r.Leader() != "c:1" {
			t.Errorf("a was asked %d times, c %d times; leader %q", n["a:1"].count(), n["c:1"].count(), r.Leader())
		}
	})
}

func TestTheLeaderIsAskedOnceAFollowerHasHandedACallOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, map[string]func(context.Context) error{"a:1": handsOn("c:1"), "c:1": leads})
		r := n.router(t, []string{"a:1"})
		for range 10 {
			if err := ask(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the connection is made behind the caller's back
		}
		if n["a:1"].count() != 2 || n["c:1"].count() != 8 || r.Leader() != "c:1" {
			t.Errorf("a was asked %d times, c %d times; leader %q", n["a:1"].count(), n["c:1"].count(), r.Leader())
		}
	})
}

func TestALeaderThatCannotBeReachedIsAskedThroughItsFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, map[string]func(context.Context) error{"a:1": handsOn("far:1")})
		r := n.router(t, []string{"a:1"})
		begun := time.Now()
		for range 10 {
			if err := ask(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if waited := time.Since(begun); waited > 0 || n["a:1"].count() != 10 || r.Leader() != "a:1" {
			t.Errorf("waited %s; a was asked %d times; leader %q", waited, n["a:1"].count(), r.Leader())
		}
	})
}

func TestAStaleHintDoesNotTrapTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, map[string]func(context.Context) error{"a:1": follows("dead:1"), "b:1": leads})
		r := n.router(t, []string{"a:1", "b:1"})
		if err := ask(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if r.Leader() != "b:1" {
			t.Errorf("leader %q", r.Leader())
		}
	})
}

func TestNodesThatNameEachOtherAreNotAskedAtFullSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, map[string]func(context.Context) error{"a:1": follows("b:1"), "b:1": follows("a:1")})
		r := n.router(t, []string{"a:1", "b:1"}, route.WithPatience(10*time.Second))
		err := ask(t.Context(), r)
		if !errors.Is(err, route.ErrNotLeader) || !strings.Contains(err.Error(), "a:1 (names b:1)") {
			t.Errorf("asking: %v", err)
		}
		if asked := n["a:1"].count() + n["b:1"].count(); asked > 150 {
			t.Errorf("asked %d times in 10 s", asked)
		}
	})
}

func TestASilentNodeIsLeftForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, map[string]func(context.Context) error{"a:1": silent, "b:1": leads})
		r := n.router(t, []string{"a:1", "b:1"}, route.WithAttempt(2*time.Second))
		begun := time.Now()
		if err := ask(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begun); waited < 2*time.Second || waited > 3*time.Second {
			t.Errorf("answered after %s", waited)
		}
	})
}

func TestWhenNobodyAnswersTheErrorNamesEveryAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := network{}.router(t, []string{"a:1", "b:1"}, route.WithPatience(3*time.Second))
		begun := time.Now()
		err := ask(t.Context(), r)
		if !errors.Is(err, route.ErrUnreachable) {
			t.Fatalf("asking: %v", err)
		}
		for _, part := range []string{"no coordinator answered", "a:1", "b:1", "connection refused"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in %q", part, err)
			}
		}
		if waited := time.Since(begun); waited > 3*time.Second {
			t.Errorf("gave up after %s", waited)
		}
	})
}

func TestTheCallersDeadlineEndsTheSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := network{}.router(t, []string{"a:1"}, route.WithPatience(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := ask(ctx, r)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, route.ErrUnreachable) {
			t.Errorf("asking: %v", err)
		}
	})
}

func TestAnAnswerIsNotTriedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := func(context.Context) error {
			return grpcerr.New(codes.FailedPrecondition, grpcerr.TooOld, "below the floor", nil)
		}
		n := newNetwork(t, map[string]func(context.Context) error{"a:1": refused, "b:1": leads})
		err := ask(t.Context(), n.router(t, []string{"a:1", "b:1"}))
		if reason, _ := grpcerr.Reason(err); reason != grpcerr.TooOld {
			t.Errorf("asking: %v", err)
		}
		if n["b:1"].count() != 0 {
			t.Error("a refusal was taken to another node")
		}
	})
}

func TestWhatMayBeRetried(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want bool
	}{
		"nothing":                      {context.Background(), nil, false},
		"no leader":                    {context.Background(), follows("")(t.Context()), true},
		"gone":                         {context.Background(), status.Error(codes.Unavailable, "gone"), true},
		"too slow":                     {context.Background(), status.Error(codes.DeadlineExceeded, "slow"), true},
		"outcome unknown":              {context.Background(), grpcerr.New(codes.Unavailable, grpcerr.OutcomeUnknown, "?", nil), true},
		"the caller's own end":         {ended, status.Error(codes.Canceled, "ended"), false},
		"an answer":                    {context.Background(), grpcerr.New(codes.NotFound, grpcerr.NotFound, "no", nil), false},
		"an answer with a common code": {context.Background(), grpcerr.New(codes.Unavailable, grpcerr.Busy, "busy", nil), false},
	} {
		if got := route.Retryable(route.Classify(c.ctx, "a:1", c.err)); got != c.want {
			t.Errorf("%s: retryable %t, want %t", name, got, c.want)
		}
	}
}

func TestAddressesAreChecked(t *testing.T) {
	_, err := route.NewRouter([]string{"a", ":1", "b:2"})
	if err == nil || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), `":1"`) || strings.Contains(err.Error(), "b:2") {
		t.Errorf("addresses: %v", err)
	}
}

func TestNodesOfNoGroupAreNotAskedForLong(t *testing.T) {
	fresh := func(context.Context) error {
		return grpcerr.New(codes.FailedPrecondition, grpcerr.NotLeader, "no group yet", map[string]string{grpcerr.MetaNoGroup: "true"})
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, map[string]func(context.Context) error{"a:1": fresh, "b:1": fresh, "c:1": follows("")})
		begun := time.Now()
		err := ask(t.Context(), n.router(t, []string{"a:1", "b:1"}))
		if !errors.Is(err, route.ErrNoGroup) || !errors.Is(err, route.ErrNotLeader) || !strings.Contains(err.Error(), "cluster bootstrap") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %s", took)
		}
		begun = time.Now()
		// One that is in a group may be electing: the whole patience is spent.
		err = ask(t.Context(), n.router(t, []string{"a:1", "b:1", "c:1"}))
		if errors.Is(err, route.ErrNoGroup) || !errors.Is(err, route.ErrNotLeader) || time.Since(begun) < 8*time.Second {
			t.Errorf("got %v after %s", err, time.Since(begun))
		}
	})
}
