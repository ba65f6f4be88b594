package processor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
)

// encodeUpdate is encodeSum with a "+" behind updates.
func encodeUpdate(r *Result[int64], out *stream.Record) error {
	if err := encodeSum(r, out); err != nil {
		return err
	}
	if r.Update {
		out.Value = append(out.Value, '+')
	}
	return nil
}

// shaped is a pipeline of sums into "one", with late records in "late".
func shaped(lateness time.Duration, window func(*Stream[reading]) *Windowed[reading, int64]) func(r *rig) *Pipeline {
	return func(r *rig) *Pipeline {
		s := From("in", r.source, decodeReading()).EventTime(at).Key(byKey)
		p, err := window(s).AllowedLateness(lateness).
			To("one", r.sinks["one"], encodeUpdate).Late("late", r.sinks["late"], encodeLate).Pipeline("test")
		r.must(err)
		return p
	}
}

func perSecond(s *Stream[reading]) *Windowed[reading, int64] {
	return Tumbling(s, time.Second, aggregate.Sum(value))
}

// allOf takes everything that is there through the loop.
func (r *rig) allOf() {
	r.t.Helper()
	for r.poll() {
	}
}

func TestALateRecordWithinTheLatenessUpdatesItsResultAtOnce(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, shaped(2*time.Second, perSecond), "one", "late")
	r.restart()
	src.Append("0",
		record("1", "a", 100, 1), record("2", "a", 1000, 2), // fires 0
		record("3", "a", 200, 4), record("4", "b", 300, 8), record("5", "a", 400, 16), // updates, b is new
		record("6", "a", 2999, 32), record("7", "a", 999, 64), // fires 1000; still allowed
		record("8", "a", 3000, 128), record("9", "a", 999, 256)) // window 0 is past its lateness
	r.allOf()
	r.epoch()
	r.expect("one", "a=0 1", "a=0 5+", "b=0 8", "a=0 21+", "a=1000 2", "a=0 85+", "a=2000 32")
	r.expect("late", "=9")
	want := Counters{Records: 9, Windowed: 8, Late: 1, Fired: 7}
	if c := r.task.loop.op.counts(); c != want {
		t.Errorf("counters %+v, want %+v", c, want)
	}
}

// The state of a window that has fired is a part of the snapshot as long as it may be updated, and the
// snapshot says that it has fired.
func TestE7_AWindowThatIsKeptNeitherFiresAgainNorIsLostInARestart(t *testing.T) {
	records := []stream.Record{
		record("1", "a", 100, 1), record("2", "b", 150, 2), record("3", "a", 1200, 4), record("4", "a", 300, 8), record("5", "c", 200, 16),
		record("6", "a", 2500, 32), record("7", "b", 900, 64), record("8", "b", 1900, 128), record("9", "a", 3200, 256), record("10", "a", 50, 512),
		record("11", "a", 4700, 1024),
	}
	var want []string
	for cut := range len(records) + 1 {
		src := processortest.NewSource("in", "0")
		r := newRig(t, src, shaped(2*time.Second, perSecond), "one", "late")
		r.restart()
		src.Append("0", records[:cut]...)
		r.allOf()
		r.epoch()
		src.Append("0", records[cut:]...)
		r.allOf()
		r.barrier(false) // voted, never decided
		r.restart()
		r.allOf()
		r.epoch()
		got := append(r.values("one"), r.values("late")...)
		if cut == 0 {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Fatalf("with a restart behind record %d: %q, want %q", cut, got, want)
		}
	}
	if text := strings.Join(want, " "); !strings.Contains(text, "a=0 9+") || !strings.Contains(text, "c=0 16 ") || !strings.HasSuffix(text, "=10") {
		t.Errorf("got %q", want)
	}
}

