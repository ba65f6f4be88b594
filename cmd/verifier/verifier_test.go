package verifier_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/unisink/unisink/cmd/verifier"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

const aggregates = `
    n: count()
    sum: sum(rec.x)
    min: min(rec.x)
    max: max(rec.x)
    avg: avg(rec.x)
    price: sum(decimal(rec.p))
    mean: avg(decimal(rec.p))
    dear: max(decimal(rec.p))
    different: distinct(rec.s)
    about: approx_distinct(rec.s)
    first: first(rec.s)
    last: last(rec.s)
    top: top_k(rec.s, 2)
    median: quantile(rec.x, 0.5)
    some: sum(rec.?y)
`

var documents = map[string]string{
	"tumbling": `
pipeline: p
source: {name: mem, mem: {}, event_time: rec.at, disorder: 20ms, idle_after: never}
where: rec.keep || rec.x < 0
key: rec.k
window:
  tumbling: 100ms
  aggregate:` + strings.ReplaceAll(aggregates, "\n    ", "\n    ") + `
on_error: {dead_letter: bad}
late: late
sinks:
  - {name: all, mem: {}}
  - {name: some, mem: {}, key: "key + '!'", fields: {who: key, from: window_start, n: n, half: double(sum) / 2.0, big: n > 2, again: update}}
  - {name: late, mem: {}}
  - {name: bad, mem: {}}
`,
	"sliding, allowed lateness": `
pipeline: p
source: {name: mem, mem: {}, event_time: rec.at, disorder: 10ms, idle_after: never}
key: rec.k
window:
  sliding: {size: 100ms, every: 50ms}
  allowed_lateness: 40ms
  aggregate: {n: count(), sum: sum(rec.x)}
on_error: skip
late: late
sinks:
  - {name: all, mem: {}}
  - {name: late, mem: {}, key: rec.k, fields: {who: rec.k, at: rec.at}}
`,
	"session": `
pipeline: p
source: {name: mem, mem: {}, event_time: rec.at, idle_after: never}
map: {k: rec.k, x: rec.x * 2}
key: rec.k
window:
  session: 15ms
  aggregate: {n: count(), sum: sum(rec.x)}
on_error: {dead_letter: bad}
late: late
sinks:
  - {name: all, mem: {}}
  - {name: late, mem: {}}
  - {name: bad, mem: {}}
`,
	"pass": `
pipeline: p
source: {name: mem, mem: {}}
where: rec.keep
on_error: {dead_letter: bad}
sinks:
  - {name: all, mem: {}}
  - {name: shaped, mem: {}, key: rec.k, fields: {k: rec.k, twice: rec.x * 2, h: string(headers.h)}}
  - {name: bad, mem: {}}
`,
	"everything": `
pipeline: p
source: {name: mem, mem: {}, format: bytes}
sinks: [{name: all, mem: {}}]
`,
	"mapped": `
pipeline: p
source: {name: mem, mem: {}}
map: {who: rec.k, x: rec.x + 1}
key: rec.who
on_error: skip
sinks:
  - {name: all, mem: {}}
  - {name: text, mem: {}, format: string, value: "rec.x > 3 ? dyn(null) : string(rec.x)"}
`,
}

// fill draws records: most are good, some are late, filtered out, tombstones or broken in one way or another.
func (w *world) fill(rng *rand.Rand) {
	clocks := map[string]int64{}
	for range 40 + rng.IntN(60) {
		split := w.splits[rng.IntN(len(w.splits))]
		clocks[split] += rng.Int64N(20)
		at := clocks[split] - rng.Int64N(15)
		if rng.IntN(8) == 0 {
			at -= rng.Int64N(200)
		}
		value := fmt.Sprintf(`{"k":%q,"at":%d,"x":%d,"keep":%v,"p":"%d.%02d","s":"s%d","y":%d}`,
			string(rune('a'+rng.IntN(3))), at, rng.IntN(6), rng.IntN(5) > 0, rng.IntN(9), rng.IntN(100), rng.IntN(4), rng.IntN(3))
		switch rng.IntN(14) {
		case 0:
			value = value[:len(value)-3]
		case 1:
			value = strings.Replace(value, `"k":`, `"q":`, 1)
		case 2:
			value = strings.Replace(value, `"x":`, `"x":"no","z":`, 1)
		case 3:
			value = strings.Replace(value, `"x":`, `"x":0.1,"z":`, 1)
		case 4:
			value = strings.Replace(value, `"y":`, `"z":`, 1)
		case 5:
			value = strings.Replace(value, `"p":"`, `"p":"x`, 1)
		}
		r := stream.Record{Key: []byte("key"), Value: []byte(value), Headers: []stream.Header{{Key: "h", Value: []byte("v")}}, Time: 1000 + at}
		if rng.IntN(20) == 0 {
			r.Value = nil
		}
		w.add(split, r)
	}
}

