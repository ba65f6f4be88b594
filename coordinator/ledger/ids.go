package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Longest names, in bytes, so that every prepared name fits into every resource unhashed
// (the narrowest is a PostgreSQL transaction identifier: below 200 bytes).
const (
	MaxNamespace = 24
	MaxPipeline  = 40
	MaxMember    = 32
	MaxResource  = 32
)

// ErrName is wrapped by every complaint about a name.
var ErrName = errors.New("bad name")

// CheckName reports whether s may name a thing of the given kind: 1 to limit bytes of ASCII
// letters, digits, '-' and '_', beginning with a letter or digit. Names hold no '.', '/' or
// '@', so that compound names can be parsed and never matched by prefix.
func CheckName(kind, s string, limit int) error {
	if s == "" {
		return fmt.Errorf("%w: the %s name is empty", ErrName, kind)
	}
	if len(s) > limit {
		return fmt.Errorf("%w: the %s name %q… has %d bytes, at most %d are allowed", ErrName, kind, s[:limit], len(s), limit)
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '_') {
			return fmt.Errorf("%w: the %s name %q has %q at byte %d; letters, digits, '-' and '_' are allowed, first a letter or digit",
				ErrName, kind, s, c, i)
		}
	}
	return nil
}

// ScopeID names a scope, shown as "pipeline/shard".
type ScopeID struct {
	Pipeline string
	Shard    uint32
}

func (s ScopeID) String() string { return s.Pipeline + "/" + strconv.FormatUint(uint64(s.Shard), 10) }

// Compare orders scopes by pipeline, then shard.
func (s ScopeID) Compare(o ScopeID) int {
	return cmp.Or(cmp.Compare(s.Pipeline, o.Pipeline), cmp.Compare(s.Shard, o.Shard))
}

// ParseScopeID reads "pipeline/shard"; a missing shard is 0.
func ParseScopeID(text string) (ScopeID, error) {
	name, shard, found := strings.Cut(text, "/")
	if err := CheckName("pipeline", name, MaxPipeline); err != nil {
		return ScopeID{}, err
	}
	if !found {
		return ScopeID{Pipeline: name}, nil
	}
	n, err := strconv.ParseUint(shard, 10, 32)
	if err != nil {
		return ScopeID{}, fmt.Errorf("%w: scope %q: the shard must be a number", ErrName, text)
	}
	return ScopeID{Pipeline: name, Shard: uint32(n)}, nil
}

// Generation is the fencing number of a scope; 0 is none. One counter serves the whole ledger.
type Generation uint64

// Epoch is (generation, n), compared as a pair and shown as "7.12". The zero value is no epoch.
type Epoch struct {
	Generation Generation
	N          uint64
}

func (e Epoch) String() string {
	return strconv.FormatUint(uint64(e.Generation), 10) + "." + strconv.FormatUint(e.N, 10)
}

// IsZero reports whether e is no epoch.
func (e Epoch) IsZero() bool { return e == Epoch{} }

// Compare orders by generation, then n.
func (e Epoch) Compare(o Epoch) int {
	return cmp.Or(cmp.Compare(e.Generation, o.Generation), cmp.Compare(e.N, o.N))
}

// ParseEpoch reads "7.12".
func ParseEpoch(text string) (Epoch, error) {
	g, n, ok := strings.Cut(text, ".")
	gen, err1 := strconv.ParseUint(g, 10, 64)
	num, err2 := strconv.ParseUint(n, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return Epoch{}, fmt.Errorf("%w: %q is no epoch; one looks like 7.12 (generation.number)", ErrName, text)
	}
	return Epoch{Generation: Generation(gen), N: num}, nil
}

// TxnID names a transaction: "pipeline/shard@7.12" for an epoch, a UUIDv7 in its canonical
// lower-case form for one run by hand.
type TxnID string

// EpochTxn is the transaction of one epoch.
func EpochTxn(s ScopeID, e Epoch) TxnID { return TxnID(s.String() + "@" + e.String()) }

// Epoch splits the id of an epoch's transaction; false for one run by hand.
func (t TxnID) Epoch() (ScopeID, Epoch, bool) {
	scope, epoch, ok := strings.Cut(string(t), "@")
	if !ok {
		return ScopeID{}, Epoch{}, false
	}
	s, err1 := ParseScopeID(scope)
	e, err2 := ParseEpoch(epoch)
	return s, e, err1 == nil && err2 == nil
}

// Time is the Unix time in milliseconds that a UUIDv7 carries (RFC 9562, section 5.7);
// false when t is not a canonical UUIDv7.
func (t TxnID) Time() (int64, bool) {
	if len(t) != 36 || t[8] != '-' || t[13] != '-' || t[18] != '-' || t[23] != '-' || t[14] != '7' {
		return 0, false
	}
	if v := t[19]; v != '8' && v != '9' && v != 'a' && v != 'b' {
		return 0, false
	}
	for i := range len(t) {
		c := t[i]
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return 0, false
		}
	}
	ms, err := strconv.ParseInt(string(t[0:8]+t[9:13]), 16, 64)
	return ms, err == nil
}

// BranchID names a branch within its transaction. Member is empty for transactions run by hand.
type BranchID struct {
	Member   string
	Resource string
}

func (b BranchID) String() string {
	if b.Member == "" {
		return b.Resource
	}
	return b.Member + "/" + b.Resource
}

// Compare orders by member, then resource.
func (b BranchID) Compare(o BranchID) int {
	return cmp.Or(cmp.Compare(b.Member, o.Member), cmp.Compare(b.Resource, o.Resource))
}