// TestResultsFollowTheRecordsAndNotTheirBatches: batches, epochs and restarts change no result, nor their
// order, whatever the window.
func TestResultsFollowTheRecordsAndNotTheirBatches(t *testing.T) {
	shapes := map[string]func(*Stream[reading]) *Windowed[reading, int64]{
		"tumbling": perSecond,
		"sliding": func(s *Stream[reading]) *Windowed[reading, int64] {
			return Sliding(s, 1500*time.Millisecond, 500*time.Millisecond, aggregate.Sum(value))
		},
		"session": func(s *Stream[reading]) *Windowed[reading, int64] {
			return Session(s, 400*time.Millisecond, aggregate.Sum(value))
		},
	}
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				lateness := time.Duration(0)
				if name != "session" {
					lateness = time.Duration(rapid.SampledFrom([]int{0, 300, 2000}).Draw(rt, "lateness")) * time.Millisecond
				}
				var records []stream.Record
				clock := int64(0)
				for i := range rapid.IntRange(0, 30).Draw(rt, "records") {
					clock += rapid.Int64Range(0, 700).Draw(rt, "step")
					when := clock - rapid.Int64Range(0, 2500).Draw(rt, "behind")
					records = append(records, record(fmt.Sprint(i), rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key"), when, int64(1)<<i))
				}
				run := func(step func(r *rig)) []string {
					src := processortest.NewSource("in", "0")
					src.Wait = 0
					src.Batch = 1
					r := newRig(t, src, shaped(lateness, shape), "one", "late")
					r.restart()
					src.Append("0", records...)
					for r.poll() {
						step(r)
					}
					r.epoch()
					c := r.task.loop.op.counts()
					return append(append(r.values("one"), r.values("late")...), fmt.Sprintf("%+v", c))
				}
				want := run(func(*rig) {})
				got := run(func(r *rig) {
					r.source.Batch = rapid.IntRange(1, 12).Draw(rt, "batch")
					switch rapid.IntRange(0, 4).Draw(rt, "then") {
					case 0:
						r.epoch()
					case 1:
						r.epoch()
						r.restart()
					case 2:
						r.restart()
					}
				})
				if !slices.Equal(got, want) {
					rt.Fatalf("got  %q\nwant %q", got, want)
				}
			})
		})
	}
}

func TestS1_ADrainEndsTheLatenessToo(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, shaped(time.Hour, perSecond), "one", "late")
	r.restart()
	src.Append("0", record("1", "a", 100, 1), record("2", "a", 1100, 2), record("3", "a", 200, 4))
	r.allOf()
	r.barrier(true)
	r.decide()
	r.expect("one", "a=0 1", "a=0 5+", "a=1000 2")
	r.restart()
	// Nothing is kept of what has fired: no result may be made of a part of a window's records.
	src.Append("0", record("4", "a", 300, 8), record("5", "b", 1999, 16), record("6", "b", 2000, 32), record("7", "b", 3000, 64), record("8", "b", 2100, 128))
	r.allOf()
	r.epoch()
	r.expect("one", "a=0 1", "a=0 5+", "a=1000 2", "b=2000 32", "b=2000 160+")
	r.expect("late", "=4", "=5")
}

// The lateness is no part of the operator's state: what was closed stays closed, and the rest follows the new one.
func TestTheLatenessMayChangeInARestart(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after time.Duration
		want, late    []string
	}{
		{"more", time.Second, time.Hour, []string{"a=0 1", "a=1000 2", "a=2000 4", "a=2000 36+"}, []string{"=4", "=5"}},
		{"less", time.Hour, time.Second, []string{"a=0 1", "a=1000 2", "a=2000 4", "a=2000 36+"}, []string{"=4", "=5"}},
		{"none", time.Hour, 0, []string{"a=0 1", "a=1000 2", "a=2000 4"}, []string{"=4", "=5", "=6"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := processortest.NewSource("in", "0")
			r := newRig(t, src, shaped(c.before, perSecond), "one", "late")
			r.restart()
			src.Append("0", record("1", "a", 0, 1), record("2", "a", 1000, 2), record("3", "a", 2000, 4), record("3a", "z", 3000, 0))
			r.allOf()
			r.epoch()
			r.build = func() *Pipeline { return shaped(c.after, perSecond)(r) }
			r.restart()
			src.Append("0", record("4", "a", 1, 8), record("5", "a", 1001, 16), record("6", "a", 2001, 32))
			r.allOf()
			r.epoch()
			r.expect("one", c.want...)
			r.expect("late", c.late...)
		})
	}
}

