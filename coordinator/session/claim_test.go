package session

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// keep is a copy of the ledger as it is now.
func (w *world) keep() (s ledger.State) {
	w.log.view(func(m *ledger.Machine) { s = m.State() })
	return s
}

// goBack makes the ledger what it was, as emptied or restored disks do.
func (w *world) goBack(s ledger.State) {
	w.t.Helper()
	m, err := ledger.Load(s)
	if err != nil {
		w.t.Fatal(err)
	}
	w.log.mu.Lock()
	w.log.m = m
	w.log.mu.Unlock()
}

func (w *world) halted() (why string) {
	w.log.view(func(m *ledger.Machine) { why = m.Halted(scope0) })
	return why
}

// Promise 5: what was told contradicts what the ledger has, so the ledger has gone back.
func TestLedgerThatHasLostWhatMembersWereToldIsHalted(t *testing.T) {
	for name, c := range map[string]struct {
		empty bool           // the ledger is back before its first generation, else after two epochs
		meet  func(w *world) // once it is
		says  string
	}{
		"its generation is open": {says: "generation 1 is "},
		"its generation is closed": {
			meet: func(w *world) {
				w.admin(ledger.CloseGeneration{Scope: scope0, Generation: 1, Cause: "lease"})
			},
			says: "generation 1 is ",
		},
		"no such generation": {
			empty: true,
			says:  "the ledger has no generation of this scope",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "source", "sink")
				fresh := w.keep()
				robots := w.start("source", "sink")
				w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
				old := w.keep()
				if c.empty {
					old = fresh
				}
				w.within(5*time.Second, "more epochs", func() bool { return w.newest().Final >= 6 })
				opened := w.log.count("OpenGeneration")
				w.fall()
				w.goBack(old)
				if c.meet != nil {
					c.meet(w)
				}
				w.lead()
				w.within(5*time.Second, "halted", func() bool { return w.halted() != "" })
				for _, want := range []string{c.says, "was told that epoch 1.", "the ledger has lost decisions", "resume"} {
					if !strings.Contains(w.halted(), want) {
						t.Errorf("%q is not in the reason: %s", want, w.halted())
					}
				}
				time.Sleep(10 * time.Second)
				if n := w.log.count("OpenGeneration"); n != opened {
					t.Error("a generation was opened all the same")
				}
				// An operator has looked: what those processes were told is no news.
				w.admin(ledger.Resume{Scope: scope0, Why: "looked at"})
				if c.empty {
					for _, r := range robots {
						<-r.gone // of a generation that never was
						r.instance += "-again"
						r.run()
					}
				}
				w.within(10*time.Second, "epochs of the next generation", func() bool { return w.log.count("OpenGeneration") > opened && w.newest().Final > 2 })
				if why := w.halted(); why != "" {
					t.Errorf("halted again: %s", why)
				}
				robots[0].die()
				robots[1].die()
				w.fall()
			})
		})
	}
}

func TestProofOfWhatWasNeverDecidedHalts(t *testing.T) {
	scope := &unisinkv1.Scope{Pipeline: pipelineName}
	for name, say := range map[string]func(ctx context.Context, m *Manager, instance string) error{
		"proven through": func(ctx context.Context, m *Manager, instance string) error {
			_, err := m.Resolved(ctx, &unisinkv1.ResolvedRequest{Scope: scope, Member: "sink", Instance: instance, Generation: 1, ProvenThrough: 7})
			return err
		},
		"single branch": func(ctx context.Context, m *Manager, instance string) error {
			_, err := m.Resolved(ctx, &unisinkv1.ResolvedRequest{Scope: scope, Member: "sink", Instance: instance, Generation: 1, Proofs: []*unisinkv1.BranchProof{{
				Epoch: &unisinkv1.Epoch{Generation: 1, N: 7}, Member: "sink", Resource: "out",
				Proof: &unisinkv1.Proof{Verdict: unisinkv1.Verdict_VERDICT_COMMITTED, Evidence: "manifest"},
			}}})
			return err
		},
		"in a vote": func(ctx context.Context, m *Manager, instance string) error {
			v := yes("sink", 1, 8)
			v.ProvenThrough = 7
			_, err := m.Vote(ctx, &unisinkv1.VoteRequest{Scope: scope, Member: "sink", Instance: instance, Vote: v})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "source", "sink")
				ctx, cancel := context.WithCancel(t.Context())
				source, sink := running(ctx, w)
				// Whoever does not hold the name is not believed.
				if err := say(ctx, w.now(), "x"); err == nil {
					t.Error("a stranger was heard")
				}
				time.Sleep(time.Second)
				if why := w.halted(); why != "" {
					t.Fatalf("a stranger's word halted it: %s", why)
				}
				if reason, _ := grpcerr.Reason(say(ctx, w.now(), "b")); reason != grpcerr.Contradicts {
					t.Errorf("answered with reason %s", reason)
				}
				w.within(5*time.Second, "halted", func() bool { return strings.Contains(w.halted(), "was told that epoch 1.7 was decided") })
				sink.expect("close 1 at 0")
				cancel()
				source.cut()
				sink.cut()
				w.fall()
			})
		})
	}
}

