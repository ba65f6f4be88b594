package resolver

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// report tells the coordinator, now and then, what is reached and what is tried in vain.
func (r *Resolver) report(ctx context.Context) {
	for {
		if _, err := r.calls.Report(ctx, r.said()); err != nil && ctx.Err() == nil {
			r.log.DebugContext(ctx, "report not taken", obs.Err(err)) // that nobody answers is said by poll
		}
		if !route.Sleep(ctx, r.c.ReportEvery) {
			return
		}
	}
}

// said gathers what the lanes have to tell.
func (r *Resolver) said() *unisinkv1.ReportRequest {
	out := &unisinkv1.ReportRequest{Resolver: r.c.Name, Version: r.c.Version, IntervalMs: r.c.ReportEvery.Milliseconds()}
	for _, l := range r.lanes {
		l.mu.Lock()
		s := l.said
		l.mu.Unlock()
		x := &unisinkv1.ResolverResource{Resource: s.is, Text: s.text, Trouble: s.trouble, Prepared: uint32(s.prepared)}
		if !s.listedAt.IsZero() {
			x.ListedAtMs = s.listedAt.UnixMilli()
		}
		if !s.oldest.IsZero() {
			x.OldestPreparedMs = max(0, time.Since(s.oldest).Milliseconds())
		}
		if kind := s.is.GetKind(); kind != "" && !slices.Contains(out.GetKinds(), kind) {
			out.Kinds = append(out.Kinds, kind)
		}
		out.Resources = append(out.Resources, x)
		out.Troubles = append(out.Troubles, s.troubles...)
		out.InDoubt = append(out.InDoubt, s.inDoubt...)
	}
	slices.Sort(out.Kinds)
	return out
}

// tell takes the troubles of the chains into what is reported.
func (l *lane) tell() {
	var troubles []*unisinkv1.ResolverTrouble
	for _, t := range l.chains {
		if t.err != nil {
			troubles = append(troubles, &unisinkv1.ResolverTrouble{Branch: t.branch, Trouble: t.err.Error(), NextTryMs: t.next.UnixMilli()})
		}
	}
	slices.SortFunc(troubles, func(a, b *unisinkv1.ResolverTrouble) int {
		return cmp.Or(strings.Compare(txnOf(a.GetBranch()), txnOf(b.GetBranch())), strings.Compare(a.GetBranch().GetResource(), b.GetBranch().GetResource()))
	})
	l.mu.Lock()
	l.said.troubles = troubles
	l.mu.Unlock()
}
