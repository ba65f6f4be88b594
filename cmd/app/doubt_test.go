package app_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// scribe writes one record into each epoch.
type scribe struct {
	mu   sync.Mutex
	n    int64
	run  participant.Run
	stop context.CancelFunc
	done chan struct{}
}

func (s *scribe) Restore(_ context.Context, r participant.Restore) error {
	s.n = 0
	if len(r.Positions) > 0 {
		s.n = r.Positions[0].Offset
	}
	return nil
}

func (s *scribe) Start(_ context.Context, st participant.Start) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.run, s.stop, s.done = st.Run, cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; {
			select {
			case <-tick.C:
				st.Run.HasWork()
			case <-ctx.Done():
			}
		}
	}()
	return nil
}

func (s *scribe) Barrier(_ context.Context, b participant.Barrier) error {
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		br, err := s.run.Branch(context.Background(), "out")
		if err == nil {
			err = br.(*participanttest.MemoryBranch).Write(fmt.Sprintf("record %d", s.n))
		}
		s.n++
		at := []participant.Position{{Resource: "in", Split: "0", Offset: s.n, LeaderEpoch: -1}}
		if err = errors.Join(err, s.run.Vote(context.Background(), b, participant.Contribution{Positions: at})); err != nil && !errors.Is(err, participant.ErrClosed) {
			s.run.Fail(err)
		}
	}()
	return nil
}

func (s *scribe) Halted(context.Context, string) error {
	s.stop()
	<-s.done
	return nil
}

