package window_test

import (
	"testing"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/window"
)

// FuzzSliding: the windows of a time are those that hold it and are not closed, and no others.
func FuzzSliding(f *testing.F) {
	f.Add(int64(0), int64(100), uint8(1), int64(0))
	f.Add(int64(-1), int64(7), uint8(3), int64(-5))
	f.Add(int64(99), int64(25), uint8(4), int64(150))
	f.Add(int64(1<<60-1), int64(1), uint8(255), int64(1<<60-100))
	f.Add(int64(-1<<60+1), int64(1<<40), uint8(9), int64(-1<<62))
	f.Add(int64(5), int64(10), uint8(2), int64(1<<62-1))
	f.Fuzz(func(t *testing.T, at, every int64, times uint8, closed int64) {
		const most = 1 << 60
		if at <= -most || at >= most || every <= 0 || every > 1<<40 || times == 0 || closed < -1<<62 || closed >= 1<<62 {
			return
		}
		w := window.Sliding{Size: every * int64(times), Every: every}
		first, last, ok := w.Open(at, stream.Watermark(closed))
		// The slow way: from well before the time, one after the other.
		n, least, largest := 0, int64(0), int64(0)
		for k := at/every - int64(times) - 2; k*every <= at; k++ {
			if start := k * every; start+w.Size > at && start+w.Size > closed {
				if n == 0 {
					least = start
				}
				n, largest = n+1, start
			}
		}
		if ok != (n > 0) || ok && (first != least || last != largest || (last-first)/every+1 != int64(n)) {
			t.Fatalf("windows from %d to %d, %v; want %d of them from %d to %d", first, last, ok, n, least, largest)
		}
		if ok && (w.Fired(first, stream.Watermark(closed)) || w.Window(last).Start > at || w.Window(first).End <= at) {
			t.Fatalf("window from %d to %d of time %d, closed through %d", first, last, at, closed)
		}
		if n < int(times) && ok && !w.Fired(first-every, stream.Watermark(closed)) {
			t.Fatalf("%d windows of %d, and the one before is open", n, times)
		}
	})
}

// FuzzMarks: whatever comes in whatever order, the watermark never falls, and is never beyond the newest record.
func FuzzMarks(f *testing.F) {
	f.Add([]byte{0, 10, 1, 20, 2, 200, 3, 1, 4, 0, 0, 250})
	f.Add([]byte{3, 200, 0, 1, 3, 200, 5, 0, 0, 9, 4, 1, 1, 99, 5, 2})
	f.Fuzz(func(t *testing.T, script []byte) {
		splits := []stream.Split{{ID: "a"}, {ID: "b"}, {ID: "c"}}
		m := window.Marks{Disorder: 3, IdleAfter: 100}
		m.Reset(splits[:2], nil, stream.MinWatermark)
		last, newest := stream.MinWatermark, int64(-1)
		for ; len(script) >= 2; script = script[2:] {
			what, n := script[0], int64(script[1])
			split := m.Add(splits[int(what/8)%len(splits)])
			switch what % 8 {
			case 0, 1, 2:
				m.Heard(split, n%2 == 0)
				m.Observe(split, n)
				newest = max(newest, n)
			case 3:
				m.Waited(-1, n)
			case 4:
				m.Waited(split, n)
			case 5:
				m.Reset(splits[:1+n%3], m.Snapshot(), m.Combined())
			case 6:
				m.End(split)
			case 7:
				m.EndAll()
				m.Settle(max(last, stream.Watermark(newest)))
			}
			now := m.Combined()
			if now < last {
				t.Fatalf("it fell from %d to %d", last, now)
			}
			if now != stream.MinWatermark && int64(now) > newest {
				t.Fatalf("watermark %d, and the newest record is of %d", now, newest)
			}
			last = now
		}
	})
}
