package processor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

// burying is a pipeline of sums whose bad records go to "dead".
func burying(encode func(r *Result[int64], out *stream.Record) error) func(r *rig) *Pipeline {
	return func(r *rig) *Pipeline {
		s := From("in", r.source, decodeReading()).EventTime(at).DeadLetters("dead", r.sinks["dead"])
		same := Map(s, func(in, out *reading) error {
			if string(in.id) == "no map" {
				return errors.New("it has no map")
			}
			*out = *in
			return nil
		})
		p, err := Tumbling(same.Key(byKey), time.Second, aggregate.Sum(value)).To("one", r.sinks["one"], encode).
			Late("late", r.sinks["late"], encodeLate).Pipeline("test")
		r.must(err)
		return p
	}
}

func TestADeadLetterIsTheRecordAsItCameWithReasonAndOrigin(t *testing.T) {
	src := processortest.NewSource("in", "0", "1")
	r := newRig(t, src, burying(encodeSum), "one", "late", "dead")
	r.restart()
	headers := []stream.Header{{Key: "h", Value: []byte("1")}, {Key: HeaderReason, Value: []byte("an older one")}, {Key: "h"}}
	src.Append("1",
		stream.Record{Key: []byte("k"), Value: []byte(`{"id":`), Time: 77, Headers: headers},
		stream.Record{Key: nil, Value: nil, Time: 78},
		stream.Record{Key: []byte{}, Value: []byte{}, Time: 79},
		record("no map", "a", 80, 1),
		record("far", "a", 1<<60, 1))
	r.allOf()
	r.expect("dead") // not decided
	r.epoch()
	got := r.sinks["dead"].Committed()
	if len(got) != 5 {
		t.Fatalf("%d dead letters, want 5: %q", len(got), r.values("dead"))
	}
	first := got[0].Record
	if string(first.Key) != "k" || string(first.Value) != `{"id":` || first.Time != 77 || first.EventTime != 77 {
		t.Errorf("the first is %+v", first)
	}
	if h := fmt.Sprintf("%q", first.Headers[:3]); h != fmt.Sprintf("%q", headers) || len(first.Headers) != 5 {
		t.Errorf("its headers are %q", first.Headers)
	}
	for i, want := range []string{"decode: not a JSON object", "decode: not a JSON object", "decode: not a JSON object", "map: it has no map", "its event time 1152921504606846976 ms is out of range"} {
		c := got[i].Record
		if reason := string(header(c, HeaderReason)); !strings.HasPrefix(reason, want) {
			t.Errorf("reason %q, want %q", reason, want)
		}
		if origin := string(header(c, HeaderOrigin)); origin != fmt.Sprintf("in/1/%d", i) {
			t.Errorf("origin %q of record %d", origin, i)
		}
	}
	if a, b := got[1].Record, got[2].Record; a.Key != nil || a.Value != nil || b.Key == nil || b.Value == nil {
		t.Errorf("a tombstone became %+v, an empty record %+v", a, b)
	}
	if c, want := r.task.loop.op.counts(), (Counters{Records: 5, DeadLettered: 5}); c != want {
		t.Errorf("counters %+v, want %+v", c, want)
	}
}

func TestDeadLettersAreDecidedWithTheResultsAndMoveNoWatermark(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, burying(encodeSum), "one", "late", "dead")
	r.restart()
	src.Append("0", record("1", "a", 100, 1), record("no map", "a", 5000, 1), record("2", "a", 200, 2))
	r.allOf()
	r.barrier(false) // voted, never decided
	r.restart()
	r.expect("dead")
	r.allOf()
	r.epoch()
	if got := len(r.values("dead")); got != 1 {
		t.Errorf("%d dead letters, want 1", got)
	}
	r.expect("one")
	r.expect("late")
	r.restart() // the count is a part of the state
	if c := r.task.loop.op.counts(); c.DeadLettered != 1 {
		t.Errorf("counters %+v after a restart, want a dead letter", c)
	}
}

