package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
)

func TestWindowsFireWhenTheWatermarkPassesTheirEnd(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, sums(t), "one", "two")
	r.restart()
	src.Append("0", record("1", "b", 100, 1), record("2", "a", 200, 2), record("3", "b", 999, 4))
	r.poll()
	r.epoch()
	r.expect("one")
	src.Append("0", record("4", "a", 1000, 8))
	r.poll()
	r.expect("one") // written, not decided
	r.epoch()
	r.expect("one", "a=0 2", "b=0 5")
	r.expect("two", "a=0 2", "b=0 5")
}

func TestAWindowWaitsForTheSlowestSplitAndForDisorder(t *testing.T) {
	src := processortest.NewSource("in", "0", "1")
	r := newRig(t, src, sums(t, func(w *Windowed[reading, int64]) *Windowed[reading, int64] {
		return w.Disorder(500 * time.Millisecond)
	}), "one", "two")
	r.restart()
	src.Append("0", record("1", "a", 5000, 1))
	r.poll()
	src.Append("1", record("2", "a", 1400, 2), record("3", "a", 900, 4))
	r.poll()
	r.epoch()
	r.expect("one")
	src.Append("1", record("4", "a", 1500, 8))
	r.poll()
	r.epoch()
	r.expect("one", "a=0 4")
}

func TestE7_AWindowPastTheWatermarkIsInTheEpochOrInTheSnapshot(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, sums(t), "one", "two")
	r.restart()
	src.Append("0", record("1", "a", 100, 1))
	r.poll()
	r.epoch() // open window in the snapshot
	src.Append("0", record("2", "a", 1100, 2))
	r.poll()         // fires, into the branch
	r.barrier(false) // voted, never decided
	r.restart()
	r.expect("one")
	r.poll()
	r.epoch()
	r.expect("one", "a=0 1")
	r.restart()
	r.epoch()
	r.expect("one", "a=0 1") // and never again
	if got := r.sinks["one"].Prepared(); got != 0 {
		t.Errorf("%d branches left behind", got)
	}
}

func TestE1_AnIntervalWithoutRecordsIsAnEpochWithoutBranches(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, sums(t), "one", "two")
	r.restart()
	for range 5 {
		r.epoch()
	}
	src.Append("0", record("1", "a", 100, 1))
	r.poll()
	r.epoch()
	for range 5 {
		r.epoch()
	}
	r.restart()
	r.epoch()
	_, _, c := r.scope.Last()
	if len(c.Positions) != 1 || c.Positions[0].Offset != 1 {
		t.Errorf("positions %+v, want offset 1", c.Positions)
	}
}

func TestS1_DrainFiresOpenWindowsInTheFinalEpoch(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, sums(t), "one", "two")
	r.restart()
	src.Append("0", record("1", "a", 100, 1), record("2", "a", 2100, 2))
	r.poll()
	r.barrier(true)
	r.decide()
	r.expect("two", "a=0 1", "a=2000 2")
	// What has fired stays fired; the pipeline can go on behind it.
	r.restart()
	src.Append("0", record("3", "a", 2200, 4), record("4", "a", 3100, 8))
	r.poll()
	r.barrier(true)
	r.decide()
	r.expect("two", "a=0 1", "a=2000 2", "a=3000 8")
	if c := r.task.loop.op.counts(); c.Late != 1 || c.Records != 4 {
		t.Errorf("counters %+v, want one late of four", c)
	}
}

func TestAFinalEpochWithoutDrainKeepsOpenWindows(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, sums(t), "one", "two")
	r.restart()
	src.Append("0", record("1", "a", 100, 1))
	r.poll()
	r.n++
	r.must(r.task.loop.barrier(r.ctx, participant.Barrier{Generation: 1, N: 1, Final: true}))
	r.decide()
	r.expect("one")
	r.restart()
	src.Append("0", record("2", "a", 200, 2), record("3", "a", 1000, 4))
	r.poll()
	r.epoch()
	r.expect("one", "a=0 3")
}

func TestTheEndOfABoundedSourceFiresInAnOrdinaryEpoch(t *testing.T) {
	src := processortest.NewSource("in", "0", "1")
	r := newRig(t, src, sums(t), "one", "two")
	r.restart()
	src.Append("0", record("1", "a", 100, 1))
	src.End()
	for r.poll() {
	}
	r.epoch()
	r.expect("one", "a=0 1")
	r.restart() // reads nothing, and says nothing twice
	for r.poll() {
	}
	r.epoch()
	r.expect("one", "a=0 1")
}