// The halt is proposed until it is in the log, and by the next leader if this one falls.
func TestHaltOfALedgerThatWentBackSurvivesLostProposals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		w.within(5*time.Second, "two epochs", func() bool { return w.newest().Final >= 2 })
		old := w.keep()
		w.within(5*time.Second, "more epochs", func() bool { return w.newest().Final >= 6 })
		opened := w.log.count("OpenGeneration")
		w.fall()
		w.goBack(old)
		w.log.mu.Lock()
		w.log.fault = func(c ledger.Command) (error, bool) {
			if kind(c) == "CloseGeneration" {
				return errUnknown, false
			}
			return nil, false
		}
		w.log.mu.Unlock()
		w.lead()
		time.Sleep(time.Second)
		w.fall()
		w.lead()
		time.Sleep(10 * time.Second)
		w.log.mu.Lock()
		w.log.fault = nil
		w.log.mu.Unlock()
		w.within(10*time.Second, "halted", func() bool { return strings.Contains(w.halted(), "has lost decisions") })
		if n := w.log.count("OpenGeneration"); n != opened {
			t.Error("a generation was opened meanwhile")
		}
		robots[0].die()
		robots[1].die()
		w.fall()
	})
}

func TestRestartOnAnotherResourceIsRefusedByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "all")
		ctx, cancel := context.WithCancel(t.Context())
		with := func(instance, out, in string) *unisinkv1.AttachRequest {
			req := attachRequest("all", instance)
			req.Resources[0].Identity = out
			req.Resources = append(req.Resources, &unisinkv1.ResourceInfo{Name: "in", Kind: "memory", Identity: in})
			return req
		}
		l := w.attach(with("a", "dir-1", "src-1"), 100)
		l.renew(ctx, true)
		l.expect("welcome")
		l.expect("restore 1")
		if err := l.ready(1); err != nil {
			t.Fatal(err)
		}
		l.expect("start 1")
		time.Sleep(2 * time.Second)
		resp, err := w.now().Decide(ctx, &unisinkv1.DecideRequest{Vote: &unisinkv1.VoteRequest{Scope: scopeOnWire(), Member: "all", Instance: "a", Vote: yes("all", 1, 1)}})
		if err != nil || resp.GetOutcome() != unisinkv1.Outcome_OUTCOME_COMMITTED {
			t.Fatalf("%v, %v", resp, err)
		}
		cancel()
		l.cut()
		for _, c := range []struct{ out, in, want string }{
			{"dir-2", "src-1", `resource "out" of member all is "dir-2", scope orders/0 knows it as "dir-1"`},
			{"dir-1", "src-2", `resource "in" of member all is "src-2", scope orders/0 knows it as "src-1"`},
		} {
			l := w.attach(with("b", c.out, c.in), 100)
			l.ended(grpcerr.ChangedResource)
			if got := message(l.err); !strings.Contains(got, c.want) || !strings.Contains(got, "allow the changed resource") {
				t.Errorf("refused with: %s", got)
			}
		}
		// Allowed, it waits for the proof of what lies in the old one.
		req := with("c", "dir-2", "src-2")
		req.AllowChangedResources = true
		l = w.attach(req, 100)
		l.expect("welcome")
		for got := ""; !strings.Contains(got, "what was decided in the old one is not proven yet"); {
			if got = describe(l.next()); strings.HasPrefix(got, "restore") {
				t.Fatal("opened before the old resource was proven")
			}
		}
		w.admin(ledger.Resolve{
			Txn: ledger.EpochTxn(scope0, ledger.Epoch{Generation: 1, N: 1}), Branch: ledger.BranchID{Member: "all", Resource: "out"},
			Proof: ledger.Proof{Verdict: ledger.ProvenCommitted, Evidence: "manifest"},
		})
		l.expect("restore 2 from 1.1")
		l.cut()
		// Unknown is not checked, and what was allowed is what counts from now on.
		again := w.attach(with("d", "", ""), 100)
		again.expect("welcome")
		again.cut()
		w.fall()
	})
}

