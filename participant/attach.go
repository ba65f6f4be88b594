package participant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// firstOrder is how long a node may take to say anything to a newly attached member.
const firstOrder = 3 * time.Second

var (
	errSilent  = errors.New("silent")
	errOldTerm = errors.New("orders of an older term")
)

// attachAlways keeps the member attached to whoever leads, until ctx ends (nil) or a refusal that
// trying again does not change.
func (m *Member) attachAlways(ctx context.Context) error {
	begun, pause, welcomed, hints := time.Now(), route.NewBackOff(), false, 0
	var said route.Answers
	for ctx.Err() == nil {
		addr, welcome, err := m.attachOnce(ctx)
		if ctx.Err() != nil || m.links.left() {
			return nil //nolint:nilerr // the member ended it, whatever the stream says
		}
		if welcome {
			welcomed = true
			pause.Reset()
			m.log.WarnContext(ctx, "stream to the leader ended, attaching again", obs.Addr(addr), obs.Err(err))
		}
		if final := m.finalRefusal(err); final != nil {
			return final
		}
		m.router.Learn(addr, err)
		said.Add(addr, err)
		if !welcomed && m.cfg.Patience >= 0 && time.Since(begun) > m.cfg.Patience && route.Retryable(err) {
			return fmt.Errorf("attach %s: %w", m.actor(), said.Err())
		}
		if !welcome {
			m.links.wait(waitingFor(err))
		}
		if route.Hinted(err) && hints < maxHints {
			hints++
			continue
		}
		hints = 0
		// A new leader gives one lease to come back in, also to those who have waited for it for long.
		if !route.Sleep(ctx, min(pause.NextBackOff(), m.links.leaseTime()/4)) {
			return nil
		}
	}
	return nil
}

// maxHints is how often in a row another node is asked at once because one named it.
const maxHints = 2

// waitingFor is a failed attempt in words, for Status.
func waitingFor(err error) string {
	if route.Retryable(err) {
		return "a leader: " + err.Error()
	}
	return message(err)
}

// finalRefusal is the error with which Run ends, nil when the member goes on trying.
func (m *Member) finalRefusal(err error) error {
	refused := refusal(err)
	switch {
	case err == nil || route.Retryable(err):
		return nil
	case errors.Is(refused, ErrNotFound):
		return fmt.Errorf("attach %s: %w: %w", m.actor(), ErrNoSuchPipeline, refused)
	case errors.Is(refused, ErrMemberAlive) && !m.cfg.NoWait:
		return nil
	case errors.Is(refused, ErrMemberAlive), errors.Is(refused, ErrFenced), errors.Is(refused, ErrRefused):
		return fmt.Errorf("attach %s: %w", m.actor(), refused)
	}
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.Unimplemented:
		return fmt.Errorf("attach %s: %w: %w", m.actor(), ErrRefused, err)
	}
	return nil
}

// attachOnce attaches to the node that leads as far as is known, and obeys its orders until the
// stream ends. The error is never nil.
func (m *Member) attachOnce(ctx context.Context) (addr string, welcomed bool, _ error) {
	target, err := m.router.Pick()
	if err != nil {
		return "", false, err
	}
	streaming, hangUp := context.WithCancelCause(ctx)
	defer hangUp(nil)
	l := &link{addr: target.Addr, session: unisinkv1.NewSessionClient(target.Conn), pipelines: unisinkv1.NewPipelinesClient(target.Conn), hangUp: hangUp}
	defer func() { m.links.drop(l, nil) }()

	silence := time.AfterFunc(firstOrder, func() { hangUp(errSilent) })
	defer silence.Stop()
	sent := time.Now()
	stream, err := l.session.Attach(streaming, m.attachRequest())
	for err == nil {
		var order *unisinkv1.Order
		if order, err = stream.Recv(); err != nil {
			break
		}
		silence.Stop()
		if !m.links.obey(order.GetTerm()) {
			return l.addr, welcomed, fmt.Errorf("%w: %s gave %w, %d", route.ErrNotLeader, l.addr, errOldTerm, order.GetTerm())
		}
		l.term = order.GetTerm()
		if w := order.GetWelcome(); w != nil {
			welcomed = true
			m.router.Learn(l.addr, nil)
			m.welcome(ctx, l, w, sent)
			continue
		}
		m.obey(ctx, order)
	}
	if cause := context.Cause(streaming); cause != nil && ctx.Err() == nil {
		if route.Retryable(cause) {
			return l.addr, welcomed, cause
		}
		return l.addr, welcomed, fmt.Errorf("%w: %s: %w", route.ErrUnreachable, l.addr, cause)
	}
	if reason, _ := grpcerr.Reason(err); reason == "" && status.Code(err) != codes.Unavailable && welcomed {
		// A stream that was good and ended is looked for again, whatever it ended with.
		return l.addr, welcomed, fmt.Errorf("%w: %s ended the stream: %w", route.ErrUnreachable, l.addr, err)
	}
	return l.addr, welcomed, route.Classify(ctx, l.addr, err)
}