func TestASilentSplitHoldsWindowsBackUntilItIsIdle(t *testing.T) {
	src := processortest.NewSource("in", "0", "1")
	r := newRig(t, src, sums(t, func(w *Windowed[reading, int64]) *Windowed[reading, int64] {
		return w.IdleAfter(time.Second)
	}), "one", "two")
	r.restart()
	src.Append("0", record("1", "a", 100, 1), record("2", "a", 1500, 2))
	r.poll()
	r.must(r.task.loop.silence(r.ctx, 999))
	r.epoch()
	r.expect("one")
	src.Append("0", record("3", "a", 1600, 2))
	b, err := src.Poll(r.ctx)
	r.must(err)
	r.must(r.task.loop.batch(r.ctx, b, 1)) // waited for one more
	r.epoch()
	r.expect("one", "a=0 1")
	// The silent split speaks again: what is behind is late, and it holds back again.
	src.Append("1", record("4", "a", 50, 100), record("5", "a", 1200, 4))
	r.poll()
	src.Append("0", record("6", "a", 9000, 1))
	r.poll()
	r.epoch()
	r.expect("one", "a=0 1")
	if c := r.task.loop.op.counts(); c.Late != 1 {
		t.Errorf("counters %+v, want one late", c)
	}
}

func TestABadRecordIsNamedByItsPlace(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, sums(t), "one", "two")
	r.restart()
	src.Append("0", record("1", "a", 100, 1), stream.Record{Value: []byte(`{"id":`)})
	b, err := src.Poll(r.ctx)
	r.must(err)
	err = r.task.loop.batch(r.ctx, b, 0)
	if err == nil || !strings.HasPrefix(err.Error(), `record of topic "in", partition 0, offset 1: decode: not a JSON object`) {
		t.Errorf("got %v", err)
	}
}

// What the pipeline's own functions refuse they refuse after every restart too: a person is called at once,
// and not after ten of them (P24). Who says that it may pass is believed, and then nothing is skipped.
func TestWhatTheSameRecordsWouldMeetAgainHaltsTheScope(t *testing.T) {
	broken, passing := errors.New("broken"), fmt.Errorf("no connection: %w", participant.ErrRetry)
	for name, c := range map[string]struct {
		shape            func(s *Stream[reading], r *rig) *Stream[reading]
		ofRecord, result error
		halts            bool
		want             string
	}{
		"P24/a record":                         {ofRecord: broken, halts: true, want: `record of topic "in", partition 0, offset 0: map: broken; correct the pipeline, or let it skip bad records or send them to dead letters`},
		"P24/a result":                         {result: broken, halts: true, want: `encode the result of a key of 1 bytes (SHA-256 begins with ca978112ca1bbdca) in window 0 for sink "one": broken; write its output so that it cannot fail`},
		"a record that may pass":               {ofRecord: passing, want: `record of topic "in", partition 0, offset 0: map: no connection: temporary`},
		"a result that may pass":               {result: passing, want: `encode the result of a key of 1 bytes (SHA-256 begins with ca978112ca1bbdca) in window 0 for sink "one": no connection: temporary`},
		"skipped, a record that may pass":      {ofRecord: passing, shape: func(s *Stream[reading], _ *rig) *Stream[reading] { return s.SkipBad() }, want: "record of topic"},
		"dead letters, a record that may pass": {ofRecord: passing, shape: func(s *Stream[reading], r *rig) *Stream[reading] { return s.DeadLetters("two", r.sinks["two"]) }, want: "record of topic"},
	} {
		t.Run(name, func(t *testing.T) {
			src := processortest.NewSource("in", "0")
			r := newRig(t, src, func(r *rig) *Pipeline {
				s := From("in", src, decodeReading()).EventTime(at)
				if c.shape != nil {
					s = c.shape(s, r)
				}
				same := Map(s, func(in, out *reading) error { *out = *in; return c.ofRecord }).Key(byKey)
				p, err := Tumbling(same, time.Second, aggregate.Sum(value)).
					To("one", r.sinks["one"], func(*Result[int64], *stream.Record) error { return c.result }).Pipeline("test")
				r.must(err)
				return p
			}, "one", "two")
			r.restart()
			src.Append("0", record("1", "a", 100, 1), record("2", "a", 2000, 1))
			b, err := src.Poll(r.ctx)
			r.must(err)
			err = r.task.loop.batch(r.ctx, b, 0)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || errors.Is(err, participant.ErrMisconfigured) != c.halts {
				t.Errorf("got %v (halts: %v), want %q (%v)", err, errors.Is(err, participant.ErrMisconfigured), c.want, c.halts)
			}
			if n := r.task.loop.op.counts(); n.Skipped+n.DeadLettered > 0 {
				t.Errorf("counters %+v", n)
			}
		})
	}
}

