package resolver

import (
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func handleFromWire(h *unisinkv1.Handle) participant.Handle {
	return participant.Handle{
		Kind: h.GetKind(), Version: h.GetVersion(), Identity: h.GetIdentity(), Alias: h.GetAlias(), Name: h.GetName(), Text: h.GetText(), Body: h.GetBody(),
	}
}

func proofToWire(p participant.Proof) *unisinkv1.Proof {
	w := &unisinkv1.Proof{Evidence: p.Evidence, Asserted: p.Asserted}
	switch p.Verdict {
	case participant.Committed:
		w.Verdict = unisinkv1.Verdict_VERDICT_COMMITTED
	case participant.RolledBack:
		w.Verdict = unisinkv1.Verdict_VERDICT_ROLLED_BACK
	default:
	}
	return w
}

// found tells the coordinator what a listing shows, by the parts of its parsed name (L9). The body stays here: what
// is judged is the handle's name.
func found(l participant.Listed, own participant.Namespace) *unisinkv1.Found {
	n, h := l.Name, l.Handle
	f := &unisinkv1.Found{
		Namespace: n.Namespace.Name, Incarnation: n.Namespace.Incarnation,
		Branch: &unisinkv1.BranchRef{Txn: n.Txn, Resource: n.Resource},
		Handle: &unisinkv1.Handle{Kind: h.Kind, Version: h.Version, Identity: h.Identity, Alias: h.Alias, Name: h.Name, Text: h.Text},
	}
	if mutant.On("resolver/own-namespace") {
		f.Namespace, f.Incarnation = own.Name, own.Incarnation
	}
	if !l.Since.IsZero() {
		f.SinceMs = l.Since.UnixMilli()
	}
	if n.Txn == "" {
		f.Branch.Scope = &unisinkv1.Scope{Pipeline: n.Pipeline, Shard: n.Shard}
		f.Branch.Epoch = &unisinkv1.Epoch{Generation: n.Generation, N: n.N}
		f.Branch.Member = n.Member
	}
	return f
}
