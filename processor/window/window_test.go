package window_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/window"
)

func TestEveryTimeIsInExactlyOneWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := window.Tumbling{Size: rapid.Int64Range(1, 1<<40).Draw(t, "size")}
		at := rapid.Int64Range(-1<<60, 1<<60).Draw(t, "at")
		s := w.Start(at)
		if in := w.Window(s); in.Start > at || in.End <= at || s%w.Size != 0 {
			t.Fatalf("time %d is in window %+v", at, in)
		}
	})
}

func TestAWindowFiresAtItsEndAndNotBefore(t *testing.T) {
	w := window.Tumbling{Size: 1000}
	for mark, want := range map[stream.Watermark]bool{stream.MinWatermark: false, 1999: false, 2000: true, stream.MaxWatermark: true} {
		if got := w.Fired(1000, mark); got != want {
			t.Errorf("watermark %d: fired %v", mark, got)
		}
	}
}

// model computes the combined watermark from the whole history of each split, the slow way.
type model struct {
	disorder, idleAfter int64
	max                 []int64
	spoken, behind      []bool
	quiet               []int64
	idle, ended         []bool
	combined            stream.Watermark
}

func (m *model) settle() stream.Watermark {
	least, holding := stream.MaxWatermark, 0
	for i := range m.max {
		if m.ended[i] || m.idle[i] {
			continue
		}
		holding++
		own := stream.MinWatermark
		if m.spoken[i] {
			own = stream.Watermark(m.max[i] - m.disorder)
		}
		least = min(least, own)
	}
	if holding > 0 && least > m.combined {
		m.combined = least
	}
	return m.combined
}

func TestTheCombinedWatermarkIsTheLeastOfThoseThatSpeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "splits")
		w := window.Marks{Disorder: rapid.Int64Range(0, 50).Draw(t, "disorder"), IdleAfter: rapid.SampledFrom([]int64{0, 100}).Draw(t, "idle after")}
		m := model{
			disorder: w.Disorder, idleAfter: w.IdleAfter, combined: stream.MinWatermark,
			max: make([]int64, n), spoken: make([]bool, n), behind: make([]bool, n), quiet: make([]int64, n), idle: make([]bool, n), ended: make([]bool, n),
		}
		var splits []stream.Split
		for i := range n {
			splits = append(splits, stream.Split{Resource: "in", ID: fmt.Sprint(i)})
		}
		w.Reset(splits, nil, stream.MinWatermark)
		last := stream.MinWatermark
		check := func(got stream.Watermark) {
			if want := m.settle(); got != want || got != w.Combined() {
				t.Fatalf("combined %d (%d), want %d", got, w.Combined(), want)
			}
			if got < last {
				t.Fatalf("it fell from %d to %d", last, got)
			}
			last = got
		}
		t.Repeat(map[string]func(*rapid.T){
			"observe": func(t *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(t, "split")
				if m.ended[i] {
					return
				}
				at := rapid.Int64Range(-500, 500).Draw(t, "at")
				m.behind[i] = rapid.Bool().Draw(t, "behind")
				w.Heard(i, m.behind[i])
				m.quiet[i], m.idle[i] = 0, false
				check(w.Combined())
				if !m.spoken[i] || at > m.max[i] {
					m.spoken[i], m.max[i] = true, at
				}
				check(w.Observe(i, at))
			},
			"wait": func(t *rapid.T) {
				heard, ms := rapid.IntRange(-1, n-1).Draw(t, "heard"), rapid.Int64Range(0, 60).Draw(t, "ms")
				for i := range n {
					if i != heard && !m.behind[i] && !m.ended[i] && w.IdleAfter > 0 {
						m.quiet[i] += ms
						m.idle[i] = m.idle[i] || ms > 0 && m.quiet[i] >= w.IdleAfter
					}
				}
				check(w.Waited(heard, ms))
			},
			"end": func(t *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(t, "split")
				m.ended[i] = true
				check(w.End(i))
			},
			"snapshot": func(*rapid.T) {
				if slices.Contains(m.ended, true) {
					return
				}
				for i := range n { // what a restart forgets
					m.quiet[i], m.idle[i], m.behind[i] = 0, false, false
				}
				marks := w.Snapshot()
				w.Reset(splits, marks, w.Combined())
				check(w.Combined())
			},
		})
	})
}

func TestTheCombinedWatermarkNeverFalls(t *testing.T) {
	splits := []stream.Split{{Resource: "in", ID: "0"}, {Resource: "in", ID: "1"}}
	m := window.Marks{IdleAfter: 100}
	m.Reset(splits, nil, stream.MinWatermark)
	m.Observe(0, 100)
	if w := m.Observe(1, 100); w != 100 {
		t.Fatalf("both are at 100, and together they are at %d", w)
	}
	m.Waited(0, 100) // split 1 is idle
	if w := m.Observe(0, 1000); w != 1000 {
		t.Fatalf("the other one is idle, and together they are at %d", w)
	}
	m.Heard(1, true) // it speaks again, of the past
	if w := m.Combined(); w != 1000 {
		t.Errorf("the watermark went to %d", w)
	}
	if w := m.Observe(1, 200); w != 1000 {
		t.Errorf("the watermark went to %d", w)
	}
}

func TestOutagesEverywhereMakeNothingLate(t *testing.T) {
	w := window.Marks{IdleAfter: 10}
	a, b := w.Add(stream.Split{ID: "a"}), w.Add(stream.Split{ID: "b"})
	w.Observe(a, 100)
	w.Observe(b, 50)
	w.Waited(-1, 1000)
	if w.Idle() != 2 || w.Combined() != 50 {
		t.Errorf("%d idle, watermark %d; want 2 and 50", w.Idle(), w.Combined())
	}
}