func TestASumThatOverflowsIsAnErrorOrSkipped(t *testing.T) {
	for _, skip := range []bool{false, true} {
		src := processortest.NewSource("in", "0")
		r := newRig(t, src, func(r *rig) *Pipeline {
			s := From("in", src, decodeReading()).EventTime(at).Key(byKey)
			if skip {
				s = s.SkipBad()
			}
			p, err := Tumbling(s, time.Second, aggregate.Sum(value)).To("one", r.sinks["one"], encodeSum).Pipeline("test")
			r.must(err)
			return p
		}, "one")
		r.restart()
		src.Append("0", record("1", "a", 1, 1<<62), record("2", "a", 2, 1<<62), record("3", "a", 3, 5))
		b, err := src.Poll(r.ctx)
		r.must(err)
		err = r.task.loop.batch(r.ctx, b, 0)
		if !skip {
			if !errors.Is(err, aggregate.ErrOverflow) {
				t.Errorf("got %v, want ErrOverflow", err)
			}
			continue
		}
		r.must(err)
		r.barrier(true)
		r.decide()
		r.expect("one", fmt.Sprintf("a=0 %d", 1<<62+5))
		if c := r.task.loop.op.counts(); c.Skipped != 1 || c.Windowed != 2 {
			t.Errorf("counters %+v, want one skipped of three", c)
		}
	}
}

func TestAFailedWriteIsNeverSkipped(t *testing.T) {
	broken := errors.New("disk is full")
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, func(r *rig) *Pipeline {
		s := From("in", src, decodeReading()).EventTime(at).Key(byKey).SkipBad()
		p, err := Tumbling(s, time.Second, aggregate.Sum(value)).To("one", r.sinks["one"], encodeSum).Late("late", r.sinks["late"], encodeLate).Pipeline("test")
		r.must(err)
		return p
	}, "one", "late")
	r.restart()
	src.Batch = 2000
	src.Append("0", record("1", "a", 5000, 1))
	for range outBatch {
		src.Append("0", record("x", "a", 1, 1))
	}
	r.sinks["late"].FailWrite(broken)
	b, err := src.Poll(r.ctx)
	r.must(err)
	if err := r.task.loop.batch(r.ctx, b, 0); !errors.Is(err, broken) || !strings.Contains(err.Error(), `sink "late"`) {
		t.Errorf("got %v", err)
	}
}

// TestEveryRecordOnceAcrossRestartsAnywhere: whatever the order of records, batches, epochs and
// restarts, every record is in the right window once, or late once; no window fires twice; and all sinks say the same.
func TestEveryRecordOnceAcrossRestartsAnywhere(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		splits := []string{"0", "1", "2"}[:rapid.IntRange(1, 3).Draw(rt, "splits")]
		disorder := rapid.Int64Range(0, 300).Draw(rt, "disorder")
		within := rapid.Bool().Draw(rt, "within the bound")
		src := processortest.NewSource("in", splits...)
		src.Wait = 0
		parts := newMemory()
		r := newRig(t, src, idsPipeline(disorder, parts), "one", "two", "late")
		if rapid.Bool().Draw(rt, "state in a store") {
			r.scope.InlineLimit = 130 // hardly more than the watermarks need
		}
		r.restart()
		clock := map[string]int64{}
		made := map[string]reading{}
		pending := 0
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				split := rapid.SampledFrom(splits).Draw(rt, "split")
				clock[split] += rapid.Int64Range(0, 150).Draw(rt, "step")
				bound := disorder
				if !within {
					bound = 2000
				}
				when := clock[split] - rapid.Int64Range(0, bound).Draw(rt, "behind")
				id, key := fmt.Sprintf("r%d", len(made)), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
				made[id] = reading{key: []byte(key), at: when}
				src.Append(split, record(id, key, when, 1))
			},
			"poll": func(rt *rapid.T) {
				if pending < 2 { // else the pipeline would be held back, and this is one goroutine
					src.Batch = rapid.IntRange(1, 4).Draw(rt, "batch")
					r.poll()
				}
			},
			"barrier": func(*rapid.T) {
				if pending < 2 {
					r.barrier(false)
					pending++
				}
			},
			"decide": func(*rapid.T) {
				if pending > 0 {
					r.decide()
					retire(r)
					pending--
				}
			},
			"restart": func(*rapid.T) {
				r.restart()
				pending = 0
			},
		})
		for ; pending > 0 && rapid.Bool().Draw(rt, "decided in the end"); pending-- {
			r.decide()
			retire(r)
		}
		r.restart() // which sweeps
		for _, id := range kept(r) {
			if _, err := parts.Get(r.ctx, "test.0."+id); err != nil {
				rt.Fatalf("restore points name %s, which is gone", id)
			}
		}
		if have := len(parts.parts); have != len(kept(r)) {
			rt.Fatalf("%d parts are in the store, and restore points name %v", have, kept(r))
		}
		src.Batch = 100
		src.End()
		for r.poll() {
		}
		r.barrier(true)
		r.decide()
		judge(rt, r, made, within)
	})
}

