package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

// keysOf is how many keys a test of volume has: a million, or fewer where it must be fast, as under the race
// detector, which gains nothing from more.
func keysOf(t testing.TB) int {
	if testing.Short() {
		return 10_000
	}
	return 1_000_000
}

// summary is an accumulator as aggregates have them: 32 bytes.
type summary struct{ count, sum, least, most int64 }

func putSummary(dst []byte, a *summary) []byte {
	for _, n := range []int64{a.count, a.sum, a.least, a.most} {
		dst = put(dst, &n)
	}
	return dst
}

func getSummary(src []byte, a *summary) error {
	d := state.Decoder{Rest: src}
	a.count, a.sum, a.least, a.most = d.Varint(), d.Varint(), d.Varint(), d.Varint()
	return d.Err
}

// large is a state of many keys, and who changes it.
type large struct {
	w      *state.Windows[summary]
	k      state.Keyed
	keys   int
	random *rand.Rand
	key    []byte
}

func newLarge(keys int) *large {
	w := new(state.Windows[summary])
	l := &large{w: w, k: state.OfWindows(w, 128, putSummary, getSummary), keys: keys, random: rand.New(rand.NewPCG(1, 2))}
	for range 4 { // records per key
		for i := range keys {
			l.touch(i)
		}
	}
	return l
}

func (l *large) touch(i int) {
	l.key = fmt.Appendf(l.key[:0], "customer-%08d", i)
	acc, made := l.w.At(0).Upsert(state.Hash(l.key), l.key)
	v := l.random.Int64N(10_000)
	if made {
		acc.least = v
	}
	acc.count++
	acc.sum += v
	acc.least, acc.most = min(acc.least, v), max(acc.most, v)
}

// change touches so many keys, each another one.
func (l *large) change(n int) {
	step := l.keys / n
	off := l.random.IntN(step)
	for i := range n {
		l.touch(i*step + (off+l.random.IntN(step))%step)
	}
}

func TestAnEpochThatChangesOnePercentWritesAtMostThree(t *testing.T) {
	if testing.Short() {
		t.Skip("counts bytes of one goroutine; takes seconds under the race detector")
	}
	keys := keysOf(t)
	l := newLarge(keys)
	store := newMemory()
	s := New(config(store, 128))
	take(t, s, 1, 1, l.k, 64<<10)
	var most, mostParts, mostVote int
	const epochs = 3 * cycle
	before := store.written
	for n := range epochs {
		l.change(keys / 100)
		begin := store.written
		parts := take(t, s, 1, uint64(n+2), l.k, 64<<10)
		most, mostParts = max(most, store.written-begin), max(mostParts, len(parts))
		vote := 0
		for _, p := range parts {
			vote += len(p.ID) + len(p.Operator) + len(p.Store) + len(p.Body) + 8
		}
		mostVote = max(mostVote, vote)
		named := map[string]bool{} // what retiring at once would leave
		for _, p := range parts {
			named["test.0."+p.ID] = true
		}
		for id := range store.parts {
			if !named[id] {
				delete(store.parts, id)
			}
		}
	}
	mean := float64(store.written-before) / epochs
	whole := newMemory()
	take(t, New(config(whole, 128)), 1, 1, l.k, 64<<10)
	full := whole.written
	t.Logf("%d keys: full state %d bytes, an epoch with 1 %% changed %.0f bytes (%.2f %%), at most %d (%.2f %%); at most %d parts, %d bytes of them in a vote",
		keys, full, mean, 100*mean/float64(full), most, 100*float64(most)/float64(full), mostParts, mostVote)
	if mean > 0.03*float64(full) {
		t.Errorf("an epoch wrote %.2f %% of the full state, want at most 3 %%", 100*mean/float64(full))
	}
	if mostParts > cycle+baseParts+8 {
		t.Errorf("a vote named %d parts", mostParts)
	}
	stored := 0
	for _, b := range store.parts {
		stored += len(b)
	}
	if stored > 3*full {
		t.Errorf("a restore point has %d bytes, and the full state %d", stored, full)
	}
}