func (m *Member) attachRequest() *unisinkv1.AttachRequest {
	req := &unisinkv1.AttachRequest{
		Meta: m.newMeta(), Scope: m.scope(), Member: m.cfg.Member, Instance: m.cfg.Instance,
		SdkVersion: m.cfg.SDKVersion, Fingerprint: m.cfg.Fingerprint,
		NoWait: m.cfg.NoWait, FromScratch: m.cfg.FromScratch, AllowChangedSpecification: m.cfg.AllowChangedSpecification,
		AllowChangedResources: m.cfg.AllowChangedResources,
		Resources:             m.infos, Term: m.links.obeyed(),
		Standing: &unisinkv1.Standing{Phase: unisinkv1.Phase_PHASE_IDLE},
	}
	if g := m.generation(); g != nil {
		req.Standing = g.standing()
	}
	return req
}

func (m *Member) welcome(ctx context.Context, l *link, w *unisinkv1.Welcome, sent time.Time) {
	ns := Namespace{Name: w.GetNamespace(), Incarnation: w.GetIncarnation()}
	m.mu.Lock()
	was := m.ns
	m.ns = ns
	m.mu.Unlock()
	if was.Name != "" && was.Name != ns.Name {
		// Its generations are other generations of the same numbers.
		m.end(fmt.Errorf("%w: the coordinator at %s belongs to group %q, this member has attached to group %q before; correct the addresses",
			ErrRefused, l.addr, ns.Name, was.Name))
		return
	}
	m.links.renewed(sent, w.GetLease())
	m.links.attach(l)
	m.generation().wake()
	m.log.InfoContext(ctx, "attached", obs.Addr(l.addr), obs.Term(l.term))
	m.kick()
}

// answer makes one unary call to the present leader, and again there or at the next one while the
// error leaves it open. It returns when it was answered or ctx ended.
func (m *Member) answer(ctx context.Context, call func(ctx context.Context, l *link) error) error {
	pause := route.NewBackOff()
	for {
		l, err := m.links.await(ctx)
		if err != nil {
			return err
		}
		limit := m.links.leaseTime()
		attempt, cancel := context.WithTimeout(ctx, limit)
		err = route.Classify(ctx, l.addr, call(attempt, l))
		slow := attempt.Err() != nil || status.Code(err) == codes.DeadlineExceeded
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch reason, _ := grpcerr.Reason(err); {
		case reason == grpcerr.LeaseLost || reason == grpcerr.Slow:
			m.links.drop(l, err) // attaching again tells whether the generation is still ours
		case reason == grpcerr.OutcomeUnknown || slow:
			// It may have been done: ask again. Whether the leader lives, the lease shows.
		case route.Retryable(err):
			m.links.drop(l, err)
		default:
			return refusal(err)
		}
		if !route.Sleep(ctx, pause.NextBackOff()) {
			return context.Cause(ctx)
		}
	}
}