// memory is a store in memory.
type memory struct {
	mu    sync.Mutex // guards parts
	parts map[string][]byte
}

func newMemory() *memory { return &memory{parts: map[string][]byte{}} }

func (*memory) Name() string { return "memory" }

func (m *memory) Put(_ context.Context, id string, body []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parts[id] = slices.Clone(body)
	return nil
}

func (m *memory) Get(_ context.Context, id string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.parts[id]; ok {
		return b, nil
	}
	return nil, state.ErrNoPart
}

func (m *memory) Delete(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.parts, id)
	return nil
}

func (m *memory) List(_ context.Context, prefix string) (ids []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.parts {
		if strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func idsPipeline(disorder int64, parts *memory) func(r *rig) *Pipeline {
	return func(r *rig) *Pipeline {
		s := From("in", r.source, decodeReading()).EventTime(at).Key(byKey)
		p, err := Tumbling[reading, []string](s, time.Second, ids{}).Disorder(time.Duration(disorder)*time.Millisecond).
			To("one", r.sinks["one"], encodeIDs).To("two", r.sinks["two"], encodeIDs).
			Late("late", r.sinks["late"], encodeLate).Pipeline("test", StateStore(parts))
		r.must(err)
		return p
	}
}

// judge compares the sinks with the records that were made.
func judge(t *rapid.T, r *rig, made map[string]reading, within bool) {
	one, two := r.sinks["one"].Committed(), r.sinks["two"].Committed()
	if fmt.Sprint(one) != fmt.Sprint(two) {
		t.Fatalf("the sinks differ:\n%v\n%v", one, two)
	}
	seen, windows := map[string]int{}, map[string]int{}
	for _, c := range one {
		start, key := string(c.Record.Headers[0].Value), string(c.Record.Key)
		windows[start+"/"+key]++
		for _, id := range strings.Fields(string(c.Record.Value)) {
			seen[id]++
			m := made[id]
			if want := fmt.Sprint(m.at - ((m.at%1000)+1000)%1000); want != start || string(m.key) != key {
				t.Fatalf("record %s at %d of key %s is in window %s of key %s", id, m.at, m.key, start, key)
			}
		}
	}
	late := r.sinks["late"].Committed()
	for _, c := range late {
		seen[string(c.Record.Value)]++
	}
	for w, n := range windows {
		if n != 1 {
			t.Fatalf("window %s fired %d times", w, n)
		}
	}
	for id := range made {
		if seen[id] != 1 {
			t.Fatalf("record %s is in the outputs %d times", id, seen[id])
		}
	}
	c := r.task.loop.op.counts()
	if int(c.Records) != len(made) || int(c.Windowed) != len(made)-len(late) || int(c.Late) != len(late) || int(c.Fired) != len(one) {
		t.Fatalf("counters %+v for %d records, %d late, %d results", c, len(made), len(late), len(one))
	}
	if within && len(late) > 0 {
		t.Fatalf("%d records within the bound of their split were late", len(late))
	}
}

func TestTheFirstPositionOfASplitIsKeptWithoutARecord(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, sums(t), "one", "two")
	r.restart()
	split := stream.Split{Resource: "in", ID: "0"}
	now := &stream.Batch{Split: split, Next: stream.Position{Split: split, Opaque: []byte("topic id")}, HighWater: -1}
	r.must(r.task.loop.batch(r.ctx, now, 0))
	r.must(r.run.Await(r.ctx, func(work, _ bool, _ int64) bool { return work }))
	r.epoch()
	_, _, c := r.scope.Last()
	if len(c.Positions) != 1 || c.Positions[0].Split != "0" || string(c.Positions[0].Opaque) != "topic id" {
		t.Errorf("positions %+v", c.Positions)
	}
	if lag := r.task.loop.lag(); lag != -1 {
		t.Errorf("lag %d of a split whose end is unknown", lag)
	}
}
