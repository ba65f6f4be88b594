package processor

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

func copyRecord(in *stream.Record, _ *reading, out *stream.Record) error {
	out.Key, out.Value = append(out.Key, in.Key...), append(out.Value, in.Value...)
	return nil
}

func passID(_ *stream.Record, rec *reading, out *stream.Record) error {
	if string(rec.id) == "bad" {
		return errors.New("a bad one")
	}
	out.Value = append(out.Value, rec.id...)
	return nil
}

// passing is a pipeline that sends ids on to "one" and "two".
func passing(t testing.TB, change ...func(*Stream[reading]) *Stream[reading]) func(r *rig) *Pipeline {
	return func(r *rig) *Pipeline {
		s := From("in", r.source, decodeReading()).EventTime(at)
		for _, c := range change {
			s = c(s)
		}
		// The first sink takes what the second refuses.
		first := func(in *stream.Record, rec *reading, out *stream.Record) error {
			out.Value = append(out.Value, rec.id...)
			return nil
		}
		p, err := PassThrough(s).To("one", r.sinks["one"], first).To("two", r.sinks["two"], passID).Pipeline("test")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

func TestARecordThatPassesIsInTheEpochThatReadIt(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, passing(t), "one", "two")
	r.restart()
	src.Append("0", record("1", "a", 100, 1), record("2", "b", 50, 2))
	r.poll()
	r.epoch()
	r.expect("one", "=1", "=2")
	src.Append("0", record("3", "a", 200, 4))
	r.poll()
	r.barrier(false) // voted, never decided
	r.restart()
	r.expect("two", "=1", "=2")
	r.poll()
	r.epoch()
	r.restart()
	r.epoch()
	r.expect("one", "=1", "=2", "=3")
	r.expect("two", "=1", "=2", "=3")
	if c := r.task.loop.op.counts(); c.Records != 3 || c.Passed != 3 {
		t.Errorf("counters %+v, want three records that passed", c)
	}
}

func TestMoreRecordsThanABatchPassInOrder(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, func(r *rig) *Pipeline {
		p, err := PassThrough(From("in", r.source, decodeReading())).To("one", r.sinks["one"], copyRecord).Pipeline("test")
		r.must(err)
		return p
	}, "one")
	r.restart()
	var want []string
	for range 3*outBatch + 7 {
		in := record("x", "a", int64(len(want)), 1)
		src.Append("0", in)
		want = append(want, "="+string(in.Value))
	}
	for r.poll() {
		continue
	}
	r.epoch()
	if got := r.values("one"); !slices.Equal(got, want) {
		t.Fatalf("%d records came, %d were sent, or the order differs", len(got), len(want))
	}
}

func TestARecordThatOneSinkCannotTakeGoesToNone(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, passing(t, func(s *Stream[reading]) *Stream[reading] {
		return s.Where(func(x *reading) bool { return x.value > 0 }).SkipBad()
	}), "one", "two")
	r.restart()
	src.Append("0", record("1", "a", 1, 1), record("bad", "a", 2, 1), record("filtered", "a", 3, 0), record("4", "a", 4, 1))
	r.poll()
	r.epoch()
	r.expect("one", "=1", "=4")
	r.expect("two", "=1", "=4")
	if c, want := r.task.loop.op.counts(), (Counters{Records: 4, Passed: 2, Filtered: 1, Skipped: 1}); c != want {
		t.Errorf("counters %+v, want %+v", c, want)
	}
}

func TestARecordThatCannotPassEndsTheGenerationWithItsPlace(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, passing(t), "one", "two")
	r.restart()
	src.Append("0", record("1", "a", 1, 1), record("bad", "a", 2, 1))
	b, err := src.Poll(t.Context())
	r.must(err)
	err = r.task.loop.batch(t.Context(), b, 0)
	if err == nil || !strings.Contains(err.Error(), "offset 1") || !strings.Contains(err.Error(), `sink "two"`) {
		t.Errorf("got %v, want the place and the sink", err)
	}
}

func TestStateOfAWindowIsNoStateOfAPass(t *testing.T) {
	meta := newWindowOperator(Tumbling(From("in", nil, decodeReading()).Key(byKey), 1000000, aggregate.Sum(value)), 8).meta(nil)
	op := &passOperator[reading]{}
	if err := op.restore(meta, nil); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("got %v, want misconfigured", err)
	}
}

func TestAPassWithoutSourceAndSinkNamesBoth(t *testing.T) {
	_, err := PassThrough(From("in", nil, decodeReading())).Pipeline("p")
	if err == nil || !strings.Contains(err.Error(), "source is nil") || !strings.Contains(err.Error(), "no sink") {
		t.Errorf("got %v", err)
	}
}
