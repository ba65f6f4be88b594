package session

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/internal/mutant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// member is a name that the pipeline declares, and the process that holds it.
type member struct {
	name string
	// instance holds the name until its lease ends; empty: nobody does.
	instance string
	lease    time.Time
	// stream is the holder's, nil while it has none.
	stream *stream
	// sawEnd: this leader, in this term, saw the holder's stream end. Only then may another
	// process have the name before the lease is over (P23).
	sawEnd bool
	// generation and phase are what the holder is known to be in.
	generation ledger.Generation
	phase      unisinkv1.Phase
	lag        int64
	trouble    string // what it tries in vain, by its last renewal
	waiters    []*stream
}

func (s *scope) member(name string) *member {
	m := s.members[name]
	if m == nil {
		m = &member{name: name, lag: -1}
		s.members[name] = m
	}
	return m
}

// living reports that the holder must be waited for.
func (m *member) living() bool {
	return m.instance != "" && (m.stream != nil || !m.sawEnd && !mutant.On("session/end-was-seen"))
}

// present reports that the holder can be given orders.
func (m *member) present() bool { return m.instance != "" && m.stream != nil }

// attach takes in a new stream. An error refuses it.
func (s *scope) attach(ctx context.Context, a *stream) error {
	if s.gen == nil {
		s.refresh(ctx) // a pipeline that was put a moment ago must be seen
	}
	if err := s.check(a); err != nil {
		return err
	}
	m := s.member(a.req.GetMember())
	switch {
	case m.instance == a.instance:
		if m.stream != nil {
			m.stream.end(refuse(grpcerr.Slow, nil, "the process has attached again, on another stream"))
		}
	case m.instance != "" && inGeneration(a.req.GetStanding().GetPhase()):
		return s.fence(a, m) // its place was taken while it was away
	case m.living() && a.req.GetNoWait():
		return refuse(grpcerr.MemberAlive, map[string]string{grpcerr.MetaMember: m.name, grpcerr.MetaInstance: m.instance},
			"member %s of scope %s is held by a living process (instance %s); stop it, or let this process wait until it ends",
			m.name, s.id, m.instance)
	case m.living():
		m.waiters = append(m.waiters, a) // an older stream of the same process is about to end
		s.tellWaiter(m, a)
		return nil
	case m.instance != "":
		s.lose(m, fmt.Sprintf("member %s was replaced: the stream of instance %s had ended, and instance %s attached", m.name, m.instance, a.instance))
	}
	s.admit(ctx, m, a)
	return nil
}

// inGeneration reports a process that has not heard, or not acted upon, the end of its generation.
func inGeneration(p unisinkv1.Phase) bool {
	return p != unisinkv1.Phase_PHASE_IDLE && p != unisinkv1.Phase_PHASE_UNSPECIFIED
}

// fence turns away for good a process whose place was taken.
func (s *scope) fence(a *stream, m *member) error {
	why := fmt.Sprintf("member %s of scope %s is held by instance %s now", m.name, s.id, m.instance)
	s.push(a, orderFenced(why))
	a.end(fenced("%s; end this process", why))
	return nil
}

// admit makes the process the holder of the name.
func (s *scope) admit(ctx context.Context, m *member, a *stream) {
	st := a.req.GetStanding()
	m.instance, m.stream, m.sawEnd, m.lag = a.instance, a, false, -1
	m.lease = time.Now().Add(s.leaseTime())
	m.generation, m.phase = ledger.Generation(st.GetGeneration()), st.GetPhase()
	s.texts[m.name] = textsOf(a.req)
	s.push(a, orderWelcome(s.seen.namespace, s.seen.incarnate, s.leaseNow()))
	s.event(eventlog.MemberAttached, ledger.Epoch{}, m.name, "instance "+m.instance)
	told, current := newestTold(st), s.gen != nil && s.gen.has(m) && m.generation == s.gen.number
	lost := s.contradicts(told)
	if lost && current {
		s.contradict(ctx, m, told, st) // it hears the close, or is placed should the log say otherwise
	} else {
		if lost {
			s.contradict(ctx, m, told, nil)
		}
		s.place(ctx, m, st)
	}
	for _, w := range m.waiters {
		s.tellWaiter(m, w)
	}
}

// textsOf is what a process calls its resources, for people.
func textsOf(req *unisinkv1.AttachRequest) map[string]string {
	out := map[string]string{}
	for _, r := range req.GetResources() {
		if text := r.GetText(); text != "" && len(text) <= ledger.MaxText {
			out[r.GetName()] = text
		}
	}
	return out
}

// detached takes in that a stream has ended on the other side. The holder keeps its lease: it may
// only have lost its connection.
func (s *scope) detached(ctx context.Context, a *stream) {
	theirs := a.end(nil) // else this leader ended it, which says nothing of the process
	m := s.members[a.req.GetMember()]
	if m == nil {
		return
	}
	for i, w := range m.waiters {
		if w == a {
			m.waiters = append(m.waiters[:i:i], m.waiters[i+1:]...)
			return
		}
	}
	if m.stream != a {
		return
	}
	m.stream, m.sawEnd = nil, theirs
	if g := s.gen; g != nil && g.machine != nil && g.has(m) {
		s.obey(ctx, g, g.machine.Detached(m.name, s.now()))
	}
	s.promote(ctx, m)
}

