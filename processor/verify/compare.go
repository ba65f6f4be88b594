package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/unisink/unisink/internal/plural"
	"github.com/unisink/unisink/processor/verify/fold"
)

// comparison holds the results of all sinks against what was recomputed.
type comparison struct {
	e       *evaluator
	targets []*contents
	// epochs says which epochs the results of a window came from in the first sink that tells, to compare
	// the others: one decision makes a result visible in all of them.
	epochs map[windowID]stamp
	counts int // index of the fold that counts records, -1: none
}

type stamp struct {
	epochs []Epoch
	sink   string
}

// contents is what one sink holds.
type contents struct {
	target *Target
	given  map[windowID]*given
	// early are results of windows that the watermark had not reached.
	early []early
	// within counts what the results say that lie within a session which cannot be known.
	within map[windowID]int64
	epochs map[Epoch]bool
}

// given is what a sink holds of one window.
type given struct {
	n      int
	firsts int  // results that do not call themselves updates
	told   bool // they say whether they are
	epochs []Epoch
	last   int // index of the result that judged is about
	part   string
	judged judgement
	counts []int64 // what the results say, where updates are possible
}

type early struct {
	id    windowID
	found Found
	out   Output // without its slices
}

// judgement is how a result fits what was recomputed.
type judgement struct {
	fit fit
	why string
}

type fit uint8

const (
	fits fit = iota + 1
	fitsPerhaps
	fitsNot
)

func newComparison(e *evaluator) *comparison {
	return &comparison{
		e: e, epochs: map[windowID]stamp{},
		counts: slices.IndexFunc(e.p.Folds, func(f Fold) bool { return f.Kind == Count && !f.Partial }),
	}
}

func (c *comparison) read(ctx context.Context, t *Target) error {
	in := &contents{target: t, given: map[windowID]*given{}, within: map[windowID]int64{}, epochs: map[Epoch]bool{}}
	c.targets = append(c.targets, in)
	tick := c.e.ticker("sink " + t.Name)
	return t.Reader.Read(ctx, func(o Output) error {
		tick()
		if c.e.beyond(t.Name, &o) {
			return nil
		}
		c.e.report.Compared++
		if at := (Epoch{o.Generation, o.N}); at.known() {
			in.epochs[at] = true
		}
		found, bad := t.Find(&o)
		if bad != nil {
			c.different(Case{Sink: t.Name, Key: o.Place, Why: bad.Error()})
			return nil //nolint:nilerr // the reading goes on, the report tells
		}
		id, why := c.identify(&found)
		if why != "" {
			c.different(c.label(in, id, found.End, why+", at "+o.Place))
			return nil
		}
		w := c.e.windows[id]
		if w != nil && c.e.due(w.end) == mustNotFire && (c.e.job.Cut.Final || c.e.job.Cut.Behind) {
			o.Key, o.Value, o.Headers = nil, nil, nil
			in.early = append(in.early, early{id, found, o})
			return nil
		}
		c.result(in, id, &found, &o)
		return nil
	})
}

func (c *comparison) different(x Case) { c.e.report.Different = append(c.e.report.Different, x) }

// identify fills in what the window's kind says of its start and end, and refuses what is no window.
func (c *comparison) identify(f *Found) (windowID, string) {
	e := c.e
	if e.p.Window.Kind == Session {
		switch { // by default it is of one record
		case f.NoStart:
			f.Start = f.End - e.gap
		case f.NoEnd:
			f.End = f.Start + e.gap
		}
		e.complete(f)
		return windowID{f.Start, f.End, f.Key}, ""
	}
	switch {
	case f.NoStart:
		f.Start = f.End - e.size
	case f.NoEnd:
		f.End = f.Start + e.size
	}
	id := windowID{start: f.Start, key: f.Key}
	if f.End != f.Start+e.size || floor(f.Start, e.every) != f.Start {
		return id, "there is no such window"
	}
	return id, ""
}

// drained reports whether results that the watermark had not reached say that the last generation ended in a
// drain. Those of an end before may lie there as well, and say nothing of it.
func (c *comparison) drained() bool {
	cut := &c.e.job.Cut
	last := func(x early) bool { return !cut.Behind || x.out.Generation == cut.Proven.Generation }
	return cut.Final && slices.ContainsFunc(c.targets, func(in *contents) bool { return slices.ContainsFunc(in.early, last) })
}

