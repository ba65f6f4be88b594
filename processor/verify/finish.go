package verify

import (
	"fmt"
	"slices"

	"github.com/unisink/unisink/internal/plural"
)

// finish judges the early results, now that it is known whether the pipeline was drained, and says what is
// missing.
func (c *comparison) finish() Report {
	e := c.e
	for _, in := range c.targets {
		for i := range in.early {
			x := &in.early[i]
			c.result(in, x.id, &x.found, &x.out)
		}
	}
	for _, w := range e.windows {
		switch {
		case w.most() == 0: // only records from behind the cut
		case e.due(w.end) == mustFire:
			e.report.Windows++
		default:
			e.report.Open++
		}
	}
	for _, in := range c.targets {
		for id, w := range e.windows {
			c.settle(in, id, w)
		}
	}
	e.settleLine()
	e.report.judge()
	return e.report
}

// settle judges what a sink holds of a window.
func (c *comparison) settle(in *contents, id windowID, w *want) {
	g := in.given[id]
	if c.e.p.Window.Kind == Session && w.unsure != "" {
		c.unsureSession(in, id, w, g != nil)
		return
	}
	if g == nil {
		c.absent(in, id, w)
		return
	}
	switch g.judged.fit {
	case fitsPerhaps:
		c.e.undeterminable(c.label(in, id, w.end, g.judged.why))
	case fitsNot:
		c.different(c.label(in, id, w.end, g.judged.why))
		return
	case fits:
	}
	if c.e.lateness > 0 && !c.revisions(in, id, w, g) {
		return
	}
	if g.judged.fit == fits {
		c.together(in, id, w, g)
	}
}

// absent judges a window that a sink has nothing of.
func (c *comparison) absent(in *contents, id windowID, w *want) {
	e := c.e
	d := e.due(w.end)
	switch {
	case d == mustNotFire, d == mayFireLater, w.most() == 0:
	case w.unsure != "":
		e.undeterminable(c.label(in, id, w.end, "it is not there; "+w.unsure))
	case w.total.N == 0:
		e.undeterminable(c.label(in, id, w.end, "it is not there; all of its records may have been late"))
	case d == mayFire || e.blind():
		e.undeterminable(c.label(in, id, w.end, "it is not there; silent splits may have made it late"))
	default:
		why := "it is not there"
		if first, ok := c.epochs[id]; ok && len(first.epochs) > 0 {
			at := first.epochs[0]
			why += fmt.Sprintf(", and in sink %q since epoch %s", first.sink, at)
			if !in.epochs[at] {
				why += ", of which nothing is here: that epoch is torn"
			}
		}
		e.report.Missing = append(e.report.Missing, c.label(in, id, w.end, why))
	}
}

// unsureSession judges a session that may have been cut in several: they must hold its records together.
func (c *comparison) unsureSession(in *contents, id windowID, w *want, any bool) {
	e := c.e
	switch d := e.due(w.end); {
	case !any && (d == mustNotFire || d == mayFireLater):
		return
	case !any && d == mustFire && e.late != nil && !e.loose():
		e.report.Missing = append(e.report.Missing, c.label(in, id, w.end, "nothing of it is there"))
		return
	}
	sum := in.within[id]
	if any && c.counts >= 0 && (sum > int64(w.total.N) || sum < int64(w.total.N) && e.late != nil && e.due(w.end) == mustFire) {
		c.different(c.label(in, id, w.end, fmt.Sprintf("its parts count %s together, and must count %d", plural.Of(sum, "record"), w.total.N)))
		return
	}
	e.undeterminable(c.label(in, id, w.end, w.unsure))
}

// revisions judges how often the result of a window was sent, where late records made it be sent again: the
// first time when it fired, and then once for each record that came later. It returns false when that is
// wrong.
func (c *comparison) revisions(in *contents, id windowID, w *want, g *given) bool {
	e := c.e
	if g.told && g.firsts > 1 {
		e.report.Doubled = append(e.report.Doubled, c.label(in, id, w.end, fmt.Sprintf("%d of its results say that they are the first", g.firsts)))
		return false
	}
	if g.told && g.firsts == 0 {
		e.report.Missing = append(e.report.Missing, c.label(in, id, w.end, "its first result is not there, and updates are"))
		return false
	}
	afterwards := w.most() + len(w.after) - w.before // records that may have come when it had fired
	most := afterwards
	if w.before > 0 {
		most++
	}
	if g.n > max(1, most) {
		e.report.Doubled = append(e.report.Doubled, c.label(in, id, w.end, fmt.Sprintf("it has %s, and its records explain at most %d", plural.Of(g.n, "result"), max(1, most))))
		return false
	}
	if len(g.counts) > 0 && !slices.Contains(g.counts, -1) {
		slices.Sort(g.counts)
		for i := 1; i < len(g.counts); i++ {
			switch step := g.counts[i] - g.counts[i-1]; {
			case step == 0:
				e.report.Doubled = append(e.report.Doubled, c.label(in, id, w.end, fmt.Sprintf("two of its results count %s", plural.Of(g.counts[i], "record"))))
				return false
			case step > 1:
				e.report.Missing = append(e.report.Missing, c.label(in, id, w.end, fmt.Sprintf("an update is not there: its results count %s and then %d", plural.Of(g.counts[i-1], "record"), g.counts[i])))
				return false
			}
		}
		if g.counts[0] < int64(w.before) {
			c.different(c.label(in, id, w.end, fmt.Sprintf("its first result counts %s, and %d had come for certain", plural.Of(g.counts[0], "record"), w.before)))
			return false
		}
		if g.told {
			return true
		}
	}
	if e.ordered() && g.n != max(1, most) {
		e.report.Missing = append(e.report.Missing, c.label(in, id, w.end, fmt.Sprintf("it has %s, and must have %d", plural.Of(g.n, "result"), max(1, most))))
		return false
	}
	if !e.ordered() && afterwards > 0 && g.judged.fit == fits {
		e.undeterminable(c.label(in, id, w.end, fmt.Sprintf("whether its %d results are all is not known: it may have had up to %d", g.n, max(1, most))))
		return false
	}
	return true
}

// together checks that the results of a window are of the same epochs in all sinks.
func (c *comparison) together(in *contents, id windowID, w *want, g *given) {
	if slices.ContainsFunc(g.epochs, func(at Epoch) bool { return at.N == 0 }) {
		return
	}
	first, ok := c.epochs[id]
	if !ok {
		c.epochs[id] = stamp{g.epochs, in.target.Name}
		return
	}
	if !slices.Equal(sorted(first.epochs), sorted(g.epochs)) {
		c.different(c.label(in, id, w.end, fmt.Sprintf("it is of epoch %s, and of %s in sink %q", list(g.epochs), list(first.epochs), first.sink)))
	}
}

func sorted(in []Epoch) []Epoch {
	out := slices.Clone(in)
	slices.SortFunc(out, func(a, b Epoch) int {
		switch {
		case a.after(b):
			return 1
		case b.after(a):
			return -1
		}
		return 0
	})
	return out
}

func list(in []Epoch) string {
	text := ""
	for i, at := range sorted(in) {
		if i > 0 {
			text += ", "
		}
		text += at.String()
	}
	return text
}
