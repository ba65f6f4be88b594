package processor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

func everyHalf(s *Stream[reading]) *Windowed[reading, int64] {
	return Sliding(s, 1500*time.Millisecond, 500*time.Millisecond, aggregate.Sum(value))
}

func TestARecordIsInEverySlidingWindowOfItsTimeAndLateWhenAllArePast(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, shaped(0, everyHalf), "one", "late")
	r.restart()
	src.Append("0", record("1", "a", 1200, 1), record("2", "a", 2100, 2), // fires 0 to 1500, and 500 to 2000
		record("3", "a", 1100, 4),                          // only 1000 to 2500 is not past
		record("4", "a", 999, 8), record("5", "b", -1, 16)) // all are past
	r.allOf()
	r.barrier(true)
	r.decide()
	r.expect("one", "a=0 1", "a=500 1", "a=1000 7", "a=1500 2", "a=2000 2")
	r.expect("late", "=4", "=5")
	if c, want := r.task.loop.op.counts(), (Counters{Records: 5, Windowed: 3, Late: 2, Fired: 5}); c != want {
		t.Errorf("counters %+v, want %+v", c, want)
	}
}

func TestALateRecordUpdatesTheSlidingWindowsThatHaveFiredAndJoinsTheOthers(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, shaped(500*time.Millisecond, everyHalf), "one", "late")
	r.restart()
	src.Append("0", record("1", "a", 1200, 1), record("2", "a", 2100, 2),
		record("3", "a", 1300, 4), // 0 to 1500 is past its lateness, 500 to 2000 is not
		record("4", "b", 1400, 8)) // new in both
	r.allOf()
	r.barrier(true)
	r.decide()
	r.expect("one", "a=0 1", "a=500 1", "a=500 5+", "b=500 8", "a=1000 7", "b=1000 8", "a=1500 2", "a=2000 2")
	r.expect("late")
}

// A record that one of its windows cannot take is in none: neither where it came first, nor where it made
// a key, nor in what the window is asked for next.
func TestARecordThatOneWindowRefusesIsInNone(t *testing.T) {
	for name, agg := range map[string]Aggregate[reading, []string]{"as it was encoded": picky{}, "asked beforehand": asked{}} {
		t.Run(name, func(t *testing.T) {
			src := processortest.NewSource("in", "0")
			r := newRig(t, src, picking(agg), "one")
			r.restart()
			src.Append("0", record("1", "a", 1100, 1), record("2", "a", 600, 1), record("3", "b", 1000, 1),
				// The windows from 0 and 500 begin with 1 and from -500 with 2.
				record("bad at 1", "a", 900, 1), // refused by the second of -500, 0, 500
				record("bad at 3", "b", 400, 1), // -1000 and -500 were made for it, 0 begins with 3
				record("4", "a", 1000, 1))
			r.allOf()
			r.barrier(true)
			r.decide()
			r.expect("one", "a=2", "a=1 2 4", "b=3", "a=1 2 4", "b=3", "a=1 4", "b=3")
			if c, want := r.task.loop.op.counts(), (Counters{Records: 6, Windowed: 4, Skipped: 2, Fired: 7}); c != want {
				t.Errorf("counters %+v, want %+v", c, want)
			}
		})
	}
}

// What an aggregate has taken when it was asked it must take: the windows before have the record by then.
func TestAnAggregateThatRefusesWhatItsCheckTookEndsTheGeneration(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, picking(lying{}), "one")
	r.restart()
	src.Append("0", record("1", "a", 1100, 1), record("bad at 1", "a", 1000, 1))
	b, err := src.Poll(r.ctx)
	r.must(err)
	if err := r.task.loop.batch(r.ctx, b, 0); !errors.Is(err, participant.ErrBug) {
		t.Errorf("got %v", err)
	}
}

// picking is a pipeline of sliding windows that skips what they refuse.
func picking(agg Aggregate[reading, []string]) func(r *rig) *Pipeline {
	return func(r *rig) *Pipeline {
		s := From("in", r.source, decodeReading()).EventTime(at).Key(byKey).SkipBad()
		p, err := Sliding(s, 1500*time.Millisecond, 500*time.Millisecond, agg).Disorder(time.Second).
			To("one", r.sinks["one"], encodeIDs).Pipeline("test")
		r.must(err)
		return p
	}
}

// asked is picky that can be asked beforehand, and needs no way back.
type asked struct{ picky }

func (asked) Check(acc *[]string, r *reading) error {
	some := slices.Clone(*acc)
	return picky{}.Add(&some, r)
}

// lying is picky that takes everything when it is asked.
type lying struct{ picky }

func (lying) Check(*[]string, *reading) error { return nil }

// wrong is an aggregate whose settings cannot be.
type wrong struct{ Aggregate[reading, int64] }

