package verify_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
	"github.com/unisink/unisink/processor/verify/fold"
)

// world is a source, what a pipeline does with it, and the sinks it has written, by a simulator that is
// as simple as can be: it takes one record after the other and remembers all of them.
type world struct {
	plan    verify.Plan
	late    bool
	splits  [][]stream.Record
	results [][]verify.Output // by sink
	passed  [][]verify.Output
	lateOut []verify.Output
	dead    []verify.Output
	cut     verify.Cut

	marks    []int64
	combined int64
	open     map[simID][]simRecord // of tumbling and sliding windows, and what was sent of them
	sent     map[simID]bool
	sessions map[string][][]simRecord
	epoch    verify.Epoch
	n        int // outputs, for their places
	// made is what results were made of, by their places.
	made map[string]simResult
}

type simResult struct {
	id     simID
	end    int64
	list   []simRecord
	update bool
}

type simID struct {
	start int64
	key   string
}

type simRecord struct {
	K  string `json:"k"`
	At int64  `json:"at"`
	V  int64  `json:"v"`
	OK bool   `json:"ok"`
}

// records reads a split list back.
func (w *world) Read(_ context.Context, to []stream.Position, f func(stream.Split, *stream.Record) error) error {
	for _, p := range to {
		var i int
		if _, err := fmt.Sscanf(p.Split.ID, "in/%d", &i); err != nil {
			return err
		}
		for j := range w.splits[i][:p.Offset] {
			r := w.splits[i][j]
			if err := f(p.Split, &r); err != nil {
				return err
			}
		}
	}
	return nil
}

type listed []verify.Output

func (l listed) Read(_ context.Context, f func(verify.Output) error) error {
	for _, o := range l {
		if err := f(o); err != nil {
			return err
		}
	}
	return nil
}

func split(i int) stream.Split { return stream.Split{Resource: "in", ID: fmt.Sprintf("in/%d", i)} }

// readSim is the verifier's description of the records.
func readSim(r *stream.Record) (verify.Seen, error) {
	var x simRecord
	if err := json.Unmarshal(r.Value, &x); err != nil {
		return verify.Seen{}, err
	}
	return verify.Seen{Keep: x.OK, Timed: true, At: x.At, Key: x.K, Values: []any{nil, x.V, x.V, x.V, x.V, x.V, x.V}}, nil
}

var simFolds = []verify.Fold{
	{Kind: verify.Count},
	{Kind: verify.Sum},
	{Kind: verify.Min},
	{Kind: verify.Max},
	{Kind: verify.Avg},
	{Kind: verify.Distinct},
	{Kind: verify.TopK, K: 2},
}

var simFields = []string{"count", "sum", "min", "max", "avg", "distinct", "top"}

func findSim(o *verify.Output) (verify.Found, error) {
	fields, err := fold.Object(o.Value)
	if err != nil {
		return verify.Found{}, err
	}
	f := verify.Found{Values: map[int]any{}}
	f.Key, _ = fields["key"].(string)
	for name, to := range map[string]*int64{"start": &f.Start, "end": &f.End} {
		n, ok := fields[name].(json.Number)
		if !ok {
			return f, fmt.Errorf("no %s", name)
		}
		if *to, err = n.Int64(); err != nil {
			return f, err
		}
	}
	f.Update = fields["update"] == true
	for i, name := range simFields {
		if v, ok := fields[name]; ok {
			f.Values[i] = v
		}
	}
	return f, nil
}

func (w *world) job() *verify.Job {
	j := &verify.Job{Plan: w.plan, Source: w, Cut: w.cut}
	for i, out := range w.results {
		j.Results = append(j.Results, verify.Target{Name: fmt.Sprintf("s%d", i), Reader: listed(out), Find: findSim})
	}
	for i, out := range w.passed {
		j.Passed = append(j.Passed, verify.Copies{Name: fmt.Sprintf("s%d", i), Reader: listed(out), Key: true, Headers: true, Time: true})
	}
	if w.late {
		j.Late = &verify.Copies{Name: "late", Reader: listed(w.lateOut), Key: true, Headers: true, Time: true}
	}
	if w.plan.OnBad == verify.BadKept {
		j.Dead = &verify.Copies{Name: "dead", Reader: listed(w.dead), Key: true, Headers: true, Time: true}
	}
	return j
}

func (w *world) verify() (verify.Report, error) { return w.job().Run(context.Background()) }

// simulate draws a world.
func simulate(rng *rand.Rand, plan verify.Plan, late bool, splits, records, sinks int) *world {
	w := newWorld(plan, late, splits, sinks)
	w.draw(rng, records)
	return w
}

