package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/wire"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Attach gives a process its orders until the stream ends on either side.
func (m *Manager) Attach(req *unisinkv1.AttachRequest, out unisinkv1.Session_AttachServer) error {
	r, err := m.current()
	if err != nil {
		return err
	}
	if req.GetTerm() > r.term {
		return notLeader("the member has obeyed a leader of term %d, this node leads term %d: ask another one", req.GetTerm(), r.term)
	}
	id := wire.Scope(req.GetScope())
	if err := checkAttach(id, req); err != nil {
		return err
	}
	s, err := r.visit(id)
	if err != nil {
		return err
	}
	defer r.exit(s)
	a := newStream(req)
	var refused error
	if err := s.do(out.Context(), func(ctx context.Context) { refused = s.attach(ctx, a) }); err != nil {
		return m.ended(err)
	}
	if refused != nil {
		return refused
	}
	err = a.pump(out.Context(), r.over, out.Send)
	// The stream's own context may be over; what its end means must be known all the same.
	gone := s.do(context.WithoutCancel(out.Context()), func(ctx context.Context) { s.detached(ctx, a) })
	if err == nil {
		err = gone
	}
	return m.ended(err)
}

// ended is the status of a stream that ended with err.
func (m *Manager) ended(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errOver):
		return m.c.NotLeader()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ctxStatus(err)
	}
	return err
}

// checkAttach finds what is wrong with a request on its face.
func checkAttach(id ledger.ScopeID, req *unisinkv1.AttachRequest) error {
	if err := ledger.CheckName("pipeline", id.Pipeline, ledger.MaxPipeline); err != nil {
		return invalid("%v", err)
	}
	if err := ledger.CheckName("member", req.GetMember(), ledger.MaxMember); err != nil {
		return invalid("%v", err)
	}
	if n := len(req.GetInstance()); n == 0 || n > ledger.MaxInstance {
		return invalid("the instance id must have 1 to %d bytes, not %d", ledger.MaxInstance, n)
	}
	return nil
}

// check compares a process with what the pipeline declares. It is asked again when the pipeline
// has changed.
func (s *scope) check(a *stream) error {
	p := s.seen.pipeline
	if !s.seen.found {
		return refuse(grpcerr.NotFound, nil, "there is no pipeline %q; create it first (unisink run does)", s.id.Pipeline)
	}
	if s.id.Shard >= p.Shards {
		return refuse(grpcerr.NotFound, nil, "pipeline %s has %d shards, there is no scope %s", p.Name, p.Shards, s.id)
	}
	i := slices.IndexFunc(p.Members, func(d ledger.MemberSpec) bool { return d.Name == a.req.GetMember() })
	if i < 0 {
		return refuse(grpcerr.NotFound, nil, "pipeline %s declares no member %q, it has %s", p.Name, a.req.GetMember(), names(p.Members))
	}
	if err := checkResources(p.Members[i], a.req.GetResources()); err != nil {
		return err
	}
	if !a.req.GetAllowChangedResources() { // else it may have to wait until everything is proven
		foreign := ""
		s.r.m.c.Log.View(func(l *ledger.Machine) { foreign = l.Foreign(s.id, identities(a.req), a.req.GetFromScratch()) })
		if foreign != "" {
			return refuse(grpcerr.ChangedResource, nil, "%s", foreign)
		}
	}
	if f := a.req.GetFingerprint(); p.Fingerprint != "" && f != p.Fingerprint && !a.req.GetAllowChangedSpecification() {
		return refuse(grpcerr.ChangedSpecification, nil,
			"member %s runs specification %q, pipeline %s has %q; run that one, or allow the changed specification", a.req.GetMember(), f, p.Name, p.Fingerprint)
	}
	return nil
}

// checkResources wants every declared resource, of its kind, and nothing to write to beside them.
// What a member only reads from need not be declared.
func checkResources(d ledger.MemberSpec, got []*unisinkv1.ResourceInfo) error {
	attached := map[string]*unisinkv1.ResourceInfo{}
	for _, r := range got {
		attached[r.GetName()] = r
	}
	for _, want := range d.Resources {
		switch r := attached[want.Name]; {
		case r == nil:
			return invalid("member %s attaches without resource %q (%s), which its pipeline declares; add it, or change the pipeline",
				d.Name, want.Name, want.Kind)
		case r.GetKind() != want.Kind:
			return invalid("resource %q of member %s is of kind %s, its pipeline declares %s; use that, or change the pipeline",
				want.Name, d.Name, r.GetKind(), want.Kind)
		}
		delete(attached, want.Name)
	}
	for name, r := range attached {
		if r.GetHasBranches() {
			return invalid("member %s attaches with resource %q (%s), which its pipeline does not declare; change the pipeline first",
				d.Name, name, r.GetKind())
		}
	}
	return nil
}

// identities of what a process writes to and reads from.
func identities(req *unisinkv1.AttachRequest) []ledger.ResourceIdentity {
	out := make([]ledger.ResourceIdentity, 0, len(req.GetResources()))
	for _, r := range req.GetResources() {
		out = append(out, ledger.ResourceIdentity{
			ID: ledger.BranchID{Member: req.GetMember(), Resource: r.GetName()}, Identity: r.GetIdentity(),
			AllowChanged: req.GetAllowChangedResources(),
		})
	}
	return out
}

func names(members []ledger.MemberSpec) string {
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = m.Name
	}
	return strings.Join(out, ", ")
}

// revalidate turns away whoever no longer fits a pipeline that was changed or deleted. While a
// generation is open nothing of it can have changed that counts.
func (s *scope) revalidate(ctx context.Context) {
	if s.gen != nil {
		return
	}
	for name, m := range s.members {
		if m.instance == "" && len(m.waiters) == 0 {
			delete(s.members, name)
			continue
		}
		m.waiters = slices.DeleteFunc(m.waiters, s.turnAway)
		if m.stream != nil && s.turnAway(m.stream) {
			s.lose(m, fmt.Sprintf("member %s no longer fits the pipeline", m.name))
			s.promote(ctx, m)
		}
	}
}

// turnAway ends a stream whose process does not fit; it reports whether it did.
func (s *scope) turnAway(a *stream) bool {
	err := s.check(a)
	if err == nil {
		return false
	}
	s.push(a, orderFenced(message(err)))
	a.end(err)
	return true
}

// Renew extends the lease.
func (m *Manager) Renew(ctx context.Context, req *unisinkv1.RenewRequest) (resp *unisinkv1.RenewResponse, err error) {
	err = m.ask(ctx, wire.Scope(req.GetScope()), func(ctx context.Context, s *scope) error {
		resp, err = s.renew(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Leave ends the member's part; a repeat is harmless.
func (m *Manager) Leave(ctx context.Context, req *unisinkv1.LeaveRequest) (*unisinkv1.LeaveResponse, error) {
	err := m.ask(ctx, wire.Scope(req.GetScope()), func(ctx context.Context, s *scope) error {
		s.leave(ctx, req)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &unisinkv1.LeaveResponse{}, nil
}