func shown(r verify.Report) string {
	text := fmt.Sprintf("%s: %d records, %d windows, %d late, %d dead, %d filtered, %d skipped, %d passed\n", r.Verdict, r.Records, r.Windows, r.Late, r.Dead, r.Filtered, r.Skipped, r.Passed)
	for what, list := range map[string][]verify.Case{"missing": r.Missing, "doubled": r.Doubled, "different": r.Different, "undeterminable": r.Undeterminable} {
		for _, c := range list {
			text += fmt.Sprintf("%s: %+v\n", what, c)
		}
	}
	return text
}

// What a pipeline of a specification writes, killed and started again, is clean, and one damage to it is not.
func TestAPipelineOfASpecificationIsVerified(t *testing.T) {
	seeds := uint64(10)
	if testing.Short() {
		seeds = 3 // the verifier is one goroutine; the pipelines before it have tests of their own
	}
	for name, text := range documents {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				rng := rand.New(rand.NewPCG(seed, 3))
				w := newWorld([]string{"0", "1", "2"}[:1+rng.IntN(3)]...)
				w.batch = 1 + rng.IntN(9)
				w.fill(rng)
				lives, drain := 1+rng.IntN(4), rng.IntN(2) == 0
				synctest.Test(t, func(t *testing.T) { w.run(t, text, lives, drain) })
				r := w.verify(t)
				known := len(w.splits) == 1 || name != "session" && !strings.HasPrefix(name, "sliding")
				if r.Verdict == verify.Broken || known && r.Verdict != verify.Clean {
					t.Fatalf("seed %d, drained %v: %s%s", seed, drain, shown(r), w)
				}
				if sum := r.Filtered + r.Skipped + r.Late + r.Dead + r.Passed; sum > r.Records {
					t.Fatalf("seed %d: %d of %d records are in no window", seed, sum, r.Records)
				}
				w.damage(t, rng, seed)
			}
		})
	}
}

// damage takes one output away from each sink in turn, and doubles one, and puts them back.
func (w *world) damage(t *testing.T, rng *rand.Rand, seed uint64) {
	t.Helper()
	for name, held := range w.held {
		if len(held) == 0 {
			continue
		}
		i := rng.IntN(len(held))
		for what, damaged := range map[string][]processortest.Committed{
			"lost": slices.Delete(slices.Clone(held), i, i+1), "doubled": slices.Insert(slices.Clone(held), i, held[i]),
		} {
			w.held[name] = damaged
			if r := w.verify(t); r.Verdict == verify.Clean {
				t.Fatalf("seed %d, output %d of sink %s %s: %s%s", seed, i, name, what, shown(r), w)
			}
		}
		w.held[name] = held
	}
}

func (w *world) String() string {
	text := fmt.Sprintln("cut", w.epoch, w.at)
	for _, s := range w.splits {
		for _, r := range w.records[s] {
			text += fmt.Sprintf("split %s: %s\n", s, r.Value)
		}
	}
	for name, held := range w.held {
		for _, c := range held {
			text += fmt.Sprintf("%s %d.%d: %s %s %s\n", name, c.Generation, c.N, c.Record.Key, c.Record.Value, c.Record.Headers)
		}
	}
	return text
}

func TestWhatIsGoneIsUndeterminable(t *testing.T) {
	w := newWorld("0")
	w.add("0", stream.Record{Value: []byte("x")})
	synctest.Test(t, func(t *testing.T) { w.run(t, documents["everything"], 1, false) })
	w.gone = "the first 7 records are gone"
	r := w.verify(t)
	if r.Verdict != verify.Undeterminable || len(r.Undeterminable) != 1 || r.Undeterminable[0].Why != w.gone {
		t.Error(shown(r))
	}
}

func TestASinkThatDoesNotSayWhatItsResultsAreIsUndeterminable(t *testing.T) {
	w := newWorld("0")
	w.add("0", stream.Record{Value: []byte(`{"x":1}`)})
	text := `{pipeline: p, source: {name: mem, mem: {}}, key: "'k'", window: {tumbling: 1s, aggregate: {n: count()}}, sinks: [{name: all, mem: {}, fields: {n: n}}]}`
	synctest.Test(t, func(t *testing.T) { w.run(t, text, 1, true) })
	r := w.verify(t)
	if r.Verdict != verify.Undeterminable || len(r.Undeterminable) != 1 || !strings.Contains(r.Undeterminable[0].Why, "do not say of which key and window") {
		t.Error(shown(r))
	}
}

