package checkpoint

import (
	"fmt"
	"testing"

	"github.com/unisink/unisink/processor/state"
)

// TestWhatAChainCosts runs workloads of many epochs and bounds what they write, what a vote names and what a
// restart would read.
func TestWhatAChainCosts(t *testing.T) {
	if testing.Short() {
		t.Skip("counts bytes of one goroutine; takes half a minute under the race detector")
	}
	const keys = 20_000
	key := func(i int) []byte { return fmt.Appendf(nil, "customer-%06d", i) }
	for name, c := range map[string]struct {
		epoch                   func(w *state.Windows[int64], n int)
		written, parts, entries float64 // written and entries: times the entries of the state, per epoch and at most
	}{
		"a trickle": {func(w *state.Windows[int64], n int) {
			for i := range 10 {
				k := key((n*10 + i) % keys)
				acc, _ := w.At(0).Upsert(state.Hash(k), k)
				*acc++
			}
		}, 0.02, 60, 2},
		"one percent": {func(w *state.Windows[int64], n int) {
			for i := range keys / 100 {
				k := key((n*7 + i*100) % keys)
				acc, _ := w.At(0).Upsert(state.Hash(k), k)
				*acc++
			}
		}, 0.03, cycle + 2*baseParts, 3},
		"a fifth": {func(w *state.Windows[int64], n int) {
			for i := range keys / 5 {
				k := key((n*7 + i*5) % keys)
				acc, _ := w.At(0).Upsert(state.Hash(k), k)
				*acc++
			}
		}, 0.5, 40, 4},
		"tumbling windows": {func(w *state.Windows[int64], n int) {
			w.Drop(int64(n-1) * 1000)
			w.Drop(0)
			for i := range keys {
				k := key(i)
				acc, _ := w.At(int64(n)*1000).Upsert(state.Hash(k), k)
				*acc++
			}
		}, 1.01, baseParts + 2, 1},
		"one key has almost everything": {func(w *state.Windows[int64], n int) {
			k := key(0) // a group cannot be cut; its windows are its entries
			for i := range 300 {
				acc, _ := w.At(int64(i+n%7)*1000).Upsert(state.Hash(k), k)
				*acc++
			}
		}, 1.01, cycle + 2*baseParts, 4},
	} {
		t.Run(name, func(t *testing.T) {
			w, k := windows(64)
			for i := range keys {
				key := key(i)
				w.At(0).Upsert(state.Hash(key), key)
			}
			store := newMemory()
			s := New(config(store, 64))
			take(t, s, 1, 1, k, 100)
			epochs := 400
			if c.written > 1 {
				epochs = 30
			}
			written, parts, entries := 0, 0, 0.0
			for n := range epochs {
				c.epoch(w, n+1)
				named := take(t, s, 1, uint64(n+2), k, 4000)
				size := k.Index()
				for i, l := range s.chain.links {
					if p, _ := parsePart(l.part.ID); p.n == uint64(n+2) {
						written += s.chain.links[i].info.entries
					}
				}
				parts = max(parts, len(named))
				if size.Entries > leastSealed {
					entries = max(entries, float64(s.chain.entries())/float64(size.Entries))
				}
				clear(store.parts)
			}
			per := float64(written) / float64(epochs) / keys
			t.Logf("written per epoch %.4f of the state, at most %d parts with %.2f times its entries", per, parts, entries)
			if per > c.written || float64(parts) > c.parts || entries > c.entries {
				t.Errorf("want at most %.4f, %.0f parts, %.2f times", c.written, c.parts, c.entries)
			}
		})
	}
}
