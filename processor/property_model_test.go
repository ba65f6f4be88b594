package processor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// This file is the naive recomputation: what must come out of a history of records, by plain lists and
// maps, one record after the other. It uses nothing of the packages it judges, nor of this one but
// setup; TestTheModelStandsAlone sees to that.

// naiveRecord is a record as the model sees it. The zero fate is one that goes to a window.
type naiveRecord struct {
	id       string // "split/offset"
	split    int64
	key      string
	at       int64
	value    int64
	filtered bool
	bad      string // why it is bad before any window, "" if it is not
	sour     bool   // the aggregate does not take it
	stubborn bool   // it has no form as a late record
}

// naiveEvent is one thing that happened to the pipeline, in the order in which it did.
type naiveEvent struct {
	what   string // "start", "batch", "record", "ended", "silence", "end of time", "epoch"
	splits []int64
	split  int64
	behind bool  // batch: the source has more of it
	waited int64 // batch, silence
	record naiveRecord
	epoch  string
}

// naiveOut is one record of an output.
type naiveOut struct {
	sink  string // "results", "late", "dead"
	text  string
	epoch string
}

type naiveWindow struct {
	key        string
	start, end int64
	ids        []string
	sum        int64
	over       int64 // the watermark at which nothing more can come into it
	told       bool  // a result of it was sent
}

type naiveCounts struct{ records, windowed, late, filtered, skipped, dead, fired uint64 }

const naiveLeast = -1 << 62

// naive is the model. Its watermarks are in the history's order, never by batch or epoch.
type naive struct {
	setup

	known  []int64
	newest map[int64]int64 // event time by split
	quiet  map[int64]int64
	behind map[int64]bool
	idle   map[int64]bool
	ended  map[int64]bool

	watermark int64                     // of all splits
	closed    int64                     // windows that end here or before are gone
	fired     int64                     // the watermark up to which everything has fired
	windows   map[string][]*naiveWindow // by key
	outs      []naiveOut
	fates     map[string]string
	count     naiveCounts
}

// replay takes the model through a history from its beginning.
func replay(s setup, history []naiveEvent) *naive {
	n := &naive{setup: s, newest: map[int64]int64{}, watermark: naiveLeast, closed: naiveLeast, fired: naiveLeast, windows: map[string][]*naiveWindow{}, fates: map[string]string{}}
	for _, e := range history {
		n.step(e)
	}
	return n
}

func (n *naive) step(e naiveEvent) {
	switch e.what {
	case "start":
		n.start(e.splits)
		return // the watermark moves with the next event
	case "batch":
		n.add(e.split)
		n.quiet[e.split], n.idle[e.split], n.behind[e.split] = 0, false, e.behind
		n.advance()
		n.silent(e.waited, e.split)
	case "record":
		n.take(e.record)
	case "ended":
		n.ended[e.split] = true
	case "silence":
		n.advance()
		n.silent(e.waited, -1)
	case "end of time":
		n.endOfTime()
	case "epoch":
		for i := range n.outs {
			if n.outs[i].epoch == "" {
				n.outs[i].epoch = e.epoch
			}
		}
		return
	}
	n.advance()
	n.fire(n.watermark)
}

