package ledger

import (
	"encoding/binary"
	"math/bits"
)

// encoder writes values in one canonical form: numbers as eight bytes, texts and lists behind
// their length. It feeds Hash and Digest only; what lies on disk is encoded elsewhere.
type encoder struct{ buf []byte }

func (e *encoder) reset() *encoder { e.buf = e.buf[:0]; return e }

func (e *encoder) num(v uint64) { e.buf = binary.LittleEndian.AppendUint64(e.buf, v) }

func (e *encoder) int(v int64) { e.num(uint64(v)) }

func (e *encoder) flag(v bool) {
	if v {
		e.num(1)
	} else {
		e.num(0)
	}
}

func (e *encoder) text(s string) {
	e.num(uint64(len(s)))
	e.buf = append(e.buf, s...)
}

func (e *encoder) bytes(b []byte) {
	e.num(uint64(len(b)))
	e.buf = append(e.buf, b...)
}

func (e *encoder) scopeID(s ScopeID) {
	e.text(s.Pipeline)
	e.num(uint64(s.Shard))
}

func (e *encoder) epoch(v Epoch) {
	e.num(uint64(v.Generation))
	e.num(v.N)
}

func (e *encoder) branchID(b BranchID) {
	e.text(b.Member)
	e.text(b.Resource)
}

func (e *encoder) handle(h Handle) {
	e.text(h.Kind)
	e.num(uint64(h.Version))
	e.text(h.Identity)
	e.text(h.Alias)
	e.text(h.Name)
	e.text(h.Text)
	e.bytes(h.Body)
}

func (e *encoder) proof(p Proof) {
	e.num(uint64(p.Verdict))
	e.text(p.Evidence)
	e.flag(p.Asserted)
}

func (e *encoder) node(n Node) {
	e.text(n.ID)
	e.text(n.RaftAddress)
	e.text(n.ClientAddress)
	e.num(uint64(n.FeatureLevel))
	e.text(n.Version)
}

func (e *encoder) pipeline(p Pipeline) {
	e.text(p.Name)
	s := p.Settings
	e.int(s.EpochInterval)
	e.int(s.PrepareTimeout)
	e.num(uint64(s.MaxPending))
	e.int(s.Lease)
	e.num(uint64(s.RestorePoints))
	e.int(s.CommitBudget)
	e.num(uint64(len(p.Members)))
	for _, m := range p.Members {
		e.text(m.Name)
		e.flag(m.Source)
		e.num(uint64(len(m.Resources)))
		for _, r := range m.Resources {
			e.text(r.Name)
			e.text(r.Kind)
		}
	}
	e.text(p.Fingerprint)
	e.num(uint64(p.Shards))
	e.num(uint64(p.KeyGroups))
	e.num(uint64(p.Desired))
	e.num(p.Revision)
	e.text(p.Description)
	e.text(p.LastRequest)
}

func (e *encoder) votes(vs []Vote) {
	e.num(uint64(len(vs)))
	for _, v := range vs {
		e.text(v.Member)
		e.text(v.Instance)
		e.num(v.ProvenThrough)
		e.num(uint64(len(v.Branches)))
		for _, b := range v.Branches {
			e.text(b.Resource)
			e.handle(b.Handle)
		}
		e.num(uint64(len(v.Positions)))
		for _, p := range v.Positions {
			e.text(p.Resource)
			e.text(p.Split)
			e.int(p.Offset)
			e.int(int64(p.LeaderEpoch))
			e.bytes(p.Opaque)
		}
		e.num(uint64(len(v.Parts)))
		for _, p := range v.Parts {
			e.text(p.ID)
			e.text(p.Operator)
			e.num(uint64(p.KeyGroupFirst))
			e.num(uint64(p.KeyGroupLast))
			e.text(p.Store)
			e.bytes(p.Body)
		}
	}
}

func (e *encoder) generation(g *GenerationRecord) {
	e.num(uint64(g.Generation))
	e.flag(g.Open)
	e.num(g.Final)
	e.int(g.OpenedAt)
	e.int(g.ClosedAt)
	e.text(g.Cause)
	e.num(uint64(len(g.Members)))
	for _, m := range g.Members {
		e.text(m.Member)
		e.text(m.Instance)
	}
	e.num(uint64(len(g.Debts)))
	for _, d := range g.Debts {
		e.branchID(d)
	}
}

// scopeHead is a scope without its generations and epochs.
func (e *encoder) scopeHead(s *scope) {
	e.scopeID(s.id)
	e.epoch(s.restore)
	e.num(uint64(len(s.pinned)))
	for _, p := range s.pinned {
		e.epoch(p)
	}
	e.text(s.halted)
	e.num(uint64(s.barren))
	e.int(s.openAfter)
	e.text(s.lastRequest)
	if len(s.identities) == 0 && s.resumed == 0 && len(s.rewinds) == 0 {
		return // as it was written before there were these: snapshots carry its hash
	}
	e.text("more")
	e.num(uint64(len(s.identities)))
	for _, r := range s.identities {
		e.branchID(r.ID)
		e.text(r.Identity)
	}
	e.num(uint64(s.resumed))
	if len(s.rewinds) == 0 {
		return // as above
	}
	e.num(uint64(len(s.rewinds)))
	for _, r := range s.rewinds {
		e.epoch(r.To)
		e.epoch(r.Newest)
	}
}

// branch takes the digest of the handle instead of the handle, so that a proof costs the same
// whatever the handle's size.
func (e *encoder) branch(b *Branch, handle uint64) {
	e.branchID(b.ID)
	e.num(handle)
	e.proof(b.Proof)
	e.text(b.Forced)
}

// sum is the digest of what has been written: 64 bits, well mixed, no secret key. It finds
// replicas that differ by mistake; it is no defence against one who looks for collisions.
func (e *encoder) sum() uint64 {
	const k0, k1 = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93
	h := uint64(len(e.buf)) ^ k1
	b := e.buf
	for len(b) >= 8 {
		h = mix(h^binary.LittleEndian.Uint64(b), k0)
		b = b[8:]
	}
	if len(b) > 0 {
		var tail [8]byte
		copy(tail[:], b)
		h = mix(h^binary.LittleEndian.Uint64(tail[:]), k0)
	}
	return mix(h^k0, k1)
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo ^ bits.RotateLeft64(a, 29)
}
