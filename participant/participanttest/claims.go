package participanttest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
)

// longTime is what no time-out of a transaction takes. Deadlines behind it come from what is written to, which
// deletes by age, decided or not.
const longTime = 24 * time.Hour

// Each claim is tried both ways: what is claimed is there, and what is there is claimed.
func checkClaims(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	began := time.Now()
	branch := b.begin(r, branchName(home, 1, 1), "a")
	vote, err := branch.Prepare(b.ctx)
	if err != nil || vote.Kind != participant.Yes {
		b.Fatalf("prepare: vote %v, reason %v, error %v; want yes", vote.Kind, vote.Reason, err)
	}
	switch {
	case b.claims.Bounded && vote.Deadline.IsZero():
		b.Errorf("it claims to drop prepared work by itself, and a vote says no deadline")
	case !b.claims.Bounded && time.Until(vote.Deadline) > longTime:
		b.gap("it claims to keep prepared work for ever, and a vote has a deadline in %s; a retention does that", time.Until(vote.Deadline).Round(time.Hour))
	case !b.claims.Bounded && !vote.Deadline.IsZero():
		b.Errorf("it claims to keep prepared work for ever, and a vote has a deadline in %s", time.Until(vote.Deadline))
	case b.claims.Bounded && !vote.Deadline.After(began):
		b.Errorf("the deadline of a vote was over before the branch was begun, by %s", began.Sub(vote.Deadline))
	}
	if again, err := branch.Prepare(b.ctx); err != nil || again.Deadline.After(vote.Deadline.Add(time.Millisecond)) {
		b.Errorf("prepare again: error %v, deadline %s later than first said; it only comes nearer", err, again.Deadline.Sub(vote.Deadline))
	}
	found, err := r.List(b.ctx, home)
	switch listed := err == nil && len(found) > 0; {
	case b.claims.CanList && !listed:
		b.Errorf("it claims to list what is prepared, and lists nothing; error %v", err)
	case !b.claims.CanList && listed:
		b.Errorf("it claims no listing, and lists what is prepared: claim CanList, or what is prepared will be announced in vain")
	}
	b.commit(r, vote.Handle) // looks at Asserted, as each check does
	for _, finisher := range []participant.Resource{r, b.process()} {
		proof, err := finisher.Commit(b.ctx, vote.Handle)
		if err != nil {
			b.Fatalf("commit again: %v", err)
		}
		b.honest(proof)
		if proof.Evidence == "" {
			b.Errorf("a proof has no evidence for people")
		}
	}
}

func checkUnknownCommit(t testing.TB, target Target) {
	b := newBench(t, target)
	if b.NeverPrepared == nil {
		b.skip("no handle of what was never prepared (Target.NeverPrepared)")
	}
	if b.claims.Asserted {
		b.skip("its proofs are asserted: the call's success is all there is")
	}
	r := b.opened(1)
	h := b.NeverPrepared(branchName(home, 1, 7))
	for _, finisher := range []participant.Resource{r, b.process()} {
		// An error (in doubt) or a proof of the opposite (heuristic), and never a success.
		if proof, err := finisher.Commit(b.ctx, h); err == nil && proof.Verdict == participant.Committed {
			b.Errorf("the commit of what was never prepared is proven committed: %s", proof.Evidence)
		}
	}
	b.sees()
}

// dropped checks that nobody proves a commit of what is gone.
func (b bench) dropped(h participant.Handle) {
	b.Helper()
	for range 2 {
		if proof, err := b.process().Commit(b.ctx, h); err == nil && proof.Verdict == participant.Committed {
			b.Errorf("what is gone is proven committed: %s", proof.Evidence)
		}
	}
}

func checkDropped(t testing.TB, target Target) {
	b := newBench(t, target)
	if b.claims.Asserted {
		b.skip("its proofs are asserted: the call's success is all there is")
	}
	if b.Drop == nil {
		b.skip("nothing drops a prepared branch (Target.Drop)")
	}
	r := b.opened(1)
	gone, kept := b.epoch(r, 1, "gone"), b.epoch(r, 2, "kept")
	b.Drop(b.TB, gone)
	b.dropped(gone)
	b.commit(r, kept)
	b.sees("kept")
}

func checkRecreated(t testing.TB, target Target) {
	b := newBench(t, target)
	if b.claims.Asserted {
		b.skip("its proofs are asserted: the call's success is all there is")
	}
	if b.Recreate == nil {
		b.skip("nothing makes the target anew (Target.Recreate)")
	}
	r := b.opened(1)
	h := b.epoch(r, 1, "a")
	if err := r.Close(); err != nil {
		b.Fatalf("close: %v", err)
	}
	b.Recreate(b.TB)
	b.dropped(h)
	b.sees()
}

