package participant

import (
	"context"
	"errors"
	"time"

	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// kick asks for a renewal now, which also tells that there is work.
func (m *Member) kick() {
	select {
	case m.renewing <- struct{}{}:
	default: // one is due already
	}
}

// renewAlways renews the lease three times in its length, and whenever kicked. A lease that runs
// out changes nothing here: the member works on under back-pressure and rolls nothing back, since
// a vote is a promise until an applied decision or an applied close.
func (m *Member) renewAlways(ctx context.Context) {
	refused := 0
	for {
		timer := time.NewTimer(m.links.leaseTime() / 3)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-m.renewing:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		l := m.links.present()
		if l == nil {
			continue // Welcome kicks
		}
		silent := m.links.silent()
		err := m.renewAt(ctx, l, m.links.leaseTime()/2)
		switch {
		case err == nil:
			refused = 0
			if silent {
				m.generation().wake()
			}
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrFenced):
			m.end(err)
		case route.Retryable(err), lostLease(err):
			m.links.drop(l, err)
		default:
			// The generation is closed and the order on its way, or the leader knows us no more:
			// told twice, attach again and hear it.
			if refused++; refused > 1 {
				m.log.WarnContext(ctx, "lease not renewed, attaching again", obs.Addr(l.addr), obs.Err(err))
				refused = 0
				m.links.drop(l, err)
			}
		}
	}
}

// lostLease reports that only attaching again helps.
func lostLease(err error) bool {
	reason, _ := grpcerr.Reason(err)
	return reason == grpcerr.LeaseLost || reason == grpcerr.Slow
}

// renewAt asks one leader once.
func (m *Member) renewAt(ctx context.Context, l *link, limit time.Duration) error {
	attempt, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sent := time.Now()
	resp, err := l.session.Renew(attempt, m.renewRequest())
	if err != nil {
		return refusal(route.Classify(ctx, l.addr, err))
	}
	m.links.renewed(sent, resp.GetLease())
	return nil
}

// renewed asks until a leader answers. Nil: the lease is good, so the generation is still ours.
func (m *Member) renewed(ctx context.Context) error {
	return m.answer(ctx, func(ctx context.Context, l *link) error {
		sent := time.Now()
		resp, err := l.session.Renew(ctx, m.renewRequest())
		if err == nil {
			m.links.renewed(sent, resp.GetLease())
		}
		return err
	})
}

func (m *Member) renewRequest() *unisinkv1.RenewRequest {
	req := &unisinkv1.RenewRequest{Scope: m.scope(), Member: m.cfg.Member, Instance: m.cfg.Instance, Lag: -1}
	if g := m.generation(); g != nil {
		g.report(req)
	}
	req.Trouble = m.troubles.String()
	return req
}

// Phase of a member.
type Phase uint8

const (
	phaseUnset Phase = iota
	// PhaseIdle: no generation, or it is closed.
	PhaseIdle
	PhaseRestoring
	// PhaseReady: restored, not every member of the scope is.
	PhaseReady
	PhaseRunning
)

func (p Phase) String() string {
	switch p {
	case PhaseIdle:
		return "idle"
	case PhaseRestoring:
		return "restoring"
	case PhaseReady:
		return "ready"
	case PhaseRunning:
		return "running"
	case phaseUnset:
	}
	return "unset"
}

func (p Phase) wire() unisinkv1.Phase {
	switch p {
	case PhaseRestoring:
		return unisinkv1.Phase_PHASE_RESTORING
	case PhaseReady:
		return unisinkv1.Phase_PHASE_READY
	case PhaseRunning:
		return unisinkv1.Phase_PHASE_RUNNING
	case PhaseIdle, phaseUnset:
	}
	return unisinkv1.Phase_PHASE_IDLE
}

// Status is what a member knows of itself, for tools.
type Status struct {
	Instance   string
	Leader     string // address; "" while not attached
	Term       uint64
	Generation uint64
	Phase      Phase
	// LeaseLeft until the coordinator may close the generation; zero or less when it may already.
	LeaseLeft time.Duration
	// Barrier is the newest one seen, Outcome the newest epoch known to be decided, Proven the
	// newest up to which every branch is proven.
	Barrier, Outcome, Proven uint64
	// WaitingFor says in words what the member waits for; "" when for nothing.
	WaitingFor string
}

// Status may be called at any time, by anyone.
func (m *Member) Status() Status {
	s := Status{Instance: m.cfg.Instance, Phase: PhaseIdle}
	m.links.mu.Lock()
	if now := m.links.now; now != nil {
		s.Leader = now.addr
	}
	s.Term, s.WaitingFor = m.links.term, m.links.waiting
	if !m.links.until.IsZero() {
		s.LeaseLeft = time.Until(m.links.until)
	}
	m.links.mu.Unlock()
	if g := m.generation(); g != nil {
		g.status(&s)
	}
	if t := m.troubles.String(); t != "" {
		s.WaitingFor = t
	}
	return s
}
