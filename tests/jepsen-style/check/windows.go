package check

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Reading is one record of a source.
type Reading struct {
	Split int
	Key   string
	Time  int64 // of the event, milliseconds
	Value int64
}

// Windows says what a member makes of what it reads: it counts the records of each key, and adds up their values, in
// windows [k*Every, k*Every+Size) of event time. A window fires when every split is Disorder past its end; for Lateness
// more it takes records all the same, and then sends its result again. Times are milliseconds.
type Windows struct {
	Size, Every        int64
	Disorder, Lateness int64
	Splits             int
	// Late is the resource that takes the records that come too late; all others take the results.
	Late string
	// Source is all that there was to read, in the order in which it is read. Offsets count in it.
	Source []Reading
}

// WindowResult is how a member writes what a window made of a key: the window, and count and sum of the records. Update:
// it was written before, with fewer records.
func WindowResult(key string, start, end, count, sum int64, update bool) string {
	again := ""
	if update {
		again = "+"
	}
	return fmt.Sprintf("%s@%d…%d=%d/%d%s", key, start, end, count, sum, again)
}

// LateRecord is how a member writes a record that came too late: its split, and its place in it.
func LateRecord(split int, offset int64) string { return fmt.Sprintf("late:%d/%d", split, offset) }

// countedOnce is C14. What a record makes visible depends on it and those before it alone, so an epoch must have committed
// what its own records make visible, in this order, in each resource that takes results; and those of them that
// are late in the resource for these.
func countedOnce(events []Event, b Bounds) []Finding {
	f := findings{rule: "C14"}
	if len(b.Windows) == 0 {
		return nil
	}
	got, drained := visible(events), drains(events)
	for scope, all := range stretches(events) {
		for member, w := range b.Windows[scope] {
			known := map[string]outcome{}       // of a source that was drained at these places
			behind := map[Epoch][]int64{{}: {}} // where it had been drained, on the way to an epoch
			for _, s := range all {
				from, to := s.from[member], s.to[member]
				if from > to || to > int64(len(w.Source)) {
					f.add("%s of %s is decided with %s at offsets %d to %d of a source of %d records", s.epoch, scope, member, from, to, len(w.Source))
					break
				}
				at, ends := slices.Clone(behind[s.after]), drained[share{scope: scope, member: member, epoch: s.epoch}]
				if ends {
					at = append(at, to)
				}
				behind[s.epoch] = at
				if _, ok := known[fmt.Sprint(at)]; !ok {
					known[fmt.Sprint(at)] = w.evaluate(at)
				}
				o := known[fmt.Sprint(at)]
				results := slices.Concat(o.results[from:to]...)
				if ends {
					results = append(results, o.drained[len(at)-1]...)
				}
				for _, r := range b.Resources[scope][member] {
					want := results
					if r == w.Late {
						want = slices.Concat(o.late[from:to]...)
					}
					if have := got[share{scope, member, r, s.epoch}]; !slices.Equal(have, want) {
						f.add("%s of %s is decided with %s at offsets %d to %d, and of what these records make %s/%s %s",
							s.epoch, scope, member, from, to, member, r, differs(have, want))
					}
				}
			}
		}
	}
	return f.all
}

// drains are the epochs in which a member took its source for ended.
func drains(events []Event) map[share]bool {
	all := map[share]bool{}
	for _, e := range events {
		if e.Kind == Voted && e.Op == "drain" {
			all[share{scope: e.Branch.Scope, member: e.Branch.Member, epoch: e.Branch.Epoch}] = true
		}
	}
	return all
}

// differs says what is missing and what is too much.
func differs(have, want []string) string {
	missing, extra := without(want, have), without(have, want)
	switch {
	case len(extra) == 0 && len(missing) == 0:
		return "has all, in another order"
	case len(extra) == 0:
		return fmt.Sprintf("lacks %d: %s", len(missing), span(missing))
	case len(missing) == 0:
		return fmt.Sprintf("has %d too many: %s", len(extra), span(extra))
	}
	return fmt.Sprintf("lacks %d: %s, and has %d others: %s", len(missing), span(missing), len(extra), span(extra))
}

