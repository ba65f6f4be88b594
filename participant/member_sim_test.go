package participant_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

func quick() ledger.Settings { return ledger.Settings{EpochInterval: 100, PrepareTimeout: 5000} }

func TestAScopeOfOneCommitsExactlyOnceAndStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, store := newGroup(t, quick(), "solo"), participanttest.NewStore("s")
		p := g.run("solo", store, nil)
		time.Sleep(3 * time.Second)
		g.desire(ledger.Stopping)
		if err := p.wait(t, 5*time.Second); err != nil {
			t.Fatalf("run: %v", err)
		}
		exactlyOnce(t, store, "solo", 250)
		inOrder(t, store)
		if left := store.Prepared(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if epochs := count(store.Trail(), "commit "); epochs < 25 {
			t.Errorf("%d epochs in 3 s of 100 ms", epochs)
		}
	})
}

func TestAScopeOfTwoCommitsExactlyOnceAndStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, store := newGroup(t, quick(), "one", "two"), participanttest.NewStore("s")
		one, two := g.run("one", store, nil), g.run("two", store, nil)
		time.Sleep(3 * time.Second)
		g.desire(ledger.Stopping)
		if err := errors.Join(one.wait(t, 5*time.Second), two.wait(t, 5*time.Second)); err != nil {
			t.Fatalf("run: %v", err)
		}
		exactlyOnce(t, store, "one", 250)
		exactlyOnce(t, store, "two", 250)
		if left := store.Prepared(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if epochs := count(store.Trail(), "commit "); epochs < 50 {
			t.Errorf("%d branches in 3 s of 100 ms", epochs)
		}
	})
}

func TestALeaderChangeRestartsNobody(t *testing.T) {
	for _, members := range [][]string{{"solo"}, {"one", "two"}} {
		t.Run(members[0], func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g, store := newGroup(t, quick(), members...), participanttest.NewStore("s")
				var ps []*process
				for _, name := range members {
					ps = append(ps, g.run(name, store, nil))
				}
				time.Sleep(2 * time.Second)
				generation := g.newest().Generation
				g.kill("a:1")
				time.Sleep(time.Second)
				g.lead("b:1")
				time.Sleep(2 * time.Second)
				g.start("a:1")
				g.lead("a:1") // b:1 is deposed and answers
				time.Sleep(2 * time.Second)
				for _, p := range ps {
					if n := p.restored(); n != 1 {
						t.Errorf("member %s was restored %d times", p.name, n)
					}
				}
				if now := g.newest(); now.Generation != generation || !now.Open {
					t.Errorf("generation %d became %d (open %t)", generation, now.Generation, now.Open)
				}
				g.desire(ledger.Stopping)
				for _, p := range ps {
					if err := p.wait(t, 5*time.Second); err != nil {
						t.Errorf("run: %v", err)
					}
					exactlyOnce(t, store, p.name, 300)
				}
				inOrder(t, store)
			})
		})
	}
}

func TestWithoutACoordinatorAMemberHoldsBackAndGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, store := newGroup(t, quick(), "one", "two"), participanttest.NewStore("s")
		one, two := g.run("one", store, nil), g.run("two", store, nil)
		time.Sleep(2 * time.Second)
		for _, addr := range addresses() {
			g.kill(addr)
		}
		time.Sleep(5 * time.Second) // a lease and more
		before := one.position()
		time.Sleep(time.Minute)
		if after := one.position(); after != before {
			t.Errorf("wrote %d records without a coordinator; want back-pressure", after-before)
		}
		if s := one.member.Status(); s.WaitingFor == "" || s.LeaseLeft > 0 {
			t.Errorf("status without a coordinator: %+v", s)
		}
		if n := count(store.Trail(), "roll back "); n > 0 {
			t.Errorf("%d branches were rolled back without an order", n)
		}
		for _, addr := range addresses() {
			g.start(addr)
		}
		g.lead("c:1")
		time.Sleep(3 * time.Second)
		if one.restored() != 1 || two.restored() != 1 {
			t.Errorf("restored %d and %d times", one.restored(), two.restored())
		}
		g.desire(ledger.Stopping)
		if err := errors.Join(one.wait(t, 5*time.Second), two.wait(t, 5*time.Second)); err != nil {
			t.Fatalf("run: %v", err)
		}
		exactlyOnce(t, store, "one", 250)
		exactlyOnce(t, store, "two", 250)
	})
}

func TestAKilledMemberIsReplacedAndNothingIsLostOrDoubled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, store := newGroup(t, quick(), "one", "two"), participanttest.NewStore("s")
		one, two := g.run("one", store, nil), g.run("two", store, nil)
		for range 5 {
			time.Sleep(777 * time.Millisecond)
			two.kill()
			two = g.run("two", store, nil)
		}
		time.Sleep(3 * time.Second)
		g.desire(ledger.Stopping)
		if err := errors.Join(one.wait(t, 5*time.Second), two.wait(t, 5*time.Second)); err != nil {
			t.Fatalf("run: %v", err)
		}
		exactlyOnce(t, store, "one", 200)
		exactlyOnce(t, store, "two", 200)
		if left := store.Prepared(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if one.restored() < 4 {
			t.Errorf("the survivor was restored %d times", one.restored())
		}
	})
}