func checkInspectBeside(t testing.TB, target Target) {
	b := newBench(t, target)
	if b.claims.Asserted {
		b.skip("its proofs are asserted, so it may answer unknown where others must know")
	}
	r, finisher, eye := b.opened(1), b.process(), b.process()
	var want []string
	for n := range 20 {
		h := b.epoch(r, uint64(n+1), record(n))
		want = append(want, record(n))
		done := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			for {
				s, err := eye.Inspect(b.ctx, h)
				if err == nil && s != participant.Undecided && s != participant.StateCommitted {
					b.Errorf("an inspect beside a commit says state %d, want undecided or committed", s)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
		_, err := finisher.Commit(b.ctx, h)
		close(done)
		group.Wait()
		if err != nil {
			b.Logf("commit beside an inspect: %v; asked again", err)
			b.commit(finisher, h)
		}
		if b.Failed() {
			return
		}
	}
	b.sees(want...)
}

// cut is what a call may answer whose context ended: an error, or what it was asked for.
func (b bench) cut(what string, p participant.Proof, err error, want participant.Verdict) {
	b.Helper()
	if err == nil && p.Verdict != want {
		b.Errorf("%s whose time ran out proves verdict %d: %s", what, p.Verdict, p.Evidence)
	}
	b.passing(what, err)
}

// passing judges the error of a call that something temporary has failed: it will be known, so nobody is to be told
// that it never will.
func (b bench) passing(what string, err error) {
	b.Helper()
	if errors.Is(err, participant.ErrUndeterminable) {
		b.Errorf("%s failed by what passes, and says that nobody can tell now or later: %v", what, err)
	}
}

// unknown brings three branches, of which the calls were cut, to their ends: whatever was answered, and
// whatever was done, nothing else is decided than was asked.
func (b bench) unknown(r participant.Resource, kept, dropped participant.Handle, writing participant.Branch) {
	b.Helper()
	b.commit(r, kept)
	b.rollback(r, dropped)
	b.commit(r, b.prepared(writing))
}

func checkDeadline(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	var want []string
	n := uint64(0)
	next := func() participant.Branch {
		n++
		return b.begin(r, branchName(home, 1, n), record(int(n)))
	}
	for _, d := range []time.Duration{-time.Second, time.Microsecond, 30 * time.Microsecond, 300 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		kept := b.prepared(next())
		want = append(want, record(int(n)))
		dropped := b.prepared(next())
		writing := next()
		want = append(want, record(int(n)))
		limited := func(call func(ctx context.Context)) {
			ctx, cancel := context.WithTimeout(b.ctx, d)
			defer cancel()
			call(ctx)
			if ended, ok := ctx.Deadline(); ok && time.Since(ended) > 10*time.Second {
				b.Errorf("a call with %s of time returned %s after that", d, time.Since(ended))
			}
		}
		limited(func(ctx context.Context) {
			p, err := r.Commit(ctx, kept)
			b.cut("a commit", p, err, participant.Committed)
		})
		limited(func(ctx context.Context) {
			p, err := r.Rollback(ctx, dropped)
			b.cut("a rollback", p, err, participant.RolledBack)
		})
		limited(func(ctx context.Context) {
			if vote, err := writing.Prepare(ctx); err == nil && vote.Kind != participant.Yes {
				b.Errorf("a prepare with %s of time votes %d, %v; no answer is unknown, never no", d, vote.Kind, vote.Reason)
			}
		})
		if b.Failed() {
			return
		}
		b.unknown(r, kept, dropped, writing)
		b.sees(want...)
	}
}

func checkSecrets(t testing.TB, target Target) {
	b := newBench(t, target)
	if len(b.Secrets) == 0 {
		b.skip("no secrets are named to look for (Target.Secrets)")
	}
	r := b.opened(1)
	h := b.epoch(r, 1, "a")
	clean := func(what string, in ...string) {
		b.Helper()
		for _, secret := range b.Secrets {
			if strings.Contains(strings.Join(in, "\x00"), secret) {
				b.Errorf("%s holds a secret", what)
			}
		}
	}
	handle := func(what string, h participant.Handle) {
		b.Helper()
		clean(what, h.Kind, h.Identity, h.Alias, h.Name, h.Text, string(bytes.Clone(h.Body)))
	}
	clean("the description", b.claims.Kind, b.claims.Identity, b.claims.Text)
	handle("a handle", h)
	for _, l := range b.lists(r, home, branchName(home, 1, 1)) {
		handle("a listed handle", l.Handle)
	}
	proof, err := r.Commit(b.ctx, h)
	clean("a proof", proof.Evidence)
	other := h
	other.Identity += "x"
	_, ferr := r.Commit(b.ctx, other)
	if err := errors.Join(err, ferr); err != nil {
		clean("an error", err.Error())
	}
}
