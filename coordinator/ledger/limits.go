package ledger

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits that the ledger refuses to go beyond, so that every entry, every prepared name and every
// answer stays bounded.
const (
	MaxMembers   = 64        // of a pipeline
	MaxResources = 64        // of a member
	MaxShards    = 1024      // of a pipeline
	MaxKeyGroups = 32768     // of a pipeline
	MaxPinned    = 64        // restore points of a scope
	MaxRewinds   = 64        // of a scope that are remembered
	MaxActs      = 1000      // of operators that are remembered
	MaxInstance  = 128       // bytes of an instance id, a request id, an actor, a version
	MaxHandle    = 16 << 10  // bytes of a handle, everything in it counted
	MaxCommand   = 1 << 20   // bytes of a command
	MaxText      = 1024      // bytes of a reason; longer ones are cut
	MaxBranches  = 256       // of a hand-run transaction
	MaxAhead     = 60_000    // ms that a hand-run id may lie ahead of the leader's clock
	MaxDeadline  = 604800000 // ms until the deadline of an announced transaction: a week
	AnnounceFor  = 300_000   // ms until the deadline when Announce names none
	MaxBarren    = 10        // barren generations in a row, then the scope halts
	MaxIdentity  = 1024      // bytes of a resource's identity

	// settled is how old, in ms, a generation must be before what it decided says that restarting
	// helps: with short epochs others have theirs decided before a poison record is met.
	settled int64 = 2000

	minBarrenWait int64 = 200    // ms
	maxBarrenWait int64 = 60_000 // ms
)

// barrenWait is how long the next generation is delayed after n barren ones.
func barrenWait(n uint32) int64 {
	if n == 0 {
		return 0
	}
	if n > 10 {
		return maxBarrenWait
	}
	return min(minBarrenWait<<(n-1), maxBarrenWait)
}

// clip cuts a reason to MaxText bytes, not inside a letter. A reason that is too long must not
// keep a generation from being closed.
func clip(s string) string {
	if len(s) <= MaxText {
		return strings.ToValidUTF8(strings.Clone(s), "?")
	}
	end := MaxText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.ToValidUTF8(strings.Clone(s[:end]), "?")
}

func handleSize(h Handle) int {
	return len(h.Kind) + len(h.Identity) + len(h.Alias) + len(h.Name) + len(h.Text) + len(h.Body) + 4
}

func checkHandle(of string, h Handle) error {
	if h.Kind == "" {
		return fmt.Errorf("the handle of %s names no adapter kind, so nobody could finish it", of)
	}
	if n := handleSize(h); n > MaxHandle {
		return fmt.Errorf("the handle of %s has %d bytes, at most %d are allowed", of, n, MaxHandle)
	}
	return nil
}

// votesSize is about what the votes take in the log.
func votesSize(votes []Vote) int {
	n := 0
	for _, v := range votes {
		n += 32 + len(v.Member) + len(v.Instance)
		for _, b := range v.Branches {
			n += 32 + len(b.Resource) + handleSize(b.Handle)
		}
		for _, p := range v.Positions {
			n += 32 + len(p.Resource) + len(p.Split) + len(p.Opaque)
		}
		for _, p := range v.Parts {
			n += 32 + len(p.ID) + len(p.Operator) + len(p.Store) + len(p.Body)
		}
	}
	return n
}