func TestAMemberCutOffForLongerThanItsLeaseComesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, store := newGroup(t, quick(), "one", "two"), participanttest.NewStore("s")
		one, two := g.run("one", store, nil), g.run("two", store, nil)
		time.Sleep(2 * time.Second)
		two.wire.cut()
		time.Sleep(10 * time.Second)
		if g.newest().Open {
			t.Error("the generation outlived a member's lease")
		}
		two.wire.heal()
		time.Sleep(5 * time.Second)
		if !g.newest().Open {
			t.Errorf("no new generation: one %+v, two %+v", one.member.Status(), two.member.Status())
		}
		g.desire(ledger.Stopping)
		if err := errors.Join(one.wait(t, 5*time.Second), two.wait(t, 5*time.Second)); err != nil {
			t.Fatalf("run: %v", err)
		}
		exactlyOnce(t, store, "one", 400)
		exactlyOnce(t, store, "two", 400)
		inOrder(t, store)
	})
}

func TestZ3_FencedIsFinal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, store := newGroup(t, quick(), "solo"), participanttest.NewStore("s")
		old := g.run("solo", store, nil)
		time.Sleep(2 * time.Second)
		old.wire.cut()
		time.Sleep(10 * time.Second)
		fresh := g.run("solo", store, nil)
		time.Sleep(5 * time.Second)
		old.wire.heal()
		if err := old.wait(t, 5*time.Second); !errors.Is(err, participant.ErrFenced) {
			t.Fatalf("run of the older process: %v, want fenced", err)
		}
		time.Sleep(time.Second)
		g.desire(ledger.Stopping)
		if err := fresh.wait(t, 5*time.Second); err != nil {
			t.Fatalf("run: %v", err)
		}
		exactlyOnce(t, store, "solo", 300)
	})
}

func TestS2_AProcessToldToGoLeavesAtOnceAndPublishesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, store := newGroup(t, quick(), "one", "two"), participanttest.NewStore("s")
		one, two := g.run("one", store, nil), g.run("two", store, nil)
		time.Sleep(2030 * time.Millisecond)
		before := len(store.Records())
		two.cancel()
		if err := two.wait(t, time.Second); !errors.Is(err, context.Canceled) {
			t.Fatalf("run: %v, want the context's cause", err)
		}
		within(t, 100*time.Millisecond, "the generation is closed", func() bool { return !g.newest().Open })
		for _, r := range store.Records()[before:] {
			if strings.HasPrefix(r, "two-") {
				t.Errorf("%s was published on the way out", r)
			}
		}
		two = g.run("two", store, nil)
		time.Sleep(3 * time.Second)
		g.desire(ledger.Stopping)
		if err := errors.Join(one.wait(t, 5*time.Second), two.wait(t, 5*time.Second)); err != nil {
			t.Fatalf("run: %v", err)
		}
		exactlyOnce(t, store, "one", 250)
		exactlyOnce(t, store, "two", 250)
	})
}

func TestP6_ASinkThatCannotFinishHoldsBackAndKeepsOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, store := newGroup(t, quick(), "one", "two"), participanttest.NewStore("s")
		one, two := g.run("one", store, nil), g.run("two", store, nil)
		time.Sleep(2 * time.Second)
		refuse := errors.New("disk is full")
		two.memory.SetHook(func(_ context.Context, call participanttest.Call, when participanttest.When, _ string) error {
			if call == participanttest.CallCommit && when == participanttest.Before {
				return refuse
			}
			return nil
		})
		time.Sleep(5 * time.Second)
		before := one.position()
		time.Sleep(20 * time.Second)
		if n := one.position() - before; n > 0 {
			t.Errorf("%d records were written while a sink could not finish", n)
		}
		if one.restored() != 1 || two.restored() != 1 {
			t.Errorf("restored %d and %d times", one.restored(), two.restored())
		}
		two.memory.SetHook(nil)
		time.Sleep(8 * time.Second)
		g.desire(ledger.Stopping)
		if err := errors.Join(one.wait(t, 5*time.Second), two.wait(t, 5*time.Second)); err != nil {
			t.Fatalf("run: %v", err)
		}
		exactlyOnce(t, store, "one", 300)
		exactlyOnce(t, store, "two", 300)
		inOrder(t, store)
	})
}

