package processor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

// talks is a pipeline of sessions with a gap of 100 ms, which shows where they end.
func talks(disorder time.Duration) func(r *rig) *Pipeline {
	return func(r *rig) *Pipeline {
		s := From("in", r.source, decodeReading()).EventTime(at).Key(byKey).SkipBad()
		p, err := Session(s, 100*time.Millisecond, aggregate.Sum(value)).Disorder(disorder).
			To("one", r.sinks["one"], func(res *Result[int64], out *stream.Record) error {
				if err := encodeSum(res, out); err != nil {
					return err
				}
				out.Value = append(out.Value, " for "+res.Window.Duration().String()...)
				return nil
			}).Late("late", r.sinks["late"], encodeLate).Pipeline("test")
		r.must(err)
		return p
	}
}

func TestRecordsThatOverlapOrTouchAreOneSession(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, talks(time.Second), "one", "late")
	r.restart()
	src.Append("0",
		record("1", "a", 0, 1), record("2", "a", 100, 2), // touches
		record("3", "b", 0, 4), record("4", "b", 101, 8), // a millisecond too far
		record("5", "c", 0, 16), record("6", "c", 190, 32), record("7", "c", 95, 64), // joined by the third
		record("8", "d", 500, 128), record("9", "d", 450, 256)) // grows at its beginning
	r.allOf()
	r.epoch()
	r.restart()
	src.Append("0", record("10", "e", 5000, 512))
	r.allOf()
	r.epoch()
	r.expect("one", "b=0 4 for 100ms", "a=0 3 for 200ms", "b=101 8 for 100ms", "c=0 112 for 290ms", "d=450 384 for 150ms")
}

// A record of the slower split may come at the watermark itself, and is on time: a session that ends there
// must still be open.
func TestASessionFiresWhenTheWatermarkIsPastItsEndAndNotWhenItHasReachedIt(t *testing.T) {
	src := processortest.NewSource("in", "0", "1")
	r := newRig(t, src, talks(0), "one", "late")
	r.restart()
	src.Append("0", record("1", "a", 0, 1), record("2", "x", 100, 2))
	src.Append("1", record("3", "y", 100, 4))
	r.allOf()
	r.epoch()
	r.expect("one")
	src.Append("0", record("4", "a", 100, 8), record("5", "x", 201, 16))
	src.Append("1", record("6", "y", 201, 32))
	r.allOf()
	r.epoch()
	r.expect("one", "a=0 9 for 200ms", "x=100 2 for 100ms", "y=100 4 for 100ms")
}

func TestARecordIsLateWhenItsSessionIsOver(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, talks(0), "one", "late")
	r.restart()
	src.Append("0",
		record("1", "a", 1000, 1), record("2", "a", 1080, 2), record("3", "a", 1160, 4), // one until 1260
		record("4", "a", 990, 8),  // its own would be over at 1090, and it joins that one
		record("5", "b", 990, 16), // late: nothing to join
		record("6", "z", 1300, 32),
		record("7", "a", 1210, 64),  // a's session is over, though the batch has not ended: one beside it
		record("8", "a", 1199, 128), // joins that one
		record("9", "b", 1199, 256)) // late
	r.allOf()
	r.barrier(true)
	r.decide()
	r.expect("one", "a=990 15 for 270ms", "a=1199 192 for 111ms", "z=1300 32 for 100ms")
	r.expect("late", "=5", "=9")
	if c, want := r.task.loop.op.counts(), (Counters{Records: 9, Windowed: 7, Late: 2, Fired: 3}); c != want {
		t.Errorf("counters %+v, want %+v", c, want)
	}
}

// Only the ends tell two sessions apart that began at the same time: a later one has grown back over one
// that has fired. So it is in snapshots too, where the first is gone and the second stands in its place.
func TestTwoSessionsOfAKeyMayBeginAtTheSameTime(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, talks(0), "one", "late")
	r.restart()
	src.Append("0", record("1", "a", 0, 1))
	r.allOf()
	r.epoch() // in a snapshot
	src.Append("0", record("2", "b", 101, 2), record("3", "a", 150, 4))
	r.allOf() // fires 0 to 100
	src.Append("0", record("4", "a", 50, 8), record("5", "a", 0, 16))
	r.allOf()
	r.epoch()
	r.restart()
	src.Append("0", record("6", "c", 900, 32))
	r.allOf()
	r.epoch()
	r.expect("one", "a=0 1 for 100ms", "b=101 2 for 100ms", "a=0 28 for 250ms")
	r.expect("late")
}

func TestS1_ADrainFiresSessionsAndWhatFiredStaysFired(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, talks(0), "one", "late")
	r.restart()
	src.Append("0", record("1", "a", 0, 1))
	r.allOf()
	r.barrier(true)
	r.decide()
	r.restart()
	src.Append("0", record("2", "a", 0, 2), record("3", "a", 101, 4))
	r.allOf()
	r.barrier(true)
	r.decide()
	r.expect("one", "a=0 1 for 100ms", "a=101 4 for 100ms")
	r.expect("late", "=2")
}

func TestE7_ASessionIsInTheEpochOrInTheSnapshot(t *testing.T) {
	records := []stream.Record{
		record("1", "a", 0, 1), record("2", "a", 150, 2), record("3", "a", 80, 4), record("4", "b", 240, 8), record("5", "a", 230, 1<<62),
		record("6", "a", 240, 1<<62), record("7", "b", 420, 16), record("8", "a", 100, 32), record("9", "c", 700, 64), record("10", "a", 330, 128),
	}
	var want []string
	for cut := range len(records) + 1 {
		src := processortest.NewSource("in", "0")
		r := newRig(t, src, talks(80*time.Millisecond), "one", "late")
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
	if text := strings.Join(want, " "); !strings.Contains(text, "a=0 4611686018427387911 for 330ms") {
		t.Errorf("got %q", want)
	}
}

// When two sessions cannot be joined, both stay as they are, and so does the record's own.
func TestSessionsThatCannotBeJoinedStayTwo(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, talks(time.Second), "one", "late")
	r.restart()
	src.Append("0", record("1", "a", 0, 1<<62), record("2", "a", 190, 1<<62), record("3", "a", 95, 1), record("4", "a", 10, 2), record("5", "a", 180, 4))
	r.allOf()
	r.barrier(true)
	r.decide()
	r.expect("one", "a=0 4611686018427387906 for 110ms", "a=180 4611686018427387908 for 110ms")
	if c, want := r.task.loop.op.counts(), (Counters{Records: 5, Windowed: 4, Skipped: 1, Fired: 2}); c != want {
		t.Errorf("counters %+v, want %+v", c, want)
	}
}

func TestAWindowOfAnotherKindIsRefusedTheOldState(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r := newRig(t, src, talks(0), "one", "late")
	r.restart()
	src.Append("0", record("1", "a", 0, 1))
	r.allOf()
	r.epoch()
	r.build = func() *Pipeline { return shaped(0, perSecond)(r) }
	if err := r.tryRestart(); err == nil || !strings.Contains(err.Error(), `"session/1 gap=100ms aggregate=sum"`) {
		t.Errorf("got %v", err)
	}
}
