package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

// life is a process that takes snapshots of a growing state in a directory, and a ledger that outlives it.
type life struct {
	t    *testing.T
	s    *Snapshots
	w    *state.Windows[int64]
	k    state.Keyed
	kept []point // decided, the ledger's
	seed int
}

const keptPoints = 2

func (l *life) begin(store state.Store, generation uint64) error {
	l.s = New(config(store, groups))
	l.w, l.k = windows(groups)
	var named []string
	for _, p := range l.kept {
		for _, part := range p.parts {
			named = append(named, part.ID)
		}
	}
	if len(l.kept) > 0 {
		p := l.kept[len(l.kept)-1]
		if err := load(l.t, l.s, p.restore(generation, named), l.k); err != nil {
			return fmt.Errorf("restore point %d.%d: %w", p.generation, p.n, err)
		}
		equal(l.t, dump(l.t, l.k, groups), p.state)
	}
	return l.s.Sweep(l.t.Context(), generation, named)
}

// epochs goes on until an epoch can't be voted for, or there were so many.
func (l *life) epochs(generation uint64, n int) error {
	for i := range n {
		if err := l.epoch(generation, uint64(i+1)); err != nil {
			return err
		}
	}
	return nil
}

func (l *life) epoch(generation, n uint64) error {
	records := 300
	if len(l.kept) == 0 {
		records = 6000 // the first epoch: a base of some parts, then changes
		l.s.perEntry = 6000
	}
	for range records {
		l.seed++
		key := fmt.Appendf(nil, "key-%d", l.seed*7919%3000)
		acc, _ := l.w.At(int64(l.seed%3)*1000).Upsert(state.Hash(key), key)
		*acc += int64(l.seed)
	}
	snap, err := l.s.Take(l.t.Context(), participant.Barrier{Generation: generation, N: n}, []byte("the operator's meta"), l.k, 150)
	if err == nil && snap.Ready != nil {
		err = snap.Ready(l.t.Context())
	}
	if err != nil {
		return err
	}
	// The vote leaves here, and is decided.
	l.kept = append(l.kept, point{generation, n, cloneParts(snap.Parts), dump(l.t, l.k, groups)})
	var gone []string
	for ; len(l.kept) > keptPoints; l.kept = l.kept[1:] {
		for _, part := range l.kept[0].parts {
			if !slices.ContainsFunc(l.kept[1:], func(p point) bool {
				return slices.ContainsFunc(p.parts, func(o participant.StatePart) bool { return o.ID == part.ID })
			}) {
				gone = append(gone, part.ID)
			}
		}
	}
	return l.s.Retired(l.t.Context(), gone)
}

// afterwards restores every kept restore point, and goes on.
func (l *life) afterwards(store state.Store, what string) {
	l.t.Helper()
	for _, p := range l.kept {
		w, k := windows(groups)
		_ = w
		if err := load(l.t, New(config(store, groups)), p.restore(8, nil), k); err != nil {
			l.t.Fatalf("%s: restore point %d.%d: %v", what, p.generation, p.n, err)
		}
		equal(l.t, dump(l.t, k, groups), p.state)
	}
	if err := l.begin(store, 9); err != nil {
		l.t.Fatalf("%s: %v", what, err)
	}
	if err := l.epochs(9, 2); err != nil {
		l.t.Fatalf("%s: %v", what, err)
	}
	l.s.Wait()
	ids, err := store.List(l.t.Context(), "")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, id := range ids {
		if !slices.ContainsFunc(l.kept, func(p point) bool {
			return slices.ContainsFunc(p.parts, func(part participant.StatePart) bool { return "test.0."+part.ID == id })
		}) {
			l.t.Fatalf("%s: %s is left behind", what, id)
		}
	}
}

// TestE4_ThePowerIsLostAnywhere cuts the power behind every operation of the disk: what was decided is there, exactly.
func TestE4_ThePowerIsLostAnywhere(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 14
	}
	restored := 0
	for n := 0; ; n += step {
		disk := crashfs.NewMem("/data")
		dir, err := state.OpenDirOn(disk, "/data/state")
		if err != nil {
			t.Fatal(err)
		}
		l := &life{t: t}
		disk.CrashAfter(n)
		if err := l.begin(dir, 1); err == nil {
			err = l.epochs(1, 6)
			if (err != nil) != disk.Crashed() {
				t.Fatalf("after %d operations: %v, crashed %v", n, err, disk.Crashed())
			}
		}
		l.s.Wait()
		done := !disk.Crashed()
		disk.Reboot()
		if dir, err = state.OpenDirOn(disk, "/data/state"); err != nil {
			t.Fatal(err)
		}
		restored += len(l.kept)
		l.afterwards(dir, fmt.Sprintf("power lost after %d operations", n))
		if done {
			break
		}
	}
	if restored == 0 {
		t.Error("no restore point was ever decided")
	}
}

// TestE4_TheProcessDiesAtEveryPoint kills what writes and deletes, at each point in turn and each time it is reached.
func TestE4_TheProcessDiesAtEveryPoint(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs -tags faults")
	}
	step := 1
	if testing.Short() {
		step = 4 // each point the first time it is reached, and every fourth time behind it
	}
	for _, point := range []string{
		"checkpoint/before-put", "state/before-sync", "state/before-rename", "state/after-rename", "checkpoint/after-put",
		"checkpoint/before-retire", "state/before-delete",
	} {
		t.Run(point, func(t *testing.T) {
			for nth := 1; ; nth += step {
				dir, err := state.OpenDir(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				l := &life{t: t}
				die, died := killer(point, nth)
				restore := fault.Set(die)
				finished := make(chan struct{})
				go func() {
					defer close(finished)
					if l.begin(dir, 1) == nil {
						_ = l.epochs(1, 6) // what was decided is in l.kept
					}
				}()
				<-finished
				l.s.Wait()
				restore()
				if !died() {
					return
				}
				l.afterwards(dir, fmt.Sprintf("died at %s, time %d", point, nth))
			}
		})
	}
}

func TestE4_AStoreThatFailsGivesNoSnapshot(t *testing.T) {
	store := &failing{memory: newMemory(), after: 2}
	l := &life{t: t}
	if err := l.begin(store, 1); err != nil {
		t.Fatal(err)
	}
	if err := l.epochs(1, 6); !errors.Is(err, errFull) {
		t.Fatalf("got %v, want %v", err, errFull)
	}
	l.s.Wait()
	l.afterwards(store.memory, "the store failed")
}

var errFull = errors.New("the store is full")

// failing fails to put from some time on.
type failing struct {
	*memory
	after int
}

func (f *failing) Put(ctx context.Context, id string, body []byte) error {
	f.mu.Lock()
	full := f.puts >= f.after
	f.mu.Unlock()
	if full {
		return errFull
	}
	return f.memory.Put(ctx, id, body)
}

// killer ends the goroutine that comes to a point for the n-th time, and all that come to any point after it.
func killer(point string, nth int) (die func(name string) error, died func() bool) {
	seen := make(chan int, 1)
	seen <- 0
	die = func(name string) error {
		n := <-seen
		if name == point || n >= nth {
			n++
		}
		seen <- n
		if n >= nth {
			runtime.Goexit()
		}
		return nil
	}
	return die, func() bool {
		n := <-seen
		seen <- n
		return n >= nth
	}
}
