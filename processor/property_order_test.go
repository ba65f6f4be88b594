package processor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBatchesEpochsAndKillsChangeNothing: the same records in the same order give the same outputs as a run
// of one record after the other without any kill, however they are cut into batches and epochs and
// wherever processes are killed. Only the epochs differ.
func TestBatchesEpochsAndKillsChangeNothing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if *propertySeed != 0 {
		seed = *propertySeed
	}
	plans := uint64(150)
	if testing.Short() {
		plans = 30 // in one goroutine
	}
	for n := range plans {
		c := chooser{rand.New(rand.NewPCG(seed+n, 1))}
		base := someTrial(seed+n, trialLength)
		base.idle, base.bad = 0, choose(c, "skip", "dead") // silence is judged by the clock, and a repair changes records
		var first map[string][]string
		for run := range 4 {
			tr := recut(c, base, run > 0)
			l, err := lived(tr, sabotage{})
			if err != nil {
				t.Fatalf("-property.seed=%d, run %d: %v\n%s", seed+n, run, err, tr)
			}
			outputs := l.outputs()
			if first == nil {
				first = outputs
			}
			for sink, want := range first {
				if got := outputs[sink]; !slices.Equal(got, want) {
					t.Fatalf("-property.seed=%d, run %d: sink %q holds\n  %s\nand in the first run\n  %s\n%s",
						seed+n, run, sink, strings.Join(got, "\n  "), strings.Join(want, "\n  "), tr)
				}
			}
		}
	}
	t.Logf("seeds from %d on", seed)
}

// recut keeps the records of a trial and their order, and cuts them into batches, epochs and processes
// anew; tame: one record after the other, without any kill.
func recut(c chooser, base trial, wild bool) trial {
	t := trial{setup: base.setup}
	var order []int64
	last := make([]bool, base.splits)
	for _, h := range base.ops {
		if !slices.Contains(recordKinds, h.what) {
			continue
		}
		h.a %= base.splits
		if h.what == kindAgain && !last[h.a] {
			continue
		}
		last[h.a] = true
		t.ops, order = append(t.ops, h), append(order, h.a)
	}
	// After a kill, what was not decided is read again in the same order.
	at, decided, voted := 0, 0, []int(nil)
	for at < len(order) {
		next := happening{what: opPoll, a: order[at], b: 1}
		switch n := c.IntN(20); {
		case !wild || n < 12:
			for wild && at+int(next.b) < len(order) && order[at+int(next.b)] == next.a && !c.oneIn(3) {
				next.b++
			}
			at += int(next.b)
		case n < 14:
			next = happening{what: opPoll, a: c.Int64N(base.splits)} // an empty batch
		case n < 17:
			next = happening{what: opCut}
			voted = append(voted, at)
		case n < 19 && len(voted) > 0:
			next = happening{what: opDecide}
			decided, voted = voted[0], voted[1:]
		case n == 19:
			next = happening{what: choose(c, opCrash, opCrash, opStop)}
			if next.what == opStop {
				decided = at
			}
			at, voted = decided, nil
		default:
			continue
		}
		t.ops = append(t.ops, next)
	}
	return t
}

// outputs is all that the sinks hold, but in which epoch.
func (l *life) outputs() map[string][]string {
	out := map[string][]string{}
	for name, s := range l.sinks {
		for _, c := range s.Committed() {
			r := c.Record
			out[name] = append(out[name], fmt.Sprintf("%q=%q %v %d %d", r.Key, r.Value, r.Headers, r.Time, r.EventTime))
		}
	}
	return out
}
