package processor

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

func TestEveryMistakeIsNamedAtOnce(t *testing.T) {
	src := processortest.NewSource("in", "0")
	sink := processortest.NewSink("x")
	_, err := Tumbling(From("in", src, decodeReading()), 0, aggregate.Sum(value)).Disorder(-1).
		To("out.a", sink, encodeSum).To("in", nil, encodeSum).Pipeline("a/b", KeyGroups(0), MemberName(""))
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{
		"no Key was given", "window size 0s", "disorder -1ns", `"out.a" is no name of a sink`, `"a/b" is no name of a pipeline`,
		`"" is no name of a member`, "0 key groups", `the name "in" is used twice`, `sink "in" is nil`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if _, err := Tumbling(From("in", src, decodeReading()).Key(byKey), time.Second, aggregate.Sum(value)).Pipeline("a"); err == nil || !strings.Contains(err.Error(), "no sink") {
		t.Errorf("got %v", err)
	}
}

func TestTheFingerprintFollowsTheSpecification(t *testing.T) {
	src, sink := processortest.NewSource("in", "0"), processortest.NewSink("x")
	s := From("in", src, decodeReading()).EventTime(at).Key(byKey)
	seen := map[string]string{}
	for name, build := range map[string]func() (*Pipeline, error){
		"plain": func() (*Pipeline, error) {
			return Tumbling(s, time.Second, aggregate.Sum(value)).To("x", sink, encodeSum).Pipeline("p")
		},
		"size": func() (*Pipeline, error) {
			return Tumbling(s, 2*time.Second, aggregate.Sum(value)).To("x", sink, encodeSum).Pipeline("p")
		},
		"aggregate": func() (*Pipeline, error) {
			return Tumbling(s, time.Second, aggregate.Min(value)).To("x", sink, encodeSum).Pipeline("p")
		},
		"filter": func() (*Pipeline, error) {
			return Tumbling(s.Where(func(*reading) bool { return true }), time.Second, aggregate.Sum(value)).To("x", sink, encodeSum).Pipeline("p")
		},
		"sink": func() (*Pipeline, error) {
			return Tumbling(s, time.Second, aggregate.Sum(value)).To("y", sink, encodeSum).Pipeline("p")
		},
		"version": func() (*Pipeline, error) {
			return Tumbling(s, time.Second, aggregate.Sum(value)).To("x", sink, encodeSum).Pipeline("p", Version("2"))
		},
		"groups": func() (*Pipeline, error) {
			return Tumbling(s, time.Second, aggregate.Sum(value)).To("x", sink, encodeSum).Pipeline("p", KeyGroups(8))
		},
	} {
		a, err := build()
		if err != nil {
			t.Fatal(err)
		}
		b, err := build()
		if err != nil {
			t.Fatal(err)
		}
		if a.Fingerprint() != b.Fingerprint() {
			t.Errorf("%s: two fingerprints of one specification", name)
		}
		if other, ok := seen[a.Fingerprint()]; ok {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[a.Fingerprint()] = name
	}
}

func TestSpecDeclaresTheMemberAndItsResources(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, sums(t), "one", "two")
	spec, err := r.build().Spec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := `{Name:test Members:[{Name:main Source:true Resources:[{Name:one Kind:recording} {Name:two Kind:recording}]}] KeyGroups:128 Fingerprint:`
	if got := fmt.Sprintf("%+v", spec); !strings.HasPrefix(got, want) {
		t.Errorf("got %s", got)
	}
}

func TestMapAndWhereSeeEveryRecordOnce(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, func(r *rig) *Pipeline {
		doubled := Map(From("in", src, decodeReading()).EventTime(at), func(in *reading, out *reading) error {
			*out = *in
			out.value *= 2
			return nil
		})
		p, err := Tumbling(doubled.Where(func(rec *reading) bool { return rec.value > 4 }).Key(byKey), time.Second, aggregate.Sum(value)).
			To("one", r.sinks["one"], encodeSum).Pipeline("test")
		r.must(err)
		return p
	}, "one")
	r.restart()
	// The last one is dropped by Where and moves the watermark, since its event time was known before.
	src.Append("0", record("1", "a", 100, 2), record("2", "a", 200, 3), record("3", "a", 300, 4), record("4", "a", 1000, 1))
	r.poll()
	r.epoch()
	r.expect("one", "a=0 14")
	if c := r.task.loop.op.counts(); c != (Counters{Records: 4, Windowed: 2, Filtered: 2, Fired: 1}) {
		t.Errorf("counters %+v", c)
	}
}

func TestWhereBeforeEventTimeLeavesTheWatermark(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, func(r *rig) *Pipeline {
		s := From("in", src, decodeReading()).Where(func(rec *reading) bool { return rec.value > 1 }).EventTime(at).Key(byKey)
		p, err := Tumbling(s, time.Second, aggregate.Sum(value)).To("one", r.sinks["one"], encodeSum).Pipeline("test")
		r.must(err)
		return p
	}, "one")
	r.restart()
	src.Append("0", record("1", "a", 100, 2), record("4", "a", 1000, 1))
	r.poll()
	r.epoch()
	r.expect("one")
}

func TestEventTimesOutOfRangeAreRefused(t *testing.T) {
	for _, when := range []int64{math.MinInt64, math.MaxInt64, 1 << 60} {
		src := processortest.NewSource("in", "0")
		r := newRig(t, src, sums(t), "one", "two")
		r.restart()
		src.Append("0", record("1", "a", when, 1))
		b, err := src.Poll(r.ctx)
		r.must(err)
		if err := r.task.loop.batch(r.ctx, b, 0); err == nil || !strings.Contains(err.Error(), "out of range") {
			t.Errorf("%d: got %v", when, err)
		}
	}
}

func TestATombstoneIsMadeByEncodeAlone(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, func(r *rig) *Pipeline {
		p, err := Tumbling(From("in", src, decodeReading()).EventTime(at).Key(byKey), time.Second, aggregate.Sum(value)).
			To("one", r.sinks["one"], func(res *Result[int64], out *stream.Record) error {
				if out.Value == nil {
					t.Error("the value came as a tombstone")
				}
				if res.Value == 0 {
					out.Value = nil
				}
				return nil
			}).Pipeline("test")
		r.must(err)
		return p
	}, "one")
	r.restart()
	src.Append("0", record("1", "a", 0, 0), record("2", "b", 0, 1), record("3", "a", 1000, 0), record("4", "a", 2000, 1))
	r.poll()
	r.epoch()
	var nils []bool
	for _, c := range r.sinks["one"].Committed() {
		nils = append(nils, c.Record.Value == nil)
	}
	if fmt.Sprint(nils) != "[true false true]" {
		t.Errorf("tombstones %v", nils)
	}
}