// start is a new process: how long splits were silent is forgotten, and so is what is not listed.
func (n *naive) start(splits []int64) {
	n.known = nil
	n.quiet, n.behind, n.idle, n.ended = map[int64]int64{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
	for _, s := range splits {
		n.add(s)
	}
	for s := range n.newest {
		if !slices.Contains(n.known, s) {
			delete(n.newest, s)
		}
	}
}

func (n *naive) add(split int64) {
	if !slices.Contains(n.known, split) {
		n.known = append(n.known, split)
	}
}

func (n *naive) silent(millis, but int64) {
	for _, s := range n.known {
		if s == but || n.behind[s] || n.ended[s] || n.setup.idle == 0 || millis == 0 {
			continue
		}
		n.quiet[s] += millis
		if n.quiet[s] >= n.setup.idle {
			n.idle[s] = true
		}
	}
}

// advance moves the watermark to that of the slowest split that is neither silent nor at its end.
func (n *naive) advance() {
	least, holding := int64(0), false
	for _, s := range n.known {
		if n.idle[s] || n.ended[s] {
			continue
		}
		own := int64(naiveLeast)
		if at, spoke := n.newest[s]; spoke {
			own = at - n.disorder
		}
		if !holding || own < least {
			least, holding = own, true
		}
	}
	if holding && least > n.watermark {
		n.watermark = least
	}
	n.closed = max(n.closed, n.watermark-n.lateness)
}

// take brings a record to its one place.
func (n *naive) take(r naiveRecord) {
	n.count.records++
	moves := true
	switch {
	case r.bad != "":
		n.refuse(r, r.bad)
		return
	case r.filtered:
		n.count.filtered++
		n.fates[r.id] = "filtered"
		moves = n.clock != "filtered" // then the filter stands before the event time
	default:
		if !n.window(r) {
			return
		}
	}
	if newest, spoke := n.newest[r.split]; moves && (!spoke || r.at > newest) {
		n.newest[r.split] = r.at
	}
}

func (n *naive) refuse(r naiveRecord, why string) {
	n.fates[r.id] = "skipped"
	if n.setup.bad == "dead" {
		n.count.dead++
		n.fates[r.id] = "dead"
		n.out("dead", r.id+" "+why)
		return
	}
	n.count.skipped++
}

// window adds a record to its windows, or finds it late; false: it is bad.
func (n *naive) window(r naiveRecord) bool {
	into, why := n.windowsOf(r)
	if why == "late" {
		if n.setup.late && r.stubborn {
			n.refuse(r, "late")
			return false
		}
		n.count.late++
		n.fates[r.id] = "late"
		if n.setup.late {
			n.out("late", r.id)
		}
		return true
	}
	for _, w := range into {
		if w.sum+r.value < w.sum {
			why = "overflow"
		}
	}
	if why == "" && r.sour {
		why = "sour"
	}
	if why != "" {
		n.refuse(r, why)
		return false
	}
	n.count.windowed++
	n.fates[r.id] = "windowed"
	for _, w := range into {
		w.ids = append(w.ids, r.id)
		w.sum += r.value
		if !slices.Contains(n.windows[w.key], w) {
			n.windows[w.key] = append(n.windows[w.key], w)
		}
	}
	for _, w := range into { // within the allowed lateness: said again at once
		if w.over <= n.watermark {
			n.tell(w)
		}
	}
	return true
}

// windowsOf lists the windows that a record goes to, by their ends, or says why there are none. Those
// that are not there yet are new ones.
func (n *naive) windowsOf(r naiveRecord) (into []*naiveWindow, why string) {
	if n.gap > 0 {
		return n.sessionOf(r)
	}
	for start := naiveFloor(r.at, n.every) - n.size + n.every; start <= r.at; start += n.every {
		if start+n.size <= n.closed {
			continue
		}
		w := &naiveWindow{key: r.key, start: start, end: start + n.size, over: start + n.size}
		for _, o := range n.windows[r.key] {
			if o.start == w.start {
				w = o
			}
		}
		into = append(into, w)
	}
	if len(into) == 0 {
		return nil, "late"
	}
	return into, ""
}

// sessionOf merges the sessions that a record touches into one.
func (n *naive) sessionOf(r naiveRecord) (into []*naiveWindow, why string) {
	w := &naiveWindow{key: r.key, start: r.at, end: r.at + n.gap}
	var rest []*naiveWindow
	for _, o := range n.windows[r.key] {
		if o.start > r.at+n.gap || o.end < r.at {
			rest = append(rest, o)
			continue
		}
		if w.sum+o.sum < w.sum {
			return nil, "overflow"
		}
		w.start, w.end, w.sum = min(w.start, o.start), max(w.end, o.end), w.sum+o.sum
		w.ids = append(w.ids, o.ids...)
	}
	if w.over = w.end + 1; w.over <= n.watermark { // a record at its very end would touch it
		return nil, "late"
	}
	if w.sum+r.value < w.sum {
		return nil, "overflow"
	}
	if !r.sour {
		n.windows[r.key] = rest
	}
	return []*naiveWindow{w}, ""
}

// fire sends what has not been sent of windows that are over at w, and forgets what is closed. Nothing can
// have become so while the watermark stood still.
func (n *naive) fire(w int64) {
	if w == n.fired {
		return
	}
	n.fired = w
	var due []*naiveWindow
	for key, list := range n.windows {
		for _, o := range list {
			if o.over <= w && !o.told {
				due = append(due, o)
			}
		}
		n.windows[key] = slices.DeleteFunc(slices.Clone(list), func(o *naiveWindow) bool { return o.over <= n.closed })
	}
	slices.SortFunc(due, func(a, b *naiveWindow) int { return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.key, b.key)) })
	for _, o := range due {
		n.tell(o)
	}
}

func (n *naive) tell(w *naiveWindow) {
	n.count.fired++
	ids := slices.Clone(w.ids)
	if n.gap > 0 {
		slices.Sort(ids) // in which order sessions are merged is not said
	}
	update := ""
	if w.told {
		update = " update"
	}
	n.out("results", fmt.Sprintf("%s [%d,%d) %d: %s%s", w.key, w.start, w.end, w.sum, strings.Join(ids, " "), update))
	w.told = true
}

// endOfTime fires everything. What is late afterwards is what ends before the last window that was sent.
func (n *naive) endOfTime() {
	for _, list := range n.windows {
		for _, w := range list {
			if !w.told {
				n.watermark = max(n.watermark, w.over)
			}
		}
	}
	n.closed = max(n.closed, n.watermark)
	n.fired = naiveLeast // what is closed has changed, whether the watermark has or not
	n.fire(n.watermark)
}

func (n *naive) out(sink, text string) { n.outs = append(n.outs, naiveOut{sink: sink, text: text}) }

func naiveFloor(at, step int64) int64 {
	k := at / step
	for k*step > at {
		k--
	}
	return k * step
}