// promote gives a name that may be taken to whoever waits for it longest.
func (s *scope) promote(ctx context.Context, m *member) {
	if m.living() || len(m.waiters) == 0 {
		return
	}
	a := m.waiters[0]
	m.waiters = m.waiters[1:]
	if m.instance != "" {
		s.lose(m, fmt.Sprintf("member %s was replaced: the stream of instance %s ended, and instance %s was waiting", m.name, m.instance, a.instance))
	}
	s.admit(ctx, m, a)
}

// lose takes the name from its holder and remembers why, for the close of its generation.
func (s *scope) lose(m *member, why string) {
	if g := s.gen; g != nil && g.has(m) && g.lost == "" {
		g.lost = why
	}
	s.event(eventlog.MemberLost, ledger.Epoch{}, m.name, why)
	m.instance, m.stream, m.sawEnd = "", nil, false
	m.generation, m.phase, m.lag, m.trouble = 0, unisinkv1.Phase_PHASE_UNSPECIFIED, -1, ""
}

// drop ends every stream of a name.
func (m *member) drop(err error) {
	if m.stream != nil {
		m.stream.end(err)
	}
	for _, a := range m.waiters {
		a.end(err)
	}
}

// expire takes the name from holders that were silent, or did not read, for a lease.
func (s *scope) expire(ctx context.Context, now time.Time) {
	for _, m := range s.members {
		if m.instance == "" {
			continue
		}
		why := ""
		switch {
		case !now.Before(m.lease) && mutant.On("session/lease-ends"):
			m.lease = now.Add(s.leaseTime())
			continue
		case !now.Before(m.lease):
			why = fmt.Sprintf("member %s (instance %s) was silent for its lease of %s", m.name, m.instance, s.leaseTime())
		case m.stream != nil && m.stream.behind(now) > s.leaseTime():
			why = fmt.Sprintf("member %s (instance %s) has not read its orders for a lease of %s", m.name, m.instance, s.leaseTime())
		default:
			continue
		}
		if m.stream != nil {
			m.stream.end(refuse(grpcerr.LeaseLost, nil, "%s; attach again", why))
		}
		s.lose(m, why)
		s.promote(ctx, m)
	}
}

// renew extends the lease of a holder.
func (s *scope) renew(ctx context.Context, req *unisinkv1.RenewRequest) (*unisinkv1.RenewResponse, error) {
	m := s.members[req.GetMember()]
	if m == nil || m.instance != req.GetInstance() {
		if m != nil && m.awaits(req.GetInstance()) {
			return &unisinkv1.RenewResponse{Lease: s.leaseNow()}, nil
		}
		return nil, s.stranger(req.GetMember(), req.GetInstance())
	}
	m.lease = time.Now().Add(s.leaseTime())
	m.lag, m.trouble = req.GetLag(), clip(req.GetTrouble())
	if g := s.gen; g != nil && g.machine != nil && g.has(m) && uint64(g.number) == req.GetGeneration() {
		s.obey(ctx, g, g.machine.Work(m.name, req.GetHasWork(), req.GetEnded(), s.now()))
	}
	return &unisinkv1.RenewResponse{Lease: s.leaseNow()}, nil
}

// hear takes any word of a holder for a sign of life: who votes is not silent, though its renewals come late.
func (s *scope) hear(name, instance string) {
	if m := s.members[name]; m != nil && m.instance == instance && !mutant.On("session/votes-are-heard") {
		m.lease = time.Now().Add(s.leaseTime())
	}
}

// overslept takes off the leases what this node itself came too late by: while it stood still, members may
// have spoken and were not heard. After a long sleep they get time to speak again.
func (s *scope) overslept(late time.Duration, now time.Time) {
	grace := s.leaseTime() / 3
	for _, m := range s.members {
		if m.instance == "" {
			continue
		}
		m.lease = m.lease.Add(late)
		if soonest := now.Add(grace); late > grace && m.lease.Before(soonest) {
			m.lease = soonest
		}
	}
}

// clip bounds what a member says for people, not inside a letter.
func clip(text string) string {
	if len(text) > ledger.MaxText {
		text = text[:ledger.MaxText]
	}
	return strings.ToValidUTF8(text, "")
}

func (m *member) awaits(instance string) bool {
	for _, a := range m.waiters {
		if a.instance == instance {
			return true
		}
	}
	return false
}

// stranger is what an instance hears that does not hold the name it speaks for.
func (s *scope) stranger(name, instance string) error {
	if m := s.members[name]; m != nil && m.living() {
		return fenced("member %s of scope %s is held by instance %s, not by %s; end this process", name, s.id, m.instance, instance)
	}
	return refuse(grpcerr.LeaseLost, nil, "instance %s does not hold member %s of scope %s; attach again", instance, name, s.id)
}

// leave ends a holder's part on purpose.
func (s *scope) leave(ctx context.Context, req *unisinkv1.LeaveRequest) {
	m := s.members[req.GetMember()]
	if m == nil {
		return
	}
	for i, a := range m.waiters {
		if a.instance == req.GetInstance() {
			m.waiters = append(m.waiters[:i:i], m.waiters[i+1:]...)
			a.end(nil)
			return
		}
	}
	if m.instance != req.GetInstance() {
		return // a repeat
	}
	if m.stream != nil {
		m.stream.end(nil)
	}
	s.lose(m, fmt.Sprintf("member %s (instance %s) left: %s", m.name, m.instance, req.GetCause()))
	s.promote(ctx, m)
}