// said runs the command line and gives back what it printed and its exit code.
func said(g group, node *served, args ...string) (text string, code int) {
	cmd := exec.CommandContext(g.ctx, "unisink", append(args, "-c", node.client)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err.Error(), -1
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// A database administrator rolls back what was decided. The scope is halted and nothing else is; what
// is known, what is lost and what may be done is said; the loss is accepted and the scope goes on.
func TestO6_ABrokenPromiseIsShownAndAPersonDecides(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	node := newServed(t, t.TempDir(), "n1")
	node.start(t, "unisink")
	g := groupOf(t, node)
	g.bootstrap(t, node)
	expect := func(code int, says string, args ...string) string {
		t.Helper()
		text, got := said(g, node, args...)
		if got != code || !strings.Contains(text, says) {
			t.Errorf("unisink %s: exit code %d, want %d with %q:\n%s", strings.Join(args, " "), got, code, says, text)
		}
		return text
	}
	stores := map[string]*participanttest.Store{}
	var strike atomic.Bool
	for _, name := range []string{"struck", "spared"} {
		spec := &unisinkv1.Pipeline{
			Name: name, Fingerprint: "f", Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: 50},
			Members: []*unisinkv1.MemberSpec{{Name: "all", Source: true, Resources: []*unisinkv1.ResourceSpec{{Name: "out", Kind: "memory"}}}},
		}
		if _, err := g.Pipelines().PutPipeline(g.ctx, &unisinkv1.PutPipelineRequest{Meta: g.NewMeta(), Pipeline: spec}); err != nil {
			t.Fatal(err)
		}
		store := participanttest.NewStore(name)
		stores[name] = store
		mem := store.Process()
		if name == "struck" {
			mem.SetHook(func(ctx context.Context, call participanttest.Call, when participanttest.When, _ string) error {
				if call != participanttest.CallCommit || when != participanttest.Before || !strike.CompareAndSwap(true, false) {
					return nil
				}
				admin := store.Process()
				listed, err := admin.List(ctx, participant.Namespace{Name: "demo", Incarnation: 1})
				for _, l := range listed {
					_, rollbackErr := admin.Rollback(ctx, l.Handle)
					err = errors.Join(err, rollbackErr)
				}
				return errors.Join(err, admin.Close())
			})
		}
		member, err := participant.NewMember(participant.MemberConfig{
			Coordinators: []string{node.client}, Pipeline: name, Member: "all", Fingerprint: "f", Resources: map[string]participant.Resource{"out": mem},
		}, &scribe{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(g.ctx)
		ended := make(chan error, 1)
		go func() { ended <- member.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("member of %s: %v", name, err)
			}
		})
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !ok(); pause(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not in time: %s", what)
			}
		}
	}
	visible := func(name string) int { return len(stores[name].Records()) }
	until("both pipelines run", func() bool { return visible("struck") > 3 && visible("spared") > 3 })
	expect(0, "running", "participant", "list", "--pipeline", "struck")
	expect(5, "there is no pipeline", "participant", "list", "--pipeline", "nosuch")
	expect(6, "has lost nothing", "pipeline", "accept-loss", "struck", "--why", "x")
	expect(5, "there is no scope struck/7", "pipeline", "accept-loss", "struck/7", "--why", "x")
	expect(5, "there is no scope struck/7", "pipeline", "resume", "struck/7", "--why", "x")
	expect(2, "an epoch's is written like orders/0@7.12", "txn", "resolve", "struck/0/1.1", "--force", "accept-loss", "--branch", "all/out", "--why", "x")

	strike.Store(true)
	until("the broken promise is known", func() bool {
		r, err := g.Pipelines().GetPipeline(g.ctx, &unisinkv1.GetPipelineRequest{Name: "struck"})
		return err == nil && r.GetScopes()[0].GetHalted() != ""
	})
	before := visible("spared")
	until("the other pipeline goes on", func() bool { return visible("spared") > before+3 })
	expect(11, "struck/0        branch all/out of epoch", "pipeline", "list")

	lost := lostEpoch(t, g)
	id := "struck/0@" + lost
	text := expect(11, "is proven rolled back", "txn", "show", id)
	for _, choice := range []string{"pipeline resume struck/0", "pipeline accept-loss struck/0", "pipeline rewind struck/0"} {
		if !strings.Contains(text, choice) {
			t.Errorf("it does not say %q:\n%s", choice, text)
		}
	}
	expect(11, "NEEDS A PERSON", "txn", "list", "--in-doubt")
	expect(6, "is committed, which nothing can change", "txn", "abort", id, "--why", "it is not there anyway")
	expect(2, "--why must be given", "txn", "resolve", id, "--force", "accept-loss", "--branch", "all/out")
	expect(2, "member/resource", "txn", "resolve", id, "--force", "accept-loss", "--branch", "out", "--why", "x")
	cut := expect(0, "struck/0", "epoch", "cut", "struck")
	if strings.Contains(cut, " "+lost+" ") {
		t.Errorf("the cut goes past a loss that nobody accepted:\n%s", cut)
	}
	expect(0, lost+" all/out", "pipeline", "accept-loss", "struck", "--why", "the administrator did it", "-o", "json")
	expect(0, "accept-loss by cli: the administrator did it", "txn", "show", id)
	expect(0, "", "txn", "list", "--in-doubt")
	at := visible("struck")
	until("the scope goes on", func() bool { return visible("struck") > at+3 })
	expect(6, "has lost nothing", "pipeline", "accept-loss", "struck", "--why", "x")

	// Resumed first and accepted later, while it runs: nothing is left to be resumed, and that is no refusal.
	strike.Store(true)
	until("the second broken promise is known", func() bool {
		r, err := g.Pipelines().GetPipeline(g.ctx, &unisinkv1.GetPipelineRequest{Name: "struck"})
		return err == nil && r.GetScopes()[0].GetHalted() != ""
	})
	expect(0, "struck/0", "pipeline", "resume", "struck", "--why", "it is looked at later")
	expect(0, " all/out", "pipeline", "accept-loss", "struck", "--why", "looked", "-o", "json")
	expect(6, "has lost nothing", "pipeline", "accept-loss", "struck", "--why", "x")
}

// lostEpoch is the epoch whose branch is proven rolled back.
func lostEpoch(t *testing.T, g group) string {
	t.Helper()
	r, err := g.Pipelines().ListEpochs(g.ctx, &unisinkv1.ListEpochsRequest{Scope: &unisinkv1.Scope{Pipeline: "struck"}, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range r.GetEpochs() {
		for _, b := range e.GetBranches() {
			if b.GetProof().GetVerdict() == unisinkv1.Verdict_VERDICT_ROLLED_BACK {
				return fmt.Sprintf("%d.%d", e.GetEpoch().GetGeneration(), e.GetEpoch().GetN())
			}
		}
	}
	t.Fatal("no epoch has lost a branch")
	return ""
}