// result judges one output.
func (c *comparison) result(in *contents, id windowID, f *Found, o *Output) {
	w := c.e.windows[id]
	if w == nil || c.e.p.Window.Kind == Session && w.unsure != "" {
		if at, around := c.e.around(id); around != nil && around.unsure != "" {
			in.within[at] += c.countOf(f)
			in.given[at] = &given{n: 1}
			return
		}
	}
	if w == nil {
		c.unexplained(in, id, f, o)
		return
	}
	if c.e.p.Window.Kind == Session && c.e.job.Cut.Newest != nil && o.N == 0 && c.e.due(w.end) == mayFireLater {
		c.e.undeterminable(c.label(in, id, f.End, "it fired behind the cut, at "+o.Place))
		return
	}
	if c.e.due(w.end) == mustNotFire {
		c.different(c.label(in, id, w.end, "it had not fired at the cut, and is there, at "+o.Place))
		return
	}
	g := in.given[id]
	if g == nil {
		g = &given{}
		in.given[id] = g
	}
	if g.n++; g.n > 1 && c.e.lateness == 0 {
		if g.n == 2 {
			c.e.report.Doubled = append(c.e.report.Doubled, c.label(in, id, w.end, "again at "+o.Place))
		}
		return
	}
	if !f.NoUpdate {
		g.told = true
		if !f.Update {
			g.firsts++
		}
	}
	j := c.judge(w, id, f, o)
	if j.why != "" {
		j.why += ", at " + o.Place
	}
	g.take(j, o)
	if c.e.lateness > 0 && c.counts >= 0 {
		g.counts = append(g.counts, c.countOf(f))
	}
}

// take keeps the judgement of the last result. Of two of one epoch in different parts either may be the last.
func (g *given) take(j judgement, o *Output) {
	at := Epoch{o.Generation, o.N}
	g.epochs = append(g.epochs, at)
	newest := g.epochs[g.last]
	switch {
	case len(g.epochs) == 1:
	case newest.after(at):
		return
	case newest == at && g.part != o.Part && g.judged.fit <= j.fit:
		return
	}
	g.last, g.part, g.judged = len(g.epochs)-1, o.Part, j
}

// countOf is what a result says of its number of records, -1: nothing.
func (c *comparison) countOf(f *Found) int64 {
	if c.counts >= 0 {
		if r, ok := fold.Rational(f.Values[c.counts]); ok && r.IsInt() && r.Num().IsInt64() {
			return r.Num().Int64()
		}
	}
	return -1
}

func (c *comparison) unexplained(in *contents, id windowID, f *Found, o *Output) {
	why := "no record explains it"
	if late := c.e.lateIn[id]; len(late) > 0 {
		why = "it has only records that are in the late output, " + origins(late)
	}
	if c.e.p.Window.Kind == Session && c.e.job.Cut.Newest != nil && o.N == 0 && !f.NoEnd && c.e.due(f.End) != mustFire {
		c.e.undeterminable(c.label(in, id, f.End, "it fired behind the cut, at "+o.Place))
		return
	}
	c.different(c.label(in, id, f.End, why+", at "+o.Place))
}