// A split that was added holds nothing back that has fired before it came.
func TestASplitThatWasAddedExplainsWhatHadFiredBefore(t *testing.T) {
	w := newWorld("0")
	for i := range 10 {
		w.add("0", stream.Record{Value: fmt.Appendf(nil, `{"x":1,"at":%d}`, 100*i)})
	}
	text := `{pipeline: p, source: {name: mem, mem: {}, event_time: rec.at, idle_after: never}, key: "'k'", window: {tumbling: 100ms, aggregate: {n: count()}}, sinks: [{name: all, mem: {}}]}`
	synctest.Test(t, func(t *testing.T) { w.run(t, text, 1, false) })
	if r := w.verify(t); r.Verdict != verify.Clean || r.Windows != 9 {
		t.Fatal(shown(r))
	}
	w.splits = append(w.splits, "1")
	if r := w.verify(t); r.Verdict != verify.Broken {
		t.Error("a split that was always there, and has said nothing, holds every window back:", shown(r))
	}
	w.grown = true
	if r := w.verify(t); r.Verdict != verify.Clean {
		t.Error(shown(r))
	}
}

func TestASourceOfAnotherNameIsNotTheOneThatWasRead(t *testing.T) {
	w := newWorld("0")
	w.add("0", stream.Record{Value: []byte("x")})
	synctest.Test(t, func(t *testing.T) { w.run(t, documents["everything"], 1, false) })
	doc, err := spec.Parse("p.yaml", []byte(strings.Replace(documents["everything"], "name: mem", "name: other", 1)), env)
	if err != nil {
		t.Fatal(err)
	}
	w.doc = doc
	if _, err := verifier.Run(t.Context(), w.config()); err == nil || !strings.Contains(err.Error(), `has read source "mem", and the source of this specification is "other"`) {
		t.Error(err)
	}
}

// What comes behind the end of a source is late for what fired there, whatever its own split says.
func TestWhatCameBehindAnEndMayBeLate(t *testing.T) {
	text := `
pipeline: p
source: {name: mem, mem: {}, event_time: rec.at, idle_after: never}
key: "'k'"
window: {tumbling: 100ms, aggregate: {n: count()}}
late: late
sinks: [{name: all, mem: {}}, {name: late, mem: {}}]
`
	w := newWorld("0")
	w.add("0", stream.Record{Value: []byte(`{"at":0}`)})
	w.add("0", stream.Record{Value: []byte(`{"at":50}`)})
	synctest.Test(t, func(t *testing.T) { w.run(t, text, 1, true) })
	if r := w.verify(t); r.Verdict != verify.Clean || r.Windows != 1 {
		t.Fatal(shown(r))
	}
	late := stream.Record{Value: []byte(`{"at":60}`)}
	w.add("0", late)
	w.at[0].Offset++
	late.Headers = []stream.Header{{Key: "unisink-origin", Value: []byte("mem/0/2")}}
	w.held["late"] = append(w.held["late"], processortest.Committed{Record: late, Generation: w.epoch.GetGeneration(), N: w.epoch.GetN()})
	if r := w.verify(t); r.Verdict != verify.Broken {
		t.Error("without an end before, it was on time:", shown(r))
	}
	w.behind = true
	for _, w.final = range []bool{true, false} { // also while it goes on
		if r := w.verify(t); r.Verdict != verify.Clean || r.Late != 1 {
			t.Error(shown(r))
		}
	}
	// A second end in a later generation fires all that is open by then, in every sink.
	first, second := w.held["all"][0], w.held["all"][0]
	w.epoch, w.final = &unisinkv1.Epoch{Generation: w.epoch.GetGeneration() + 1, N: 1}, true
	for at := range int64(2) {
		w.add("0", stream.Record{Value: fmt.Appendf(nil, `{"at":%d}`, 200+at*100)})
		w.at[0].Offset++
	}
	w.held["all"] = append(w.held["all"], result(t, second, w.epoch, 200), result(t, second, w.epoch, 300))
	if r := w.verify(t); r.Verdict != verify.Clean || r.Windows != 3 || r.Open != 0 {
		t.Error(shown(r))
	}
	w.held["all"] = []processortest.Committed{first, w.held["all"][2]}
	if r := w.verify(t); r.Verdict != verify.Undeterminable && r.Verdict != verify.Broken {
		t.Error("a result of the second end is gone:", shown(r))
	}
	w.held["all"] = []processortest.Committed{first, first}
	if r := w.verify(t); r.Verdict != verify.Broken {
		t.Error("a result is there twice:", shown(r))
	}
}

// result is another window's, of one record.
func result(t *testing.T, like processortest.Committed, epoch *unisinkv1.Epoch, start int) processortest.Committed {
	t.Helper()
	like.Record.Value = fmt.Appendf(nil, `{"key":"k","window_start":%d,"window_end":%d,"n":1}`, start, start+100)
	like.Generation, like.N = epoch.GetGeneration(), epoch.GetN()
	return like
}