func TestOnlyTheEndOfTheSourceIsTheEndOfTime(t *testing.T) {
	w := window.Marks{}
	a := w.Add(stream.Split{ID: "a"})
	w.Observe(a, 100)
	if got := w.End(a); got != 100 {
		t.Errorf("watermark %d after the last split that is known, want 100: another may appear", got)
	}
	b := w.Add(stream.Split{ID: "b"})
	if w.Observe(b, 50); w.Combined() != 100 {
		t.Errorf("watermark %d, want 100", w.Combined())
	}
	if got := w.Observe(b, 150); got != 150 {
		t.Errorf("watermark %d, want 150", got)
	}
}

// The watermark is not that of the snapshot for ever when the split that held it back is gone.
func TestASplitThatIsGoneAfterARestartHoldsNothingBack(t *testing.T) {
	a, b := stream.Split{ID: "a"}, stream.Split{ID: "b"}
	for name, next := range map[string]func(w *window.Marks) stream.Watermark{
		"a batch": func(w *window.Marks) stream.Watermark { w.Heard(0, false); return w.Observe(0, 200) },
		"silence": func(w *window.Marks) stream.Watermark { return w.Waited(-1, 0) + 100 },
	} {
		t.Run(name, func(t *testing.T) {
			w := window.Marks{}
			w.Observe(w.Add(a), 50)
			w.Observe(w.Add(b), 100)
			w.Reset([]stream.Split{b}, w.Snapshot(), w.Combined())
			if w.Combined() != 50 {
				t.Errorf("watermark %d before anything has come, want 50", w.Combined())
			}
			if got := next(&w); got != 200 {
				t.Errorf("watermark %d, want 200", got)
			}
		})
	}
}

func TestMaxWatermarkIsNotKept(t *testing.T) {
	w := window.Marks{}
	w.Observe(w.Add(stream.Split{ID: "a"}), 100)
	if w.EndAll() != stream.MaxWatermark {
		t.Error("an ended source leaves the watermark behind")
	}
	w.Settle(200)
	if w.Combined() != 200 {
		t.Errorf("watermark %d, want 200", w.Combined())
	}
}

func TestATimeIsInEverySlidingWindowThatHoldsItAndIsNotClosed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.Int64Range(1, 50).Draw(t, "every")
		w := window.Sliding{Size: every * rapid.Int64Range(1, 8).Draw(t, "overlap"), Every: every}
		at := rapid.Int64Range(-1000, 1000).Draw(t, "at")
		closed := rapid.OneOf(rapid.Just(stream.MinWatermark), rapid.Custom(func(t *rapid.T) stream.Watermark {
			return stream.Watermark(rapid.Int64Range(-1500, 1500).Draw(t, "ms"))
		})).Draw(t, "closed")
		var want, got []int64
		for start := int64(-3000 / every * every); start < 3000; start += every { // a multiple of every
			if in := w.Window(start); in.Start <= at && at < in.End && !w.Fired(start, closed) {
				want = append(want, start)
			}
		}
		if first, last, ok := w.Open(at, closed); ok {
			for start := first; start <= last; start += every {
				got = append(got, start)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v at %d, closed %d: %d, want %d", w, at, closed, got, want)
		}
	})
}

func TestSlidingWindowsAtTheEndsOfTime(t *testing.T) {
	const far = 1 << 60
	const every = 1 << 43 / 1000 // about the longest that a duration can say
	w := window.Sliding{Size: every * 1000, Every: every}
	for _, at := range []int64{-far + 1, far - 1} {
		for _, closed := range []stream.Watermark{stream.MinWatermark, stream.MinWatermark - stream.Watermark(1<<43), 0, far} {
			first, last, ok := w.Open(at, closed)
			if in := w.Window(last); ok != (in.End > int64(closed)) || in.Start > at || in.End <= at {
				t.Errorf("at %d, closed %d: from %d to %d, %v", at, closed, first, last, ok)
			}
			if ok && (first > last || w.Window(first).End <= at || w.Fired(first, closed)) {
				t.Errorf("at %d, closed %d: the first is %d", at, closed, first)
			}
		}
	}
}

func TestWhatIsClosedStaysClosed(t *testing.T) {
	l := window.Lateness{Allowed: 100}
	l.Reset(stream.MinWatermark)
	for _, step := range []struct{ at, want stream.Watermark }{
		{stream.MinWatermark, stream.MinWatermark}, {1000, 900}, {990, 900}, {1001, 901},
	} {
		if got := l.Closed(step.at); got != step.want {
			t.Errorf("closed through %d at watermark %d, want %d", got, step.at, step.want)
		}
	}
	l.Close(950)
	if l.Close(800); l.Closed(1002) != 950 || l.Closed(1100) != 1000 {
		t.Errorf("closed through %d at watermark 1100, want 1000", l.Closed(1100))
	}
	more := window.Lateness{Allowed: 500} // a snapshot that was written with less
	if more.Reset(1000); more.Closed(1100) != 1000 {
		t.Errorf("closed through %d, want 1000", more.Closed(1100))
	}
}

func TestASessionIsOverWhenTheWatermarkIsPastItsEnd(t *testing.T) {
	for _, end := range []int64{-5, 0, 100} {
		least := window.SessionOverAt(end)
		if window.SessionsOver(least) < end || window.SessionsOver(least-1) >= end {
			t.Errorf("a session until %d is over at %d", end, least)
		}
	}
}