func origins(list []*fold.Piece) string {
	var b strings.Builder
	for i, p := range list {
		switch {
		case i == 3:
			fmt.Fprintf(&b, " and %d more", len(list)-i)
			return b.String()
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(p.Origin)
	}
	return b.String()
}

// judge compares a result with every content that its window may have had.
func (c *comparison) judge(w *want, id windowID, f *Found, o *Output) judgement {
	e := c.e
	if w.total.Refuses() {
		return judgement{fitsPerhaps, "what of it can be added up depends on the order of its records"}
	}
	why := c.differs(&w.total, id, w.end, f)
	if w.unsure != "" {
		return judgement{fitsPerhaps, w.unsure}
	}
	for _, i := range f.Needs {
		if _, known := w.total.Value(i); !known {
			return judgement{fitsPerhaps, "what is computed of its " + string(e.p.Folds[i].Kind) + " can't be computed again"}
		}
	}
	// What is labelled with an epoch up to the cut holds nothing from behind the cut.
	after := w.after
	if e.job.Cut.Proven.known() && o.N != 0 {
		after = nil
	}
	if len(w.maybe) == 0 && w.more == 0 {
		if why != "" && len(after) > 0 {
			why = c.behind(w, after, id, f)
		}
		if why != "" {
			return c.wrong(w, id, f, why)
		}
		return judgement{fit: fits}
	}
	if n := c.countOf(f); n >= 0 && (n < int64(w.total.N) || n > int64(w.most()+len(after))) {
		return judgement{fitsNot, fmt.Sprintf("it counts %s, and must count from %d to %d", plural.Of(n, "record"), w.total.N, w.most())}
	}
	if w.more > 0 || len(after) > 0 || c.anyOf(w, id, f) {
		return judgement{fitsPerhaps, mayBeLate}
	}
	return judgement{fitsNot, "no choice of the records that may have been late explains it; with all of them it " + c.differs(w.total.With(e.p.Folds, w.maybe...), id, w.end, f)}
}

// behind tries records from behind the cut: all of them, as they were added to a window that had not fired,
// and with allowed lateness those up to some point.
func (c *comparison) behind(w *want, after []*fold.Piece, id windowID, f *Found) string {
	all := c.differs(w.total.With(c.e.p.Folds, after...), id, w.end, f)
	if all == "" || c.e.lateness == 0 {
		return all
	}
	if len(after) <= maxMaybe {
		for mask := range 1 << len(after) {
			if c.differs(w.total.With(c.e.p.Folds, chosen(after, mask)...), id, w.end, f) == "" {
				return ""
			}
		}
	}
	return all
}

// anyOf tries every choice of the records that may be in a window.
func (c *comparison) anyOf(w *want, id windowID, f *Found) bool {
	for mask := range 1 << len(w.maybe) {
		some := chosen(w.maybe, mask)
		if w.total.N+len(some) > 0 && c.differs(w.total.With(c.e.p.Folds, some...), id, w.end, f) == "" {
			return true
		}
	}
	return false
}

func chosen(list []*fold.Piece, mask int) (some []*fold.Piece) {
	for i, p := range list {
		if mask&(1<<i) != 0 {
			some = append(some, p)
		}
	}
	return some
}

// wrong says how a result that cannot be right may have come about.
func (c *comparison) wrong(w *want, id windowID, f *Found, why string) judgement {
	if c.e.blind() {
		if n := c.countOf(f); n > int64(w.most()) {
			return judgement{fitsNot, why}
		}
		return judgement{fitsPerhaps, why + "; silent splits may have made records late"}
	}
	late := c.e.lateIn[id]
	if len(late) > 0 && len(late) <= maxMaybe {
		for mask := 1; mask < 1<<len(late); mask++ {
			some := chosen(late, mask)
			if c.differs(w.total.With(c.e.p.Folds, some...), id, w.end, f) == "" {
				return judgement{fitsNot, why + "; it holds " + origins(some) + ", which the late output holds too"}
			}
		}
	}
	if n := c.countOf(f); n >= 0 && n < int64(w.total.N) {
		why += fmt.Sprintf("; %d of its records are nowhere", int64(w.total.N)-n)
	}
	return judgement{fitsNot, why}
}

// differs returns how a result is not what a content makes, or "".
func (c *comparison) differs(t *fold.Total, id windowID, end int64, f *Found) string {
	for i := range c.e.p.Folds {
		is, there := f.Values[i]
		if !there {
			continue
		}
		if why := t.Differs(i, is); why != "" {
			return string(c.e.p.Folds[i].Kind) + " " + why
		}
	}
	if f.Derived == nil {
		return ""
	}
	values := make([]any, len(c.e.p.Folds))
	for i := range values {
		v, ok := t.Value(i)
		if !ok {
			v = Unknown{}
		}
		values[i] = v
	}
	return f.Derived(id.key, id.start, end, values)
}

// Unknown stands for an aggregate that has no one right value.
type Unknown struct{}

func (c *comparison) label(in *contents, id windowID, end int64, why string) Case {
	return Case{Sink: in.target.Name, Key: id.key, Window: interval(id.start, end), Why: why}
}
