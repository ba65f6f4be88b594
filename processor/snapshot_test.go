package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/state"
)

// stored makes a rig whose votes are so small that the state lies in a directory.
func stored(t *testing.T, src *processortest.Source) (*rig, *state.Dir) {
	t.Helper()
	dir, err := state.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return storedIn(t, src, dir), dir
}

func storedIn(t *testing.T, src *processortest.Source, store state.Store) *rig {
	t.Helper()
	r := newRig(t, src, func(r *rig) *Pipeline {
		w := Tumbling(From("in", r.source, decodeReading()).EventTime(at).Key(byKey), time.Second, aggregate.Sum(value))
		p, err := w.To("one", r.sinks["one"], encodeSum).Pipeline("test", StateStore(store))
		r.must(err)
		return p
	}, "one")
	r.scope.InlineLimit = 200
	return r
}

func list(r *rig, dir *state.Dir) []string {
	r.t.Helper()
	ids, err := dir.List(r.ctx, "test.0.main.")
	r.must(err)
	for i := range ids {
		ids[i] = strings.TrimPrefix(ids[i], "test.0.")
	}
	return ids
}

func kept(r *rig) []string {
	var ids []string
	for _, id := range r.scope.KeptParts() {
		if !strings.HasSuffix(id, ".0") { // inline
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func TestP9_NoPartThatARestorePointNamesIsDeleted(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r, dir := stored(t, src)
	next := 0
	fill := func() {
		for range 50 {
			src.Append("0", record("x", fmt.Sprintf("key-%04d", next*7919%10007), 100, 1))
			next++
		}
		for r.poll() {
		}
	}
	whole := func(when string) {
		t.Helper()
		have := list(r, dir)
		for _, id := range kept(r) {
			if !slices.Contains(have, id) {
				t.Fatalf("%s: restore points name %s, which is gone; there are %v", when, id, have)
			}
		}
	}
	for range 4 {
		r.restart()
		for range 5 {
			fill()
			r.barrier(false)
			whole("before the decision")
			r.decide()
			// A quiet epoch names the same parts again.
			r.epoch()
			retire(r)
			whole("after retiring")
			if have := list(r, dir); len(have) > len(kept(r)) {
				t.Fatalf("%v is there, and restore points name only %v", have, kept(r))
			}
		}
		fill()
		r.barrier(false) // its parts are in the store, and nothing will ever name them
		_, err := r.run.Contribution(r.ctx, r.n)
		r.must(err)
	}
	orphans := list(r, dir)
	r.restart()
	whole("after a restart")
	if have := list(r, dir); len(have) != len(kept(r)) || len(have) >= len(orphans) {
		t.Errorf("%v is there after a restart, and restore points name %v", have, kept(r))
	}
	for r.poll() {
	}
	r.barrier(true)
	r.decide()
	if got := len(r.values("one")); got != next {
		t.Errorf("%d results, want %d", got, next)
	}
}

func TestP9_ChangesOnTopOfABaseSurviveRestartsAnywhere(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r, dir := stored(t, src)
	want := map[string]int64{}
	add := func(n, step int) {
		for i := range n {
			key := fmt.Sprintf("key-%04d", i*step%3000)
			src.Append("0", record("x", key, 100, int64(i)))
			want[key] += int64(i)
		}
		for r.poll() {
		}
	}
	r.restart()
	add(3000, 1)
	r.epoch()
	changes := 0
	for round := range 12 {
		add(300, 1+2*round)
		r.epoch()
		retire(r)
		_, _, c := r.scope.Last()
		for _, part := range c.Parts[1:] {
			if part.ID == fmt.Sprintf("main.window.%d.%d.1", r.task.gen, r.n) && len(c.Parts) > 2 {
				changes++
			}
		}
		if have := list(r, dir); len(have) != len(kept(r)) {
			t.Fatalf("%v is there, and restore points name %v", have, kept(r))
		}
		switch round % 3 {
		case 1:
			r.restart()
		case 2: // with an epoch that is lost
			src.Append("0", record("x", "key-0001", 100, 5))
			want["key-0001"] += 5
			r.poll()
			r.barrier(false)
			r.restart()
		}
		for r.poll() {
		}
	}
	if changes < 8 {
		t.Errorf("%d of 12 epochs wrote changes", changes)
	}
	r.barrier(true)
	r.decide()
	var got []string
	for key, sum := range want {
		got = append(got, fmt.Sprintf("%s=0 %d", key, sum))
	}
	slices.Sort(got)
	r.expect("one", got...)
}

func retire(r *rig) {
	r.t.Helper()
	for {
		select {
		case ids := <-r.run.Retired():
			r.must(r.task.snap.Retired(r.ctx, ids))
		default:
			return
		}
	}
}

func TestP9_APausedRestoreDeletesNothingOfItsSuccessor(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r, dir := stored(t, src)
	for i := range 50 {
		src.Append("0", record("x", fmt.Sprintf("key-%04d", i*7919%10007), 100, 1))
	}
	r.restart()
	zombie, generation := r.task, r.task.gen
	for range 2 { // generation 1 wakes up in its restore when generation 3 has state in the store
		r.restart()
	}
	for r.poll() {
	}
	r.epoch()
	before := list(r, dir)
	if len(before) == 0 {
		t.Fatal("nothing is in the store")
	}
	r.must(zombie.snap.Sweep(r.ctx, generation, nil))
	r.must(zombie.snap.Retired(r.ctx, []string{"other.window.1.1.1", "main"}))
	if after := list(r, dir); !slices.Equal(before, after) {
		t.Errorf("%v is left of %v", after, before)
	}
}

func TestPartsOfOtherPipelinesAreLeftAlone(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r, dir := stored(t, src)
	for _, id := range []string{"test.0.main-eu.window.0.1.1", "test.1.main.window.0.1.1", "test2.0.main.window.0.1.1", "test.0.main.odd"} {
		r.must(dir.Put(r.ctx, id, []byte("x")))
	}
	r.must(dir.Put(r.ctx, "test.0.main.window.0.1.1", []byte("x")))
	r.restart()
	all, err := dir.List(r.ctx, "")
	r.must(err)
	if want := []string{"test.0.main-eu.window.0.1.1", "test.0.main.odd", "test.1.main.window.0.1.1", "test2.0.main.window.0.1.1"}; !slices.Equal(all, want) {
		t.Errorf("%v is left, want %v", all, want)
	}
}

func TestStateThatFitsNowhereIsRefused(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, sums(t), "one", "two")
	r.scope.InlineLimit = 200
	r.restart()
	for i := range 200 {
		src.Append("0", record("x", fmt.Sprintf("key-%04d", i*7919%10007), 100, 1))
	}
	for r.poll() {
	}
	err := r.task.loop.barrier(r.ctx, participant.Barrier{Generation: 1, N: 1})
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "StateStore") {
		t.Errorf("got %v", err)
	}
}

func TestS6_StateOfAnotherSpecificationIsRefused(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, sums(t), "one", "two")
	r.restart()
	src.Append("0", record("1", "a", 100, 1))
	r.poll()
	r.epoch()
	old := r.build
	for name, change := range map[string]func(w *Windowed[reading, int64]) (*Pipeline, error){
		"window size": func(w *Windowed[reading, int64]) (*Pipeline, error) {
			w.shape.size, w.shape.every = 2*time.Second, 2*time.Second
			return w.Pipeline("test")
		},
		"aggregate": func(w *Windowed[reading, int64]) (*Pipeline, error) {
			w.agg = aggregate.Max(value)
			return w.Pipeline("test")
		},
		"key groups":  func(w *Windowed[reading, int64]) (*Pipeline, error) { return w.Pipeline("test", KeyGroups(64)) },
		"operator id": func(w *Windowed[reading, int64]) (*Pipeline, error) { return w.ID("other").Pipeline("test") },
	} {
		t.Run("S6/"+name, func(t *testing.T) {
			r.build = func() *Pipeline {
				w := Tumbling(From("in", src, decodeReading()).EventTime(at).Key(byKey), time.Second, aggregate.Sum(value)).
					To("one", r.sinks["one"], encodeSum).To("two", r.sinks["two"], encodeSum)
				p, err := change(w)
				r.must(err)
				return p
			}
			if err := r.tryRestart(); !errors.Is(err, participant.ErrMisconfigured) {
				t.Errorf("got %v", err)
			}
		})
	}
	r.build = old
	r.restart()
	restore, _, err := r.scope.Open(r.ctx)
	r.must(err)
	restore.Parts = nil
	if err := r.task.Restore(r.ctx, restore); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("a restore point without state: %v", err)
	}
}