func TestTroubleOfAMemberIsShownUntilItPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		ctx, cancel := context.WithCancel(t.Context())
		source, sink := w.attach(attachRequest("source", "a"), 100), w.attach(attachRequest("sink", "b"), 100)
		source.expect("welcome")
		sink.expect("welcome")
		source.expect("restore 1")
		sink.expect("restore 1")
		source.renew(ctx, false)
		say := func(trouble string) Status {
			_, err := w.now().Renew(ctx, &unisinkv1.RenewRequest{Scope: scopeOnWire(), Member: "sink", Instance: "b", Generation: 1, Trouble: trouble})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return w.now().Status(scope0)
		}
		const full = `resource "out": tries to open since 00:00:01 UTC: no space left on device`
		st := say(full)
		if got := st.Members[1].WaitingFor; got != full {
			t.Errorf("the member waits for %q", got)
		}
		if !strings.Contains(st.WaitingFor, "to be ready in generation 1; member sink: "+full) {
			t.Errorf("the scope waits for %q", st.WaitingFor)
		}
		if st = say(""); strings.Contains(st.WaitingFor, "no space") || strings.Contains(st.Members[1].WaitingFor, "no space") {
			t.Errorf("passed, and still shown: %+v", st)
		}
		for _, l := range []*link{source, sink} {
			if err := l.ready(1); err != nil {
				t.Fatal(err)
			}
			defer l.cut()
		}
		source.expect("waiting")
		sink.expect("start 1")
		if st = say(full); st.Members[1].WaitingFor != full || st.WaitingFor != "member sink: "+full {
			t.Errorf("while it runs: %q, %q", st.Members[1].WaitingFor, st.WaitingFor)
		}
		if st = say(strings.Repeat("x", 5000)); len(st.Members[1].WaitingFor) > ledger.MaxText {
			t.Error("what a member says is kept without bound")
		}
		if st = say(""); st.Members[1].WaitingFor != "" || st.WaitingFor != "" {
			t.Errorf("passed, and still shown: %+v", st)
		}
		cancel()
		w.fall()
	})
}

// P24 with short epochs: others have an epoch decided before the process that meets the poison dies.
func TestP24_ShortEpochsDoNotHideAPoisonRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "source", "sink")
		robots := w.start("source", "sink")
		began := time.Now()
		var last ledger.Generation
		for lives := 1; w.halted() == "" && lives <= 15; lives++ {
			w.within(2*time.Minute, "an epoch, or the halt", func() bool {
				g := w.newest()
				return w.halted() != "" || g.Generation > last && g.Final > 0
			})
			last = w.newest().Generation
			robots[1].die()
			died := time.Now()
			robots[1].instance += "+"
			robots[1].run()
			if lives <= 3 { // who was only killed is back at once
				w.within(time.Second, "the next generation", func() bool { return w.newest().Generation > last })
				t.Logf("life %d: open again after %s", lives, time.Since(died))
			}
		}
		if why := w.halted(); !strings.Contains(why, "10 generations in a row decided nothing or ended within 2 s") {
			t.Errorf("after %s, halted because: %q", time.Since(began), why)
		}
		robots[0].die()
		robots[1].die()
		w.atomic()
		w.fall()
	})
}
