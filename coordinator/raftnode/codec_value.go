package raftnode

import "github.com/unisink/unisink/coordinator/ledger"

// The values that commands and state are made of.

func scopeID(w *wire, s *ledger.ScopeID) {
	text(w, 1, &s.Pipeline)
	w.u32(2, &s.Shard)
}

func epoch(w *wire, e *ledger.Epoch) {
	num(w, 1, &e.Generation)
	w.u64(2, &e.N)
}

func branchID(w *wire, b *ledger.BranchID) {
	text(w, 1, &b.Member)
	text(w, 2, &b.Resource)
}

func node(w *wire, n *ledger.Node) {
	text(w, 1, &n.ID)
	text(w, 2, &n.RaftAddress)
	text(w, 3, &n.ClientAddress)
	w.u32(4, &n.FeatureLevel)
	text(w, 5, &n.Version)
}

func settings(w *wire, s *ledger.Settings) {
	w.i64(1, &s.EpochInterval)
	w.i64(2, &s.PrepareTimeout)
	w.u32(3, &s.MaxPending)
	w.i64(4, &s.Lease)
	w.u32(5, &s.RestorePoints)
	w.i64(6, &s.CommitBudget)
}

func resourceSpec(w *wire, r *ledger.ResourceSpec) {
	text(w, 1, &r.Name)
	text(w, 2, &r.Kind)
}

func memberSpec(w *wire, m *ledger.MemberSpec) {
	text(w, 1, &m.Name)
	w.flag(2, &m.Source)
	list(w, 3, &m.Resources, resourceSpec)
}

func pipeline(w *wire, p *ledger.Pipeline) {
	text(w, 1, &p.Name)
	sub(w, 2, &p.Settings, settings)
	list(w, 3, &p.Members, memberSpec)
	text(w, 4, &p.Fingerprint)
	w.u32(5, &p.Shards)
	w.u32(6, &p.KeyGroups)
	enum(w, 7, &p.Desired, ledger.Stopped)
	w.u64(8, &p.Revision)
	text(w, 9, &p.Description)
	text(w, 10, &p.LastRequest)
}

func instance(w *wire, m *ledger.MemberInstance) {
	text(w, 1, &m.Member)
	text(w, 2, &m.Instance)
}

func resourceIdentity(w *wire, r *ledger.ResourceIdentity) {
	sub(w, 1, &r.ID, branchID)
	text(w, 2, &r.Identity)
	w.flag(3, &r.AllowChanged)
}

func handle(w *wire, h *ledger.Handle) {
	text(w, 1, &h.Kind)
	w.u32(2, &h.Version)
	text(w, 3, &h.Identity)
	text(w, 4, &h.Alias)
	text(w, 5, &h.Name)
	text(w, 6, &h.Text)
	w.bytes(7, &h.Body)
}

func handBranch(w *wire, b *ledger.HandBranch) {
	text(w, 1, &b.Resource)
	sub(w, 2, &b.Handle, handle)
}

func proof(w *wire, p *ledger.Proof) {
	enum(w, 1, &p.Verdict, ledger.ProvenRolledBack)
	text(w, 2, &p.Evidence)
	w.flag(3, &p.Asserted)
}

func position(w *wire, p *ledger.Position) {
	text(w, 1, &p.Resource)
	text(w, 2, &p.Split)
	w.i64(3, &p.Offset)
	w.i32(4, &p.LeaderEpoch)
	w.bytes(5, &p.Opaque)
}

func statePart(w *wire, s *ledger.StatePart) {
	text(w, 1, &s.ID)
	text(w, 2, &s.Operator)
	w.u32(3, &s.KeyGroupFirst)
	w.u32(4, &s.KeyGroupLast)
	text(w, 5, &s.Store)
	w.bytes(6, &s.Body)
}

func prepared(w *wire, p *ledger.Prepared) {
	text(w, 1, &p.Resource)
	sub(w, 2, &p.Handle, handle)
}

func vote(w *wire, v *ledger.Vote) {
	text(w, 1, &v.Member)
	text(w, 2, &v.Instance)
	list(w, 3, &v.Branches, prepared)
	list(w, 4, &v.Positions, position)
	list(w, 5, &v.Parts, statePart)
	w.u64(6, &v.ProvenThrough)
}

// Values of the state alone.

func branch(w *wire, b *ledger.Branch) {
	sub(w, 1, &b.ID, branchID)
	sub(w, 2, &b.Handle, handle)
	sub(w, 3, &b.Proof, proof)
	text(w, 4, &b.Forced)
}

func generation(w *wire, g *ledger.GenerationRecord) {
	num(w, 1, &g.Generation)
	list(w, 2, &g.Members, instance)
	w.flag(3, &g.Open)
	w.u64(4, &g.Final)
	w.i64(5, &g.OpenedAt)
	w.i64(6, &g.ClosedAt)
	text(w, 7, &g.Cause)
	list(w, 8, &g.Debts, branchID)
}

func epochRecord(w *wire, e *ledger.EpochRecord) {
	sub(w, 1, &e.Epoch, epoch)
	w.flag(2, &e.Final)
	list(w, 3, &e.Votes, vote)
	list(w, 4, &e.Branches, branch)
	w.i64(5, &e.DecidedAt)
	w.i64(6, &e.ProvenAt)
}

func scope(w *wire, s *ledger.Scope) {
	sub(w, 1, &s.ID, scopeID)
	list(w, 2, &s.Generations, generation)
	list(w, 3, &s.Epochs, epochRecord)
	sub(w, 4, &s.RestorePoint, epoch)
	list(w, 5, &s.Pinned, epoch)
	text(w, 6, &s.Halted)
	w.u32(7, &s.Barren)
	w.i64(8, &s.OpenAfter)
	text(w, 9, &s.LastRequest)
	list(w, 10, &s.Identities, resourceIdentity)
	num(w, 11, &s.Resumed)
	list(w, 12, &s.Rewinds, rewound)
}

func rewound(w *wire, r *ledger.Rewound) {
	sub(w, 1, &r.To, epoch)
	sub(w, 2, &r.Newest, epoch)
}

func act(w *wire, a *ledger.Act) {
	w.u64(1, &a.N)
	w.i64(2, &a.At)
	text(w, 3, &a.Actor)
	text(w, 4, &a.Kind)
	text(w, 5, &a.Pipeline)
	text(w, 6, &a.What)
	text(w, 7, &a.Why)
}

func txn(w *wire, t *ledger.Txn) {
	text(w, 1, &t.ID)
	enum(w, 2, &t.Outcome, ledger.Aborted)
	list(w, 3, &t.Branches, branch)
	w.i64(4, &t.BegunAt)
	w.i64(5, &t.DecidedAt)
	w.i64(6, &t.Deadline)
	text(w, 7, &t.Heuristic)
	text(w, 8, &t.Why)
}
