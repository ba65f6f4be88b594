package resolver

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// report tells the coordinator, now and then, what is reached and what is tried in vain.
func (r *Resolver) report(ctx context.Context) {
	refused := false
	for {
		_, err := r.calls.Report(ctx, r.said())
		switch {
		case err == nil:
			refused = false
		case ctx.Err() != nil || route.Retryable(err): // that nobody answers is said by poll
		case !refused:
			refused = true
			r.log.WarnContext(ctx, "report refused; operators do not see what this resolver reaches and finds", obs.Err(err))
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
	return fitting(out)
}

// mostReport bounds a report, bytes: a node takes messages of twice as many.
const mostReport = 2 << 20

// fitting leaves out what would make a report too long to be taken: what is tried in vain first, which the ledger
// lists as unfinished anyway, then what was found in doubt.
func fitting(r *unisinkv1.ReportRequest) *unisinkv1.ReportRequest {
	for proto.Size(r) > mostReport && len(r.GetTroubles()) > 0 {
		r.Troubles = r.Troubles[:len(r.GetTroubles())/2]
	}
	for proto.Size(r) > mostReport && len(r.GetInDoubt()) > 0 {
		r.InDoubt = r.InDoubt[:len(r.GetInDoubt())/2]
	}
	return r
}

// tell takes the troubles of the chains into what is reported.
func (l *lane) tell() {
	var troubles []*unisinkv1.ResolverTrouble
	for _, t := range l.chains {
		if t.err != nil {
			troubles = append(troubles, &unisinkv1.ResolverTrouble{Branch: t.branch, Trouble: forReport(t.err), NextTryMs: t.next.UnixMilli()})
		}
	}
	slices.SortFunc(troubles, func(a, b *unisinkv1.ResolverTrouble) int {
		return cmp.Or(strings.Compare(txnOf(a.GetBranch()), txnOf(b.GetBranch())), strings.Compare(a.GetBranch().GetResource(), b.GetBranch().GetResource()))
	})
	l.mu.Lock()
	l.said.troubles = troubles
	l.mu.Unlock()
}
