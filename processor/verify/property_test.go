package verify_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
)

// seeds is how many worlds are made. The race detector, which sees one goroutine here, runs the short tests.
func seeds() uint64 {
	if testing.Short() {
		return 70
	}
	return 600
}

// What a simulator of the rules writes is never broken, and clean where everything can be known.
func TestWhatIsRightIsNotBroken(t *testing.T) {
	clean, unknown := 0, 0
	made := seeds()
	for seed := range made {
		rng := rand.New(rand.NewPCG(seed, 1))
		plan := simPlan(rng)
		splits, late := 1+rng.IntN(3), rng.IntN(2) == 0
		w := simulate(rng, plan, late, splits, 30+rng.IntN(60), 1+rng.IntN(2))
		r, err := w.verify()
		if err != nil {
			t.Fatal(err)
		}
		known := splits == 1 || plan.Window.Kind == verify.NoWindow || late && plan.Window.Kind == verify.Tumbling
		switch {
		case r.Verdict == verify.Broken, known && r.Verdict != verify.Clean:
			t.Fatalf("seed %d: %s\n%s", seed, shown(r), w)
		case r.Verdict == verify.Clean:
			clean++
		default:
			unknown++
		}
		if got := r.Filtered + r.Skipped + r.Dead + r.Passed + r.Late; got > r.Records {
			t.Fatalf("seed %d: %d of %d records are in no window", seed, got, r.Records)
		}
	}
	t.Logf("%d clean, %d undeterminable", clean, unknown)
	if clean < int(made/2) || unknown == 0 {
		t.Errorf("%d of %d are clean, %d are undeterminable", clean, made, unknown)
	}
}

func shown(r verify.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %d records, %d windows\n", r.Verdict, r.Records, r.Windows)
	for what, list := range map[string][]verify.Case{"missing": r.Missing, "doubled": r.Doubled, "different": r.Different, "undeterminable": r.Undeterminable} {
		for _, c := range list {
			fmt.Fprintf(&b, "%s: %+v\n", what, c)
		}
	}
	return b.String()
}

// sabotage damages what a world's pipeline wrote in one way; false: there is nothing to damage.
type sabotage struct {
	name string
	do   func(w *world, rng *rand.Rand) bool
}

// judged picks an output up to the cut.
func (w *world) judged(rng *rand.Rand, list []verify.Output, fits func(o *verify.Output) bool) int {
	var at []int
	for i := range list {
		o := &list[i]
		if o.N <= w.cut.Proven.N && (fits == nil || fits(o)) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return -1
	}
	return at[rng.IntN(len(at))]
}

// source picks a record up to the cut for which read is true.
func (w *world) source(rng *rand.Rand, fits func(seen verify.Seen, err error) bool) *stream.Record {
	var at []*stream.Record
	for i := range w.splits {
		for j := range w.splits[i][:w.cut.Positions[i].Offset] {
			if r := &w.splits[i][j]; fits(readSim(r)) {
				at = append(at, r)
			}
		}
	}
	if len(at) == 0 {
		return nil
	}
	return at[rng.IntN(len(at))]
}

func fine(seen verify.Seen, err error) bool { return err == nil && seen.Keep }

// final: it is the last result of its window up to the cut.
func (w *world) final(list []verify.Output) func(o *verify.Output) bool {
	last := map[simID]string{}
	for i := range list {
		if o := &list[i]; o.N <= w.cut.Proven.N {
			last[w.made[o.Place].id] = o.Place
		}
	}
	return func(o *verify.Output) bool { return last[w.made[o.Place].id] == o.Place }
}

// remade changes the records that a last result was made of.
func remade(change func(list []simRecord, rng *rand.Rand) []simRecord) func(w *world, rng *rand.Rand) bool {
	return func(w *world, rng *rand.Rand) bool {
		if w.results == nil {
			return false
		}
		i := w.judged(rng, w.results[0], w.final(w.results[0]))
		if i < 0 {
			return false
		}
		x := w.made[w.results[0][i].Place]
		if x.list = change(slices.Clone(x.list), rng); len(x.list) == 0 {
			return false
		}
		w.results[0][i].Value = x.render()
		return true
	}
}

