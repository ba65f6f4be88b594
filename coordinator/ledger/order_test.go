package ledger

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAnOrderIsASortedList: whatever is put in, taken out and thinned, walks show what a sorted list would.
func TestAnOrderIsASortedList(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 0))
		o, want := order{compare: byTxnID}, []*txn(nil)
		ids := 1 + r.IntN(4*longestRun)
		for range 6 * longestRun {
			x := &txn{Txn: Txn{ID: handID(int64(r.IntN(ids)), 0)}}
			i, there := slices.BinarySearchFunc(want, x, byTxnID)
			switch p := r.IntN(1000); {
			case p == 0:
				past := func(t *txn) bool { return t.ID >= x.ID }
				gone := func(t *txn) bool { return t.ID[len("00000000-000")]%2 == 0 } // about half of them
				o.thin(past, gone)
				want = slices.DeleteFunc(want, func(t *txn) bool { return !past(t) && gone(t) })
			case p < 10:
				if there {
					i++
				}
				if got := slices.Collect(o.behind(x)); !slices.Equal(got, want[i:]) {
					t.Fatalf("seed %d: behind %s stand %d, want %d", seed, x.ID, len(got), len(want)-i)
				}
			case p < 600 && there:
				o.put(x)
				want[i] = x
			case p < 600:
				o.put(x)
				want = slices.Insert(want, i, x)
			case there:
				o.take(x)
				want = slices.Delete(want, i, i+1)
			}
		}
		if got := slices.Collect(o.all()); !slices.Equal(got, want) || o.size != len(want) {
			t.Fatalf("seed %d: %d transactions, size %d, want %d", seed, len(got), o.size, len(want))
		}
		if first := o.first(); len(want) > 0 && first != want[0] || len(want) == 0 && first != nil {
			t.Fatalf("seed %d: the first is another", seed)
		}
		for _, run := range o.runs {
			if len(run) == 0 || len(run) > longestRun {
				t.Fatalf("seed %d: a run of %d", seed, len(run))
			}
		}
	}
}