func TestAWindowThatNothingIsInDoesNotFireAtTheEndOfTime(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, func(r *rig) *Pipeline {
		s := From("in", r.source, decodeReading()).EventTime(at).Key(byKey).SkipBad()
		p, err := Tumbling[reading, []string](s, time.Second, picky{}).To("one", r.sinks["one"], encodeIDs).Pipeline("test")
		r.must(err)
		return p
	}, "one")
	r.restart()
	src.Append("0", record("1", "a", 100, 1), record("bad", "a", 1<<50, 1))
	r.allOf()
	r.barrier(true)
	r.decide()
	r.restart()
	src.Append("0", record("2", "a", 1100, 1))
	r.allOf()
	r.barrier(true)
	r.decide()
	r.expect("one", "a=1", "a=2")
	if c, want := r.task.loop.op.counts(), (Counters{Records: 3, Windowed: 2, Skipped: 1, Fired: 2}); c != want {
		t.Errorf("counters %+v, want %+v", c, want)
	}
}

// picky is ids that takes no record called bad, and none called "bad at" and a window's first record.
type picky struct{ ids }

func (picky) Add(acc *[]string, r *reading) error {
	if name := string(r.id); name == "bad" || len(*acc) > 0 && name == "bad at "+(*acc)[0] {
		return fmt.Errorf("%s is refused", name)
	}
	return ids{}.Add(acc, r)
}

func TestASnapshotOfVersion1IsStillRead(t *testing.T) {
	op := newWindowOperator(perSecond(From("in", nil, decodeReading()).Key(byKey)), 8)
	split := stream.Split{Resource: "in", ID: "0"}
	meta := binary.AppendUvarint(nil, 1)
	meta = append(binary.AppendUvarint(meta, uint64(len(op.fingerprint))), op.fingerprint...)
	meta = binary.AppendUvarint(meta, 8)
	meta = binary.AppendVarint(meta, 5000)
	for _, c := range []uint64{21, 9, 3, 4, 5, 6} {
		meta = binary.AppendUvarint(meta, c)
	}
	meta = binary.AppendUvarint(meta, 1)
	meta = append(meta, 2, 'i', 'n', 1, '0')
	meta = binary.AppendVarint(meta, 5500)
	if err := op.restore(meta, []stream.Split{split}); err != nil {
		t.Fatal(err)
	}
	if want := (Counters{Records: 21, Windowed: 9, Late: 3, Filtered: 4, Skipped: 5, Fired: 6}); op.count != want {
		t.Errorf("counters %+v, want %+v", op.count, want)
	}
	if w, _ := op.watermark(); w != 5000 || op.settled != 5000 || op.lateness.Closed(0) != 5000 {
		t.Errorf("watermark %d, settled %d, closed %d; want 5000", w, op.settled, op.lateness.Closed(0))
	}
	pass := &passOperator[reading]{}
	meta = append(binary.AppendUvarint(nil, 1), byte(len(passFingerprint)))
	meta = append(meta, passFingerprint...)
	meta = append(meta, 10, 7, 2, 1)
	if err := pass.restore(meta, nil); err != nil {
		t.Fatal(err)
	}
	if want := (Counters{Records: 10, Passed: 7, Filtered: 2, Skipped: 1}); pass.count != want {
		t.Errorf("counters %+v, want %+v", pass.count, want)
	}
}

func TestASnapshotOfAVersionThatIsNotKnownIsRefused(t *testing.T) {
	for _, v := range []uint64{0, metaVersion + 1} {
		meta := binary.AppendUvarint(nil, v)
		op := newWindowOperator(perSecond(From("in", nil, decodeReading()).Key(byKey)), 8)
		for name, err := range map[string]error{"window": op.restore(meta, nil), "pass": (&passOperator[reading]{}).restore(meta, nil)} {
			if !errors.Is(err, state.ErrFormat) || !strings.Contains(err.Error(), fmt.Sprintf("version %d is unknown", v)) {
				t.Errorf("%s of version %d: got %v", name, v, err)
			}
		}
	}
}