// O5, O7: an error or a lost answer at any call leads to a retry, a no, or a restart; never to a
// record lost or doubled, and never to silence.
func TestO7_AnErrorAtEveryCallIsSurvived(t *testing.T) {
	calls := []participanttest.Call{
		participanttest.CallOpen, participanttest.CallBegin, participanttest.CallPrepare, participanttest.CallDiscard,
		participanttest.CallCommit, participanttest.CallRollback, participanttest.CallList,
	}
	share, least := time.Second, 200 // of the time (virtual), and of the records
	if testing.Short() {
		share, least = time.Second/2, 100 // some fifty epochs are enough for each call to fail often
	}
	for _, call := range calls {
		for when, name := range map[participanttest.When]string{participanttest.Before: "fails", participanttest.After: "O5/loses its answer"} {
			t.Run(name+"/"+string(call), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					g, store := newGroup(t, quick(), "one", "two"), participanttest.NewStore("s")
					one, two := g.run("one", store, nil), g.run("two", store, nil)
					seen := 0
					every3rd := func(_ context.Context, c participanttest.Call, w participanttest.When, _ string) error {
						if c != call || w != when {
							return nil
						}
						if seen++; seen%3 == 0 {
							return nil
						}
						return errors.New("injected")
					}
					two.memory.SetHook(serial(every3rd))
					time.Sleep(4 * share)
					one.kill() // and with it the generation
					one = g.run("one", store, nil)
					time.Sleep(6 * share)
					g.desire(ledger.Stopping)
					if err := errors.Join(one.wait(t, 20*time.Second), two.wait(t, 20*time.Second)); err != nil {
						t.Fatalf("run: %v", err)
					}
					exactlyOnce(t, store, "one", least)
					exactlyOnce(t, store, "two", least)
					inOrder(t, store)
				})
			})
		}
	}
}

func TestACommitProvenRolledBackHaltsTheScope(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, store := newGroup(t, quick(), "solo"), participanttest.NewStore("s")
		p := g.run("solo", store, nil)
		time.Sleep(time.Second)
		thief := store.Process()
		done := false
		p.memory.SetHook(serial(func(ctx context.Context, call participanttest.Call, when participanttest.When, name string) error {
			if call != participanttest.CallCommit || when != participanttest.Before || done {
				return nil
			}
			done = true // somebody rolls it back behind our back
			_, err := thief.Rollback(ctx, participant.Handle{Kind: participanttest.Kind, Version: 1, Identity: "s", Name: name})
			return err
		}))
		halted := func() (why string) {
			g.view(func(m *ledger.Machine) { s, _ := m.Scope(ledger.ScopeID{Pipeline: pipeline}); why = s.Halted })
			return why
		}
		within(t, 3*time.Second, "the scope is halted", func() bool { return halted() != "" })
		within(t, 3*time.Second, "the member waits and says so", func() bool {
			return strings.Contains(p.member.Status().WaitingFor, "halted")
		})
	})
}

func TestWhoCannotTakePartIsTold(t *testing.T) {
	run := func(name string, change func(*participant.MemberConfig), want error, text string) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g, store := newGroup(t, quick(), "solo"), participanttest.NewStore("s")
				g.run("solo", store, nil)
				time.Sleep(time.Second)
				p := g.run("solo", store, change)
				err := p.wait(t, time.Minute)
				if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
					t.Errorf("run: %v; want %v with %q", err, want, text)
				}
			})
		})
	}
	run("no such pipeline", func(c *participant.MemberConfig) { c.Pipeline = "nosuch" }, participant.ErrNoSuchPipeline, "nosuch")
	run("no such member", func(c *participant.MemberConfig) { c.Member = "nobody" }, participant.ErrNoSuchPipeline, "nobody")
	run("a living member's name", func(c *participant.MemberConfig) { c.NoWait = true }, participant.ErrMemberAlive, "solo")
	run("another specification", func(c *participant.MemberConfig) { c.Fingerprint = "f2" }, participant.ErrRefused, "f2")
	run("nobody there", func(c *participant.MemberConfig) { c.Coordinators = []string{"x:1", "y:1"} }, participant.ErrUnreachable, "x:1")
}

func TestASecondProcessWaitsAndSaysForWhom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, store := newGroup(t, quick(), "solo"), participanttest.NewStore("s")
		first := g.run("solo", store, nil)
		time.Sleep(time.Second)
		second := g.run("solo", store, nil)
		time.Sleep(5 * time.Second)
		if w := second.member.Status().WaitingFor; !strings.Contains(w, first.member.Status().Instance) {
			t.Errorf("the second process waits for %q", w)
		}
		first.kill()
		within(t, 2*time.Second, "the second takes over", func() bool { return second.restored() == 1 })
		time.Sleep(time.Second)
		g.desire(ledger.Stopping)
		if err := second.wait(t, 5*time.Second); err != nil {
			t.Fatalf("run: %v", err)
		}
		exactlyOnce(t, store, "solo", 200)
	})
}

// serial makes a hook with state safe for concurrent calls.
func serial(h participanttest.Hook) participanttest.Hook {
	var mu sync.Mutex
	return func(ctx context.Context, call participanttest.Call, when participanttest.When, name string) error {
		mu.Lock()
		defer mu.Unlock()
		return h(ctx, call, when, name)
	}
}
