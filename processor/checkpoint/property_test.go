package checkpoint

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/processor/state"
)

// subject is a kind of keyed state, and ways to change it.
type subject struct {
	k      state.Keyed
	add    func(key []byte, at, by int64)
	expire func(upTo int64) // drops what is before it
}

func windowSubject() subject {
	w, k := windows(groups)
	return subject{
		k: k,
		add: func(key []byte, at, by int64) {
			acc, _ := w.At(at/100*100).Upsert(state.Hash(key), key)
			*acc += by
		},
		expire: func(upTo int64) {
			for start, ok := w.First(); ok && start < upTo; start, ok = w.First() {
				w.Drop(start)
			}
		},
	}
}

func sessionSubject() subject {
	s := new(state.Sessions[int64])
	by := int64(0)
	fold := &state.Fold[int64]{
		Init: func(acc *int64) { *acc = 0 }, Add: func(acc *int64) error { *acc += by; return nil },
		Merge: func(acc, other *int64) error { *acc += *other; return nil },
	}
	return subject{
		k: state.OfSessions(s, groups, put, get),
		add: func(key []byte, at, n int64) {
			by = n
			if _, _, err := s.Add(state.Hash(key), key, at, 30, math.MinInt64, fold); err != nil {
				panic(err) // the fold has no errors
			}
		},
		expire: func(upTo int64) {
			_ = s.Fire(upTo, func([]byte, state.Span, *int64) error { return nil }) // no errors
		},
	}
}

// TestP9_EveryKeptRestorePointGivesExactlyItsState takes snapshots of a state that changes at random, little, much or
// not at all, deletes what is retired, kills the process, and restores every restore point that is kept.
func TestP9_EveryKeptRestorePointGivesExactlyItsState(t *testing.T) {
	for name, fresh := range map[string]func() subject{"windows": windowSubject, "sessions": sessionSubject} {
		t.Run("P9/"+name, func(t *testing.T) {
			seen := map[string]int{}
			rapid.Check(t, func(t *rapid.T) { everyPoint(t, fresh, seen) })
			t.Log(seen)
			if testing.Short() {
				return // a fifth of the lives, each a third as long, may lack one of them
			}
			for _, what := range []string{"inline", "base", "change", "change in the vote", "unsealed", "whole groups in a change", "restart"} {
				if seen[what] == 0 {
					t.Errorf("no snapshot was or had %q", what)
				}
			}
		})
	}
}

// scope keeps restore points as the ledger does.
type scope struct {
	t          *rapid.T
	fresh      func() subject
	store      *memory
	s          *Snapshots
	x          subject
	kept       []point
	generation uint64
	n          uint64
	limit      int
}

func everyPoint(t *rapid.T, fresh func() subject, seen map[string]int) {
	sc := &scope{t: t, fresh: fresh, store: newMemory(), limit: rapid.SampledFrom([]int{200, 2000, 2000, 20_000}).Draw(t, "limit")}
	sc.restart()
	sizes, least, most := []int{3, 1500, 3000}, 10, 30
	if testing.Short() {
		sizes, least, most = sizes[:2], 4, 10
	}
	keys := rapid.SampledFrom(sizes).Draw(t, "keys")
	now := int64(0)
	for i := range keys {
		sc.x.add(fmt.Appendf(nil, "key-%d", i), int64(i%250), 1)
	}
	for range rapid.IntRange(least, most).Draw(t, "epochs") {
		n := rapid.SampledFrom([]int{0, 1, 10, 10, 300, 300, 300, 1000}).Draw(t, "records")
		at := rapid.Int64Range(0, 1000).Draw(t, "seed")
		for i := range n {
			at = (at*6364136223846793005 + 1442695040888963407) & math.MaxInt32
			sc.x.add(fmt.Appendf(nil, "key-%d", at%int64(keys)), now+at%250, int64(i)+1)
		}
		if rapid.IntRange(0, 4).Draw(t, "expire") == 0 {
			now += rapid.Int64Range(0, 60).Draw(t, "later")
			sc.x.expire(now)
		}
		sc.epoch(seen, rapid.IntRange(0, 7).Draw(t, "decided") > 0)
		if rapid.IntRange(0, 7).Draw(t, "killed") == 0 {
			seen["restart"]++
			sc.restart()
		}
	}
	for _, p := range sc.kept {
		equal(t, sc.restored(p), p.state)
	}
}