func TestASplitKeepsItsWatermarkAcrossARestart(t *testing.T) {
	src := processortest.NewSource("in", "0", "1")
	r := newRig(t, src, sums(t), "one", "two")
	r.restart()
	src.Append("1", record("1", "a", 5000, 1))
	r.poll()
	src.Append("0", record("2", "a", 500, 2))
	r.poll()
	r.epoch()
	r.restart()
	src.Append("0", record("3", "a", 1000, 4))
	r.poll()
	r.epoch()
	r.expect("one", "a=0 2")
}

// flaky is a store that cannot write while it is broken.
type flaky struct {
	state.Store
	broken bool
}

var errBroken = errors.New("disk is full")

func (f *flaky) Put(ctx context.Context, id string, body []byte) error {
	if f.broken {
		return errBroken
	}
	return f.Store.Put(ctx, id, body)
}

func TestE4_WithoutADurableSnapshotThereIsNoVote(t *testing.T) {
	src := processortest.NewSource("in", "0")
	dir, err := state.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	store := &flaky{Store: dir, broken: true}
	r := storedIn(t, src, store)
	for i := range 50 {
		src.Append("0", record("x", fmt.Sprintf("key-%04d", i*7919%10007), 100, 1))
	}
	r.restart()
	for r.poll() {
	}
	r.barrier(false)
	if err := r.scope.Decide(r.ctx); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	store.broken = false
	r.restart()
	for r.poll() {
	}
	r.barrier(true)
	r.decide()
	if got := len(r.values("one")); got != 50 {
		t.Errorf("%d results, want 50", got)
	}
}

func TestADamagedPartIsNamed(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r, dir := stored(t, src)
	for i := range 50 {
		src.Append("0", record("x", fmt.Sprintf("key-%04d", i*7919%10007), 100, 1))
	}
	r.restart()
	for r.poll() {
	}
	r.epoch()
	part := kept(r)[0]
	body, err := dir.Get(r.ctx, "test.0."+part)
	r.must(err)
	body[len(body)/2] ^= 1
	r.must(dir.Put(r.ctx, "test.0."+part, body))
	if err := r.tryRestart(); !errors.Is(err, state.ErrFormat) || !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v", err)
	}
	r.must(dir.Delete(r.ctx, "test.0."+part))
	if err := r.tryRestart(); !errors.Is(err, state.ErrNoPart) || !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v", err)
	}
}