func (wrong) Name() string { return "wrong" }

func (wrong) Validate() error { return errors.New("it has no sense") }

// TestARefusedRecordLeavesEverythingAsItWas: with sums that overflow, the results are those without the
// records that were refused, whatever the kind of window.
func TestARefusedRecordLeavesEverythingAsItWas(t *testing.T) {
	build := map[string]func(s *Stream[reading]) *Windowed[reading, int64]{
		"sliding": everyHalf,
		"session": func(s *Stream[reading]) *Windowed[reading, int64] {
			return Session(s, 300*time.Millisecond, aggregate.Sum(value))
		},
		"tumbling": perSecond,
	}
	for name, window := range build {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				type rec struct {
					key       string
					at, value int64
				}
				one := rapid.Custom(func(rt *rapid.T) rec {
					return rec{
						rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key"), rapid.Int64Range(0, 3000).Draw(rt, "at"),
						rapid.SampledFrom([]int64{1, 1 << 61, 1 << 62, -1 << 62}).Draw(rt, "value"),
					}
				})
				all := rapid.SliceOfN(one, 0, 30).Draw(rt, "records")
				run := func(some []rec) (out, dead []string) {
					src := processortest.NewSource("in", "0")
					src.Wait = 0
					r := newRig(t, src, func(r *rig) *Pipeline {
						s := From("in", r.source, decodeReading()).EventTime(at).Key(byKey).DeadLetters("dead", r.sinks["dead"])
						p, err := window(s).Disorder(time.Second).To("one", r.sinks["one"], encodeSum).
							Late("late", r.sinks["late"], encodeLate).Pipeline("test")
						r.must(err)
						return p
					}, "one", "late", "dead")
					r.restart()
					for i, x := range some {
						src.Append("0", record(fmt.Sprint(i), x.key, x.at, x.value))
					}
					r.allOf()
					r.barrier(true)
					r.decide()
					for _, c := range r.sinks["dead"].Committed() {
						dead = append(dead, string(header(c.Record, HeaderOrigin)))
					}
					c := r.task.loop.op.counts()
					if int(c.DeadLettered) != len(dead) || c.Records != c.Windowed+c.Late+c.DeadLettered {
						rt.Fatalf("counters %+v with %d dead letters", c, len(dead))
					}
					return r.values("one"), dead
				}
				got, dead := run(all)
				var rest []rec
				for i, x := range all {
					if !slices.Contains(dead, fmt.Sprintf("in/0/%d", i)) {
						rest = append(rest, x)
					}
				}
				if want, more := run(rest); !slices.Equal(got, want) || len(more) > 0 {
					rt.Fatalf("got  %q\nwant %q, dead letters %q", got, want, more)
				}
			})
		})
	}
}

func TestWindowsThatDoNotFitAreRefused(t *testing.T) {
	src, sink := processortest.NewSource("in", "0"), processortest.NewSink("one")
	s := From("in", src, decodeReading()).EventTime(at).Key(byKey)
	sum := aggregate.Sum(value)
	for want, w := range map[string]*Windowed[reading, int64]{
		"the size must be a multiple":               Sliding(s, time.Second, 300*time.Millisecond, sum),
		"the size must be a multiple ":              Sliding(s, time.Second, 2*time.Second, sum),
		"windows every 0s":                          Sliding(s, time.Second, 0, sum),
		"windows every -1s":                         Sliding(s, time.Second, -time.Second, sum),
		"window size 1.5µs":                         Sliding(s, 1500, 1500, sum),
		"would be in 1001 windows, and 1000 is":     Sliding(s, 1001*time.Second, time.Second, sum),
		"session gap -1s":                           Session(s, -time.Second, sum),
		"sessions have none":                        Session(s, time.Second, sum).AllowedLateness(time.Second),
		"allowed lateness -1s":                      Tumbling(s, time.Second, sum).AllowedLateness(-time.Second),
		"allowed lateness 1µs: give whole":          Tumbling(s, time.Second, sum).AllowedLateness(time.Microsecond),
		"aggregate wrong: it has no sense":          Tumbling(s, time.Second, Aggregate[reading, int64](wrong{sum})),
		"the aggregate is nil":                      Tumbling[reading, int64](s, time.Second, nil),
		"cannot be skipped and go to sink \"dead\"": Tumbling(s.SkipBad().DeadLetters("dead", sink), time.Second, sum),
	} {
		_, err := w.To("one", sink, encodeSum).Pipeline("p")
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := Sliding(s, 1000*time.Second, time.Second, sum).To("one", sink, encodeSum).Pipeline("p"); err != nil {
		t.Error(err)
	}
}

func header(r stream.Record, key string) []byte {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == key {
			return h.Value
		}
	}
	return nil
}