// epoch takes a snapshot, and if it is decided retires what nothing names any more.
func (sc *scope) epoch(seen map[string]int, decided bool) {
	sc.n++
	parts := take(sc.t, sc.s, sc.generation, sc.n, sc.x.k, sc.limit)
	p := point{sc.generation, sc.n, cloneParts(parts), dump(sc.t, sc.x.k, groups)}
	last := len(sc.s.chain.links) - 1
	switch {
	case last < 0:
		seen["inline"]++
	case sc.s.chain.links[last].info.whole.count == groups:
		seen["base"]++
	default:
		seen["change"]++
		info := sc.s.chain.links[last].info
		if !info.sealed {
			seen["unsealed"]++
		}
		if info.whole.count > 0 {
			seen["whole groups in a change"]++
		}
		if parts[len(parts)-1].Store == "" {
			seen["change in the vote"]++
		}
	}
	if !decided { // nothing names it, ever: the generation ends
		sc.restart()
		return
	}
	sc.kept = append(sc.kept, p)
	var gone []string
	for len(sc.kept) > 3 {
		for _, part := range sc.kept[0].parts {
			gone = append(gone, part.ID)
		}
		sc.kept = sc.kept[1:]
	}
	named := sc.named()
	var retired []string
	for _, id := range gone {
		if !named[id] {
			retired = append(retired, id)
		}
	}
	if err := sc.s.Retired(sc.t.Context(), retired); err != nil {
		sc.t.Fatal(err)
	}
	for _, p := range sc.kept {
		for _, part := range p.parts {
			if _, err := sc.store.Get(sc.t.Context(), "test.0."+part.ID); part.Store != "" && err != nil {
				sc.t.Fatalf("restore point %d.%d names %s: %v", p.generation, p.n, part.ID, err)
			}
		}
	}
}

func (sc *scope) named() map[string]bool {
	named := map[string]bool{}
	for _, p := range sc.kept {
		for _, part := range p.parts {
			named[part.ID] = true
		}
	}
	return named
}

// restart is a new process at the last restore point.
func (sc *scope) restart() {
	sc.generation++
	sc.n = 0
	sc.s, sc.x = New(config(sc.store, groups)), sc.fresh()
	var kept []string
	for id := range sc.named() {
		kept = append(kept, id)
	}
	if len(sc.kept) > 0 {
		p := sc.kept[len(sc.kept)-1]
		if err := load(sc.t, sc.s, p.restore(sc.generation, kept), sc.x.k); err != nil {
			sc.t.Fatalf("restore point %d.%d: %v", p.generation, p.n, err)
		}
	}
	if err := sc.s.Sweep(sc.t.Context(), sc.generation, kept); err != nil {
		sc.t.Fatal(err)
	}
	stored := 0
	for _, p := range sc.kept {
		for _, part := range p.parts {
			if part.Store != "" {
				stored++ // some more than once
			}
		}
	}
	if len(sc.store.parts) > stored {
		sc.t.Fatalf("%d parts are there after a restart, and restore points name %d", len(sc.store.parts), stored)
	}
}

func (sc *scope) restored(p point) map[string]string {
	x := sc.fresh()
	if err := load(sc.t, New(config(sc.store, groups)), p.restore(sc.generation+1, nil), x.k); err != nil {
		sc.t.Fatalf("restore point %d.%d: %v", p.generation, p.n, err)
	}
	return dump(sc.t, x.k, groups)
}
