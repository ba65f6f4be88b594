package spec_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/processortest"
)

const everyAggregate = `
  aggregate:
    n: count()
    sum: sum(rec.x)
    min: min(rec.x)
    max: max(rec.x)
    avg: avg(rec.x)
    price: sum(decimal(rec.p))
    different: distinct(rec.x)
    about: approx_distinct(rec.x)
    first: first(rec.x)
    last: last(rec.x)
    top: top_k(rec.x, 2)
    median: quantile(rec.x, 0.5)
`

// TestE7_ARestartChangesNoResult: killed behind any epoch and built again from the text, a pipeline
// sends what it would have sent: what a window owes is in the state, whatever its aggregates are.
func TestE7_ARestartChangesNoResult(t *testing.T) {
	for name, kind := range map[string]string{
		"tumbling": "tumbling: 1s", "sliding": "sliding: {size: 2s, every: 1s}\n  allowed_lateness: 1s", "session": "session: 300ms",
	} {
		t.Run(name, func(t *testing.T) {
			text := "pipeline: p\nsource: {mem: {}, event_time: rec.at, disorder: 200ms}\nkey: rec.k\non_error: skip\nwindow:\n  " + kind + everyAggregate + "sinks: [{name: out, mem: {}}]\n"
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			var want []string
			for round, kills := range []int{0, 3} {
				r := rand.New(rand.NewPCG(seed, 3))
				w := newWorld()
				got := w.lives(t, text, r, kills)
				if round == 0 {
					want = got
				} else if strings.Join(got, "\n") != strings.Join(want, "\n") {
					t.Errorf("with restarts:\n%s\nwithout:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
			if len(want) < 10 {
				t.Errorf("only %d results", len(want))
			}
		})
	}
}

// lives appends records in four parts and takes an epoch behind each; behind the first of them the process is killed.
func (w *world) lives(t *testing.T, text string, r *rand.Rand, kills int) []string {
	t.Helper()
	ctx := context.Background()
	p := w.build(t, text)
	resources := map[string]participant.Resource{"out": w.sinks["out"]}
	scope := processortest.NewScope(resources)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	task := p.Task(0, nil)
	run, err := scope.Begin(ctx, task)
	must(err)
	generation, n := uint64(1), uint64(0)
	for part := range 4 {
		for i := range 40 {
			x := fmt.Sprint(r.IntN(5))
			if r.IntN(3) == 0 {
				x += ".5"
			}
			if r.IntN(20) == 0 {
				x = `"bad"`
			}
			w.value(0, fmt.Sprintf(`{"k":"k%d","x":%s,"p":"%d.%02d","at":%d}`, r.IntN(3), x, r.IntN(9), r.IntN(99), part*2000+i*50+r.IntN(250)))
		}
		if part == 3 {
			w.source.End()
		}
		must(run.Await(ctx, func(_, ended bool, _ int64) bool {
			return ended || part < 3 && p.Counters().Records == uint64(40*(part+1))
		}))
		n++
		must(task.Barrier(ctx, participant.Barrier{Generation: generation, N: n, Final: part == 3, Drain: part == 3}))
		must(scope.Decide(ctx))
		must(scope.Finish(ctx))
		if part < kills {
			must(task.Halted(ctx, "killed"))
			p = w.build(t, text)
			task = p.Task(0, nil)
			run, err = scope.Begin(ctx, task)
			must(err)
			generation, n = generation+1, 0
		}
	}
	must(task.Halted(ctx, "done"))
	must(scope.Close(ctx))
	return slices.Clone(w.lines("out"))
}