func newWorld(plan verify.Plan, late bool, splits, sinks int) *world {
	w := &world{
		plan: plan, late: late, splits: make([][]stream.Record, splits), marks: make([]int64, splits), combined: math.MinInt64,
		open: map[simID][]simRecord{}, sent: map[simID]bool{}, sessions: map[string][][]simRecord{}, epoch: verify.Epoch{Generation: 7, N: 1},
		made: map[string]simResult{},
	}
	w.plan.Folds, w.plan.Read = simFolds, readSim
	if plan.Window.Kind == verify.NoWindow {
		w.passed, w.plan.Folds = make([][]verify.Output, sinks), nil
	} else {
		w.results = make([][]verify.Output, sinks)
	}
	for i := range w.marks {
		w.marks[i] = math.MinInt64
	}
	return w
}

func (w *world) draw(rng *rand.Rand, records int) {
	splits := len(w.splits)
	clocks := make([]int64, splits)
	reach := w.plan.Disorder.Milliseconds() + 1
	for n := range records {
		i := rng.IntN(splits)
		clocks[i] += rng.Int64N(12)
		x := simRecord{K: string(rune('a' + rng.IntN(3))), At: clocks[i] - rng.Int64N(reach), V: rng.Int64N(5), OK: rng.IntN(9) > 0}
		if rng.IntN(6) == 0 {
			x.At -= rng.Int64N(60) // late, or nearly
		}
		value, err := json.Marshal(x)
		if err != nil {
			panic(err)
		}
		if rng.IntN(12) == 0 {
			value = value[:len(value)-1]
		}
		r := stream.Record{
			Key: []byte(fmt.Sprint(n)), Value: value, Time: 1000 + x.At, Topic: "in", Partition: int32(i), Offset: int64(len(w.splits[i])),
			Headers: []stream.Header{{Key: "trace", Value: []byte(fmt.Sprint("t", n))}},
		}
		w.splits[i] = append(w.splits[i], r)
		w.take(i, &r)
		if rng.IntN(10) == 0 {
			w.epoch.N++
		}
		if n == records*3/4 {
			w.fixCut()
		}
	}
	if rng.IntN(2) == 0 { // nothing goes on behind the cut
		w.fixCut()
	}
	w.cut.Decided = w.epoch
}

// fixCut ends an epoch and takes its positions.
func (w *world) fixCut() {
	w.cut.Proven, w.cut.Positions = w.epoch, nil
	for i, s := range w.splits {
		w.cut.Positions = append(w.cut.Positions, stream.Position{Split: split(i), Offset: int64(len(s))})
	}
	w.epoch.N++
}

func (w *world) out(r stream.Record) verify.Output {
	w.n++
	return verify.Output{
		Key: r.Key, Value: r.Value, Headers: r.Headers, Time: r.Time, Generation: w.epoch.Generation, N: w.epoch.N,
		Part: "p", Place: fmt.Sprint("output ", w.n),
	}
}

func marked(r *stream.Record, reason string) stream.Record {
	out := *r
	out.Headers = slices.Clone(r.Headers)
	if reason != "" {
		out.Headers = append(out.Headers, stream.Header{Key: verify.ReasonHeader, Value: []byte(reason)})
	}
	out.Headers = append(out.Headers, stream.Header{Key: verify.OriginHeader, Value: []byte(verify.Origin(r))})
	return out
}

func (w *world) take(i int, r *stream.Record) {
	var x simRecord
	if err := json.Unmarshal(r.Value, &x); err != nil {
		if w.plan.OnBad == verify.BadKept {
			w.dead = append(w.dead, w.out(marked(r, err.Error())))
		}
		return
	}
	switch {
	case !x.OK:
	case w.plan.Window.Kind == verify.NoWindow:
		for s := range w.passed {
			w.passed[s] = append(w.passed[s], w.out(*r))
		}
	case !w.window(x):
		w.lateOut = append(w.lateOut, w.out(marked(r, "")))
	}
	w.marks[i] = max(w.marks[i], x.At-w.plan.Disorder.Milliseconds())
	w.combined = max(w.combined, slices.Min(w.marks))
	w.fire()
}

// window adds a record; false: it is late.
func (w *world) window(x simRecord) bool {
	if w.plan.Window.Kind == verify.Session {
		return w.session(x)
	}
	size, every, lateness := w.plan.Window.Size.Milliseconds(), w.plan.Window.Every.Milliseconds(), w.plan.Window.Lateness.Milliseconds()
	if every == 0 {
		every = size
	}
	added := false
	var again []simID
	for start := x.At - 2*size - (x.At-2*size)%every - every; start <= x.At; start += every {
		if x.At < start || x.At >= start+size || start+size+lateness <= w.combined {
			continue
		}
		id := simID{start, x.K}
		w.open[id] = append(w.open[id], x)
		added = true
		if start+size <= w.combined {
			again = append(again, id)
		}
	}
	for _, id := range again {
		w.send(id.key, id.start, id.start+size, w.open[id], w.sent[id])
		w.sent[id] = true
	}
	return added
}