func TestARestartWithAMillionKeysTakesSeconds(t *testing.T) {
	keys := keysOf(t)
	path := t.TempDir()
	dir, err := state.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	l := newLarge(keys)
	s := New(config(dir, 128))
	parts := take(t, s, 1, 1, l.k, 64<<10)
	for n := range cycle - 1 {
		l.change(keys / 100)
		parts = take(t, s, 1, uint64(n+2), l.k, 64<<10)
	}
	want := l.w.At(0)
	// Another process, with the same directory.
	dir, err = state.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	restore := func() *state.Windows[summary] {
		w := new(state.Windows[summary])
		k := state.OfWindows(w, 128, putSummary, getSummary)
		if err := load(t, New(config(dir, 128)), point{parts: parts}.restore(2, nil), k); err != nil {
			t.Fatal(err)
		}
		return w
	}
	began, busy := time.Now(), processorTime(t)
	w := restore()
	took, used := time.Since(began), processorTime(t)-busy
	heap := watchHeap()
	runtime.KeepAlive(restore())
	grew, _ := heap()
	t.Logf("%d keys from %d parts in %v, %v of the processor; the heap grew by at most %d MiB, the state included",
		keys, len(parts), took, used, grew>>20)
	got := w.At(0)
	if got.Len() != keys || got.Len() != want.Len() {
		t.Fatalf("%d keys, want %d", got.Len(), want.Len())
	}
	err = want.Each(func(hash uint64, key []byte, acc *summary) error {
		if a, made := got.Upsert(hash, key); made || *a != *acc {
			return fmt.Errorf("key %q holds %v, want %v", key, *a, *acc)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if used > 5*time.Second { // what it takes where nobody else is at work, and one processor
		t.Errorf("it took %v of the processor, want at most 5s", used)
	}
}

// processorTime is what this process has used so far.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// watchHeap follows the size of the live heap and what was allocated beside it; the function it returns says
// how much it grew at most, and in the end.
func watchHeap() func() (most, now uint64) {
	read := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	gc := debug.SetGCPercent(10)
	runtime.GC()
	before, most := read(), uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		often := time.NewTicker(500 * time.Microsecond)
		defer often.Stop()
		for {
			most = max(most, read())
			select {
			case <-stop:
				return
			case <-often.C:
			}
		}
	}()
	return func() (uint64, uint64) {
		close(stop)
		<-stopped
		runtime.GC()
		now := read()
		debug.SetGCPercent(gc)
		return most - min(most, before), now - min(now, before)
	}
}

func TestASnapshotIsNoSecondCopyOfTheState(t *testing.T) {
	keys := keysOf(t)
	dir, err := state.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	empty := m.HeapAlloc
	l := newLarge(keys)
	runtime.GC()
	runtime.ReadMemStats(&m)
	size := m.HeapAlloc - empty
	s := New(config(dir, 128))
	heap := watchHeap()
	take(t, s, 1, 1, l.k, 64<<10)
	base, _ := heap()
	heap = watchHeap()
	for n := range 20 {
		l.change(keys / 100)
		take(t, s, 1, uint64(n+2), l.k, 64<<10)
	}
	changes, _ := heap()
	t.Logf("%d keys: the state has %d MiB; a base took %d MiB beside it at most, changes %d MiB", keys, size>>20, base>>20, changes>>20)
	if !testing.Short() && (base > size/2 || changes > size/4) {
		t.Errorf("the state has %d bytes, and its snapshots took %d and %d beside it", size, base, changes)
	}
}

// BenchmarkEpoch: one op is what the loop itself spends on the snapshot of an epoch in which 1 % of a million keys have changed.
func BenchmarkEpoch(b *testing.B) {
	dir, err := state.OpenDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	const keys = 1_000_000
	l := newLarge(keys)
	s := New(config(dir, 128))
	take(b, s, 1, 1, l.k, 64<<10)
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		b.StopTimer()
		l.change(keys / 100)
		b.StartTimer()
		snap, err := s.Take(b.Context(), participant.Barrier{Generation: 1, N: uint64(n + 2)}, []byte("the operator's meta"), l.k, 64<<10)
		b.StopTimer()
		if err != nil {
			b.Fatal(err)
		}
		if err := snap.Ready(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