// An error that is not of the record must end the generation: else results would be missing, and nobody
// would know.
func TestO6_ErrorsOfSinksAndResultsAreNoDeadLetters(t *testing.T) {
	unwell := errors.New("unwell")
	for name, c := range map[string]struct {
		encode func(r *Result[int64], out *stream.Record) error
		sink   string
	}{
		"a result cannot be encoded": {func(*Result[int64], *stream.Record) error { return unwell }, ""},
		"a sink":                     {encodeSum, "one"},
		"the late output":            {encodeSum, "late"},
		"the dead letters' own sink": {encodeSum, "dead"},
	} {
		t.Run("O6/"+name, func(t *testing.T) {
			src := processortest.NewSource("in", "0")
			src.Batch = 4 * outBatch
			r := newRig(t, src, func(r *rig) *Pipeline {
				s := From("in", r.source, decodeReading()).EventTime(at).Key(byKey).DeadLetters("dead", r.sinks["dead"])
				p, err := Tumbling(s, time.Second, aggregate.Sum(value)).AllowedLateness(time.Second).To("one", r.sinks["one"], c.encode).
					Late("late", r.sinks["late"], encodeLate).Pipeline("test")
				r.must(err)
				return p
			}, "one", "late", "dead")
			r.restart()
			if c.sink != "" {
				r.sinks[c.sink].FailWrite(unwell)
			}
			// An update for each record, late ones, and bad ones: more than the outbox holds.
			src.Append("0", record("1", "a", 100, 1), record("2", "a", 1000, 1))
			for range outBatch {
				src.Append("0", record("update", "a", 200, 1), record("late", "a", -5000, 1), stream.Record{Value: []byte("bad")})
			}
			b, err := src.Poll(r.ctx)
			r.must(err)
			err = r.task.loop.batch(r.ctx, b, 0)
			if c := r.task.loop.op.counts(); !errors.Is(err, unwell) || c.DeadLettered > outBatch {
				t.Errorf("got %v; %d records are bad, and the counters are %+v", err, outBatch, c)
			}
		})
	}
}

// A sink may write a record to the partition that it had in the source.
func TestRecordsThatPassAreLateOrDeadKeepTheirPartition(t *testing.T) {
	for name, c := range map[string]struct {
		build func(r *rig) *Pipeline
		sinks []string
	}{
		"passed":        {passing(t, func(s *Stream[reading]) *Stream[reading] { return s.SkipBad() }), []string{"one", "two"}},
		"late and dead": {burying(encodeSum), []string{"late", "dead"}},
	} {
		t.Run(name, func(t *testing.T) {
			src := processortest.NewSource("in", "0", "1", "2", "3")
			r := newRig(t, src, c.build, "one", "two", "late", "dead")
			r.restart()
			src.Append("3", record("1", "a", 9000, 1), record("2", "a", 100, 1), stream.Record{Value: []byte("x")})
			b, err := src.Poll(r.ctx)
			r.must(err)
			r.task.loop.op.(interface{ silent(waited int64) }).silent(time.Hour.Milliseconds()) // the other splits are idle
			r.must(r.task.loop.batch(r.ctx, b, 0))
			r.epoch()
			for _, sink := range c.sinks {
				if got := r.sinks[sink].Committed(); len(got) == 0 || got[0].Record.Partition != 3 {
					t.Errorf("sink %s has %+v", sink, got)
				}
			}
		})
	}
}

func TestALongReasonIsCutToWhatARecordCanCarry(t *testing.T) {
	var to stream.Record
	bury(&stream.Record{Topic: "t"}, errors.New(strings.Repeat("€", 1000)+"\xff"), &to)
	if reason := header(to, HeaderReason); len(reason) > maxReason+8 || !utf8.Valid(reason) {
		t.Errorf("%d bytes, %q", len(reason), reason)
	}
}

func TestRecordsThatCannotPassBecomeDeadLetters(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, func(r *rig) *Pipeline {
		return passing(t, func(s *Stream[reading]) *Stream[reading] {
			return s.Where(func(x *reading) bool { return x.value > 0 }).DeadLetters("dead", r.sinks["dead"])
		})(r)
	}, "one", "two", "dead")
	r.restart()
	src.Append("0", record("1", "a", 1, 1), record("bad", "a", 2, 1), stream.Record{Value: []byte("x")}, record("0", "a", 3, 0), record("4", "a", 4, 1))
	r.allOf()
	r.epoch()
	r.restart()
	r.expect("one", "=1", "=4")
	r.expect("two", "=1", "=4")
	dead := r.sinks["dead"].Committed()
	if len(dead) != 2 || string(header(dead[0].Record, HeaderReason)) != `encode for sink "two": a bad one` || string(header(dead[1].Record, HeaderOrigin)) != "in/0/2" {
		t.Errorf("dead letters %+v", dead)
	}
	if c, want := r.task.loop.op.counts(), (Counters{Records: 5, Passed: 2, Filtered: 1, DeadLettered: 2}); c != want {
		t.Errorf("counters %+v, want %+v", c, want)
	}
}

// A record from JSON bytes through the window to the results costs no allocation.
func TestARecordCostsNoAllocation(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, shaped(0, perSecond), "one", "late")
	r.restart()
	op := r.task.loop.op.(*windowOperator[reading, int64])
	in := record("1", "a", 100, 1)
	split := op.marks.Add(stream.Split{Resource: "in", ID: "0"})
	got := testing.AllocsPerRun(1000, func() {
		if err := op.record(r.ctx, split, &in, r.task.loop.out); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations per record", got)
	}
}