func (w *world) session(x simRecord) bool {
	gap := w.plan.Window.Gap.Milliseconds()
	joined, rest := []simRecord{x}, [][]simRecord(nil)
	first, last := x.At, x.At
	for _, s := range w.sessions[x.K] {
		from, to := span(s)
		if from <= x.At+gap && x.At <= to+gap {
			joined, first, last = append(s, joined...), min(first, from), max(last, to)
		} else {
			rest = append(rest, s)
		}
	}
	if last+gap+1 <= w.combined {
		return false
	}
	w.sessions[x.K] = append(rest, joined)
	return true
}

func span(s []simRecord) (first, last int64) {
	first, last = s[0].At, s[0].At
	for _, x := range s {
		first, last = min(first, x.At), max(last, x.At)
	}
	return first, last
}

func (w *world) fire() {
	size, gap := w.plan.Window.Size.Milliseconds(), w.plan.Window.Gap.Milliseconds()
	ids := slices.SortedFunc(maps.Keys(w.open), func(a, b simID) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.key, b.key)) })
	for _, id := range ids {
		if list := w.open[id]; id.start+size <= w.combined && !w.sent[id] {
			w.sent[id] = true
			w.send(id.key, id.start, id.start+size, list, false)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.sessions)) {
		all := w.sessions[key]
		var rest [][]simRecord
		for _, s := range all {
			if from, to := span(s); to+gap+1 <= w.combined {
				w.send(key, from, to+gap, s, false)
			} else {
				rest = append(rest, s)
			}
		}
		w.sessions[key] = rest
	}
}

func (w *world) send(key string, start, end int64, list []simRecord, update bool) {
	made := simResult{simID{start, key}, end, slices.Clone(list), update}
	for s := range w.results {
		o := w.out(stream.Record{Key: []byte(key), Value: made.render()})
		w.results[s] = append(w.results[s], o)
		w.made[o.Place] = made
	}
}

// render writes a result.
func (x simResult) render() []byte {
	key, start, end, list, update := x.id.key, x.id.start, x.end, x.list, x.update
	sum, least, most := int64(0), int64(math.MaxInt64), int64(math.MinInt64)
	counts := map[int64]int64{}
	for _, x := range list {
		sum, least, most = sum+x.V, min(least, x.V), max(most, x.V)
		counts[x.V]++
	}
	type often struct {
		Value int64 `json:"value"`
		Count int64 `json:"count"`
	}
	var top []often
	for v, n := range counts {
		top = append(top, often{v, n})
	}
	slices.SortFunc(top, func(a, b often) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Value, b.Value)) })
	value, err := json.Marshal(map[string]any{
		"key": key, "start": start, "end": end, "update": update, "count": len(list), "sum": sum, "min": least, "max": most,
		"avg": float64(sum) / float64(len(list)), "distinct": len(counts), "top": top[:min(2, len(top))],
	})
	if err != nil {
		panic(err)
	}
	return value
}

func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v disorder %v bad %s late output %v, cut %+v\n", w.plan.Window, w.plan.Disorder, w.plan.OnBad, w.late, w.cut)
	for i, s := range w.splits {
		for _, r := range s {
			fmt.Fprintf(&b, "split %d %s\n", i, r.Value)
		}
	}
	show := func(name string, list []verify.Output) {
		for _, o := range list {
			fmt.Fprintf(&b, "%s %d.%d %s %s\n", name, o.Generation, o.N, o.Value, o.Headers)
		}
	}
	for i := range w.results {
		show(fmt.Sprint("result ", i), w.results[i])
	}
	for i := range w.passed {
		show(fmt.Sprint("passed ", i), w.passed[i])
	}
	show("late", w.lateOut)
	show("dead", w.dead)
	return b.String()
}

// simPlan draws what a pipeline does.
func simPlan(rng *rand.Rand) verify.Plan {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	p := verify.Plan{
		Disorder: ms(rng.Int64N(3) * 10),
		OnBad:    []verify.OnBad{verify.BadSkipped, verify.BadKept}[rng.IntN(2)],
	}
	lateness := ms(rng.Int64N(3) * 15)
	switch rng.IntN(4) {
	case 0:
		p.Window = verify.Window{Kind: verify.NoWindow}
	case 1:
		p.Window = verify.Window{Kind: verify.Tumbling, Size: ms(20), Lateness: lateness}
	case 2:
		p.Window = verify.Window{Kind: verify.Sliding, Size: ms(30), Every: ms(10), Lateness: lateness}
	default:
		p.Window = verify.Window{Kind: verify.Session, Gap: ms(8)}
	}
	return p
}