func sabotages() []sabotage {
	// lists are the outputs that a damage may be done to.
	lists := func(w *world) map[string]*[]verify.Output {
		all := map[string]*[]verify.Output{"late": &w.lateOut, "dead": &w.dead}
		if !w.late {
			delete(all, "late")
		}
		if w.results != nil {
			all["result"] = &w.results[0]
		}
		if w.passed != nil {
			all["passed"] = &w.passed[0]
		}
		return all
	}
	var out []sabotage
	for _, what := range []string{"result", "passed", "late", "dead"} {
		one := func(name string, change func(list []verify.Output, i int) []verify.Output) {
			out = append(out, sabotage{what + " " + name, func(w *world, rng *rand.Rand) bool {
				list := lists(w)[what]
				if list == nil {
					return false
				}
				i := w.judged(rng, *list, nil)
				if i < 0 {
					return false
				}
				*list = change(slices.Clone(*list), i)
				return true
			}})
		}
		one("lost", func(list []verify.Output, i int) []verify.Output { return slices.Delete(list, i, i+1) })
		one("doubled", func(list []verify.Output, i int) []verify.Output {
			o := list[i]
			o.Place = "again"
			return slices.Insert(list, i, o)
		})
		one("torn in the middle", func(list []verify.Output, i int) []verify.Output {
			list[i].Value = list[i].Value[:len(list[i].Value)/2]
			return list
		})
		if what == "result" {
			continue
		}
		one("without its key", func(list []verify.Output, i int) []verify.Output { list[i].Key = nil; return list })
		one("as a tombstone", func(list []verify.Output, i int) []verify.Output { list[i].Value = nil; return list })
		one("with another time", func(list []verify.Output, i int) []verify.Output { list[i].Time++; return list })
		one("with another header", func(list []verify.Output, i int) []verify.Output {
			list[i].Headers = slices.Clone(list[i].Headers)
			list[i].Headers[0].Value = []byte("x")
			return list
		})
	}
	add := func(w *world, list *[]verify.Output, r stream.Record) bool {
		*list = append(*list, verify.Output{Key: r.Key, Value: r.Value, Headers: r.Headers, Time: r.Time, Generation: 7, N: 1, Place: "added"})
		return true
	}
	return append(out,
		sabotage{"a record lost from its window", remade(func(list []simRecord, rng *rand.Rand) []simRecord {
			i := rng.IntN(len(list))
			return slices.Delete(list, i, i+1)
		})},
		sabotage{"a record twice in its window", remade(func(list []simRecord, rng *rand.Rand) []simRecord {
			return append(list, list[rng.IntN(len(list))])
		})},
		sabotage{"a wrong value", remade(func(list []simRecord, rng *rand.Rand) []simRecord {
			list[rng.IntN(len(list))].V += 7
			return list
		})},
		sabotage{"another key", func(w *world, rng *rand.Rand) bool {
			if w.results == nil {
				return false
			}
			i := w.judged(rng, w.results[0], nil)
			if i < 0 {
				return false
			}
			x := w.made[w.results[0][i].Place]
			x.id.key = "nobody"
			w.results[0] = append(w.results[0], verify.Output{Value: x.render(), Generation: 7, N: 1, Place: "added"})
			return true
		}},
		sabotage{"in a window and late", func(w *world, rng *rand.Rand) bool {
			r := w.source(rng, fine)
			if !w.late || r == nil || w.results == nil || slices.ContainsFunc(w.lateOut, func(o verify.Output) bool { return bytes.Equal(o.Key, r.Key) }) {
				return false
			}
			return add(w, &w.lateOut, marked(r, ""))
		}},
		sabotage{"a dead letter that is fine", func(w *world, rng *rand.Rand) bool {
			r := w.source(rng, fine)
			return w.plan.OnBad == verify.BadKept && r != nil && add(w, &w.dead, marked(r, "because"))
		}},
		sabotage{"a filtered record", func(w *world, rng *rand.Rand) bool {
			r := w.source(rng, func(seen verify.Seen, err error) bool { return err == nil && !seen.Keep })
			return w.passed != nil && r != nil && add(w, &w.passed[0], *r)
		}},
		sabotage{"a torn epoch", func(w *world, rng *rand.Rand) bool {
			for _, sinks := range [][][]verify.Output{w.results, w.passed} {
				if len(sinks) < 2 {
					continue
				}
				if i := w.judged(rng, sinks[1], nil); i >= 0 {
					n := sinks[1][i].N
					sinks[1] = slices.DeleteFunc(slices.Clone(sinks[1]), func(o verify.Output) bool { return o.N == n })
					return true
				}
			}
			return false
		}},
		sabotage{"another epoch", func(w *world, rng *rand.Rand) bool {
			for _, sinks := range [][][]verify.Output{w.results, w.passed} {
				if len(sinks) < 2 {
					continue
				}
				if i := w.judged(rng, sinks[1], func(o *verify.Output) bool { return o.N > 1 }); i >= 0 {
					sinks[1][i].N--
					return true
				}
			}
			return false
		}},
		sabotage{"an epoch that was not decided", func(w *world, rng *rand.Rand) bool {
			if w.results == nil {
				return false
			}
			i := w.judged(rng, w.results[0], nil)
			if i < 0 {
				return false
			}
			o := w.results[0][i]
			o.N = w.cut.Decided.N + 1
			w.results[0] = append(w.results[0], o)
			return true
		}},
	)
}

// One damage of any kind is never clean, and broken where everything can be known.
func TestNoDamageIsClean(t *testing.T) {
	count := map[string]map[verify.Verdict]int{}
	for seed := range seeds() {
		for n, s := range sabotages() {
			rng := rand.New(rand.NewPCG(seed, 2))
			plan := simPlan(rng)
			splits, late := 1+rng.IntN(3), rng.IntN(2) == 0
			if (int(seed)+n)%4 != 0 { // a share of them
				continue
			}
			w := simulate(rng, plan, late, splits, 30+rng.IntN(60), 1+rng.IntN(2))
			if !s.do(w, rng) {
				continue
			}
			r, err := w.verify()
			if err != nil {
				t.Fatal(err)
			}
			known := splits == 1 || plan.Window.Kind == verify.NoWindow || late && plan.Window.Kind == verify.Tumbling
			if r.Verdict == verify.Clean || known && r.Verdict != verify.Broken {
				t.Fatalf("seed %d, %s: %s\n%s", seed, s.name, shown(r), w)
			}
			if count[s.name] == nil {
				count[s.name] = map[verify.Verdict]int{}
			}
			count[s.name][r.Verdict]++
		}
	}
	for _, s := range sabotages() {
		t.Logf("%-40s %v", s.name, count[s.name])
		if count[s.name][verify.Broken] == 0 {
			t.Errorf("%s was never found broken", s.name)
		}
	}
}
