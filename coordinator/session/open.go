package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/internal/plural"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// stepClosed does what is due while no generation is open: take over a changed specification, come
// to the end of a stop or drain, open the next generation.
func (s *scope) stepClosed(ctx context.Context, now time.Time) {
	if s.next.flying || now.Before(s.next.notBefore) || !s.seen.found {
		return
	}
	if f, changed := s.changedSpecification(); changed {
		p := s.seen.pipeline
		p.Fingerprint = f
		s.proposeSole(ctx, ledger.PutPipeline{Pipeline: p})
		return
	}
	v := &s.seen
	switch d := v.pipeline.Desired; d {
	case ledger.Stopping, ledger.Draining:
		switch atEnd := d == ledger.Stopping || v.drained; {
		case !atEnd:
			s.open(ctx, "the drain is not at its end")
		case v.unproven > 0:
			s.open(ctx, "what is decided is not proven yet") // its members can do it, if they are here
		default:
			s.proposeSole(ctx, ledger.SetDesired{Pipeline: s.id.Pipeline, From: d, To: ledger.Stopped})
		}
	case ledger.Running:
		cause := "first start"
		if v.newest.Generation != 0 {
			cause = fmt.Sprintf("generation %d was closed: %s", v.newest.Generation, v.newest.Cause)
		}
		s.open(ctx, cause)
	case ledger.Stopped:
	default:
	}
}

// changedSpecification is the fingerprint that a holder runs and was allowed to change to.
func (s *scope) changedSpecification() (string, bool) {
	for _, d := range s.seen.pipeline.Members {
		m := s.members[d.Name]
		if m == nil || !m.present() || !m.stream.req.GetAllowChangedSpecification() {
			continue
		}
		if f := m.stream.req.GetFingerprint(); f != s.seen.pipeline.Fingerprint {
			return f, true
		}
	}
	return "", false
}

// open proposes a generation of the processes that hold the members' names, if all are here.
func (s *scope) open(ctx context.Context, cause string) {
	if s.seen.halted != "" || s.claim != nil || len(s.missing()) > 0 {
		return
	}
	b := ledger.OpenGeneration{Scope: s.id, From: s.seen.newest.Generation, Cause: cause, Fingerprint: s.seen.pipeline.Fingerprint}
	for _, d := range s.seen.pipeline.Members {
		m := s.members[d.Name]
		b.Members = append(b.Members, ledger.MemberInstance{Member: d.Name, Instance: m.instance})
		// A process that has been in a generation asked for its empty start then, and had it.
		before := m.generation != 0 || slices.Contains(s.seen.newest.Members, ledger.MemberInstance{Member: d.Name, Instance: m.instance})
		if m.stream.req.GetFromScratch() && !before {
			b.FromScratch = true
		}
		b.Identities = append(b.Identities, identities(m.stream.req)...)
	}
	s.proposeSole(ctx, b)
}

// proposeSole proposes what must not be proposed twice at a time. What it leads to is read from
// the ledger, so that an answer that was lost costs time alone.
func (s *scope) proposeSole(ctx context.Context, b ledger.Body) {
	s.next.flying = true
	s.propose(ctx, b, func(ctx context.Context, res ledger.Result, err error) {
		s.next = turn{}
		s.refresh(ctx)
		switch {
		case err != nil:
			s.next.notBefore = time.Now().Add(retryDelay)
		case res.OK():
		case res.Refusal == ledger.Backoff:
			// As long as it is, whatever this node's clock is set to meanwhile.
			s.next.notBefore = time.Now().Add(time.Duration(res.RetryIn) * time.Millisecond)
			s.next.why = res.Text
		default:
			s.next.notBefore = time.Now().Add(lookAgain)
			s.next.why = res.Text
			s.r.m.c.Logger.InfoContext(ctx, "not now; trying again", obs.Scope(s.id.String()), obs.Cause(res.Text))
		}
	})
}

// missing lists the declared members that no process holds and listens for.
func (s *scope) missing() []string {
	var out []string
	for _, d := range s.seen.pipeline.Members {
		if m := s.members[d.Name]; m == nil || !m.present() {
			out = append(out, d.Name)
		}
	}
	return out
}

// settle writes the last proofs to the log, then closes: a stop ends when it is proven.
func (s *scope) settle(ctx context.Context, g *generation, now time.Time) {
	if now.Before(g.again) {
		return
	}
	owing := map[string]bool{}
	s.r.m.c.Log.View(func(l *ledger.Machine) {
		unfinished, _ := l.ScopeOutstanding(s.id)
		for _, u := range unfinished {
			if u.Epoch.Generation == g.number {
				owing[u.Branch.Member] = true
			}
		}
	})
	g.again = time.Time{}
	if len(owing) == 0 || mutant.On("session/proven-before-stop") {
		cause := "stopped: the last epoch is proven"
		if g.ending == ledger.Draining {
			cause = wire.Drained
		}
		s.close(ctx, g, cause)
		return
	}
	g.again = now.Add(lookAgain) // unless the answers come first
	for _, gm := range g.members {
		if !owing[gm.Member] {
			continue
		}
		last := ledger.Epoch{Generation: g.number, N: g.final}
		b := ledger.Resolve{Txn: ledger.EpochTxn(s.id, last), Branch: ledger.BranchID{Member: gm.Member}, ProvenThrough: g.final}
		s.propose(ctx, b, func(_ context.Context, res ledger.Result, err error) {
			if err == nil && res.OK() && s.flying == 0 {
				g.again = time.Time{} // the last of them: look at once
			}
		})
	}
}