// without are the texts of one list that another has not, or not so often.
func without(list, other []string) []string {
	n := map[string]int{}
	for _, text := range other {
		n[text]++
	}
	var rest []string
	for _, text := range list {
		if n[text]--; n[text] < 0 {
			rest = append(rest, text)
		}
	}
	return rest
}

// outcome is what a source makes visible: at each of its records, and at each end of its time.
type outcome struct {
	results, late [][]string
	drained       [][]string
}

// never is before all times.
const never = math.MinInt64 / 2

// evaluation goes through a source, the plain way: all open windows are looked at for every record.
type evaluation struct {
	w Windows
	// newest event time of each split, and how many records it had.
	newest, read []int64
	// mark is the watermark: through it windows have fired. Shut is where the last drain left it: nothing of what
	// ended before is kept, however late records may be.
	mark, shut int64
	open       map[int64]map[string]total // by start
}

type total struct{ count, sum int64 }

// evaluate computes what the source makes visible if it is taken for ended behind so many of its records, each time.
func (w Windows) evaluate(drains []int64) outcome {
	v := evaluation{
		w: w, mark: never, shut: never, read: make([]int64, w.Splits), newest: slices.Repeat([]int64{never}, w.Splits), open: map[int64]map[string]total{},
	}
	var o outcome
	for i := range int64(len(w.Source)) + 1 {
		for len(drains) > 0 && drains[0] == i {
			drains = drains[1:]
			o.drained = append(o.drained, v.drain())
		}
		if i < int64(len(w.Source)) {
			results, late := v.record(w.Source[i])
			o.results, o.late = append(o.results, results), append(o.late, late)
		}
	}
	return o
}

// record takes the next record: into its windows that still take records, or it is late.
func (v *evaluation) record(r Reading) (results, late []string) {
	place := v.read[r.Split]
	v.read[r.Split]++
	taken := false
	for start := (r.Time/v.w.Every - v.w.Size/v.w.Every - 2) * v.w.Every; start <= r.Time; start += v.w.Every {
		end := start + v.w.Size
		if r.Time >= end || end <= v.closed() {
			continue
		}
		taken = true
		if v.open[start] == nil {
			v.open[start] = map[string]total{}
		}
		was, had := v.open[start][r.Key]
		now := total{was.count + 1, was.sum + r.Value}
		v.open[start][r.Key] = now
		if end <= v.mark {
			results = append(results, WindowResult(r.Key, start, end, now.count, now.sum, had))
		}
	}
	if !taken {
		late = append(late, LateRecord(r.Split, place))
	}
	v.newest[r.Split] = max(v.newest[r.Split], r.Time)
	if least := slices.Min(v.newest); least > never && least-v.w.Disorder > v.mark {
		results = append(results, v.fire(least-v.w.Disorder)...)
	}
	return results, late
}

// closed is the end through which windows take no record any more.
func (v *evaluation) closed() int64 { return max(v.shut, v.mark-v.w.Lateness) }

// fire moves the watermark and returns the results of the windows that it has passed, by their ends and keys.
func (v *evaluation) fire(to int64) []string {
	var results []string
	for _, start := range slices.Sorted(maps.Keys(v.open)) {
		end := start + v.w.Size
		if end <= v.mark || end > to {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(v.open[start])) {
			t := v.open[start][key]
			results = append(results, WindowResult(key, start, end, t.count, t.sum, false))
		}
	}
	v.mark = to
	maps.DeleteFunc(v.open, func(start int64, _ map[string]total) bool { return start+v.w.Size <= v.closed() })
	return results
}

// drain fires all windows that have not fired; from then on only what has fired is past.
func (v *evaluation) drain() []string {
	last := v.mark
	for start := range v.open {
		last = max(last, start+v.w.Size)
	}
	results := v.fire(last)
	v.shut = max(v.shut, last)
	clear(v.open)
	return results
}