// stop tells a holder, once, that the pipeline is not to run.
func (s *scope) stop(m *member) {
	if m.stream != nil && !m.stream.stopped {
		m.stream.stopped = true
		s.push(m.stream, orderStop(fmt.Sprintf("pipeline %s is stopped", s.id.Pipeline)))
	}
}

// stopAll tells everyone who is there that the pipeline has come to its stop.
func (s *scope) stopAll() {
	for _, m := range s.members {
		s.stop(m)
	}
}

// waitingFor says what keeps the scope from running; empty when nothing does.
func (s *scope) waitingFor() string {
	v := &s.seen
	if g := s.gen; g != nil {
		return s.openWaitsFor(g)
	}
	missing := s.missing()
	switch {
	case !v.found:
		return ""
	case v.pipeline.Desired == ledger.Stopped:
		return fmt.Sprintf("pipeline %s to be started; it is stopped: `unisink pipeline start %s` lets it run", v.pipeline.Name, v.pipeline.Name)
	case v.unproven > 0 && (v.pipeline.Desired == ledger.Stopping || v.drained && v.pipeline.Desired == ledger.Draining):
		return fmt.Sprintf("%s of scope %s to be proven by their members before it counts as stopped; start the members, and it is done at the restore", plural.Of(v.unproven, "decided branch"), s.id)
	case v.pipeline.Desired == ledger.Stopping:
		return fmt.Sprintf("pipeline %s to be stopped", v.pipeline.Name)
	case v.halted != "":
		text := fmt.Sprintf("scope %s to be resumed by an operator; it is halted: %s", s.id, v.halted)
		if v.broken {
			text += "; `unisink pipeline accept-loss` accepts that and resumes, `unisink txn resolve --force accept-loss` accepts one branch"
		}
		return text
	case len(missing) > 0:
		return fmt.Sprintf("%s of scope %s to attach", membersText(missing), s.id)
	case s.next.why != "":
		return fmt.Sprintf("the next start at %s: %s", s.next.notBefore.UTC().Format("15:04:05.000 UTC"), s.next.why)
	}
	return fmt.Sprintf("a generation of scope %s to open", s.id)
}

func (s *scope) openWaitsFor(g *generation) string {
	var restoring, away, troubled []string
	for _, gm := range g.members {
		m := s.members[gm.Member]
		switch {
		case m == nil || !m.present():
			away = append(away, gm.Member)
		case !g.ready[gm.Member]:
			restoring = append(restoring, gm.Member)
		}
		if m != nil && m.trouble != "" {
			troubled = append(troubled, "member "+gm.Member+": "+m.trouble)
		}
	}
	why := strings.Join(troubled, "; ")
	switch {
	case g.closing:
		return fmt.Sprintf("generation %d to be closed: %s", g.number, g.lost)
	case len(away) > 0:
		return fmt.Sprintf("%s of scope %s to attach again", membersText(away), s.id)
	case len(restoring) > 0:
		waits := fmt.Sprintf("%s of scope %s to be ready in generation %d", membersText(restoring), s.id, g.number)
		if why != "" {
			waits += "; " + why
		}
		return waits
	}
	return why
}

func membersText(members []string) string {
	if len(members) == 1 {
		return "member " + members[0]
	}
	return "members " + strings.Join(members, ", ")
}

// tellWaiting tells those who wait what for, when it has changed.
func (s *scope) tellWaiting() {
	s.waiting = s.waitingFor()
	if s.waiting == "" {
		return
	}
	for _, m := range s.members {
		if !m.present() || m.stream.told == s.waiting || m.stream.stopped {
			continue
		}
		if m.phase == unisinkv1.Phase_PHASE_RESTORING || m.phase == unisinkv1.Phase_PHASE_RUNNING {
			continue
		}
		m.stream.told = s.waiting
		s.push(m.stream, orderWaiting(s.waiting))
	}
}

// tellWaiter says whom a newcomer waits for.
func (s *scope) tellWaiter(m *member, a *stream) {
	a.told = fmt.Sprintf("instance %s, which holds member %s of scope %s, to end or to be silent for its lease of %s", m.instance, m.name, s.id, s.leaseTime())
	s.push(a, orderWaiting(a.told))
}
