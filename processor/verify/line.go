package verify

import (
	"slices"

	"github.com/unisink/unisink/processor/stream"
)

// Rewound is one rewind of the pipeline, or a start from scratch: the epochs after To up to Newest were decided by then,
// and what was decided later goes on from To.
type Rewound struct {
	To     Epoch // zero: from scratch
	Newest Epoch
}

// line is how an epoch came about, after rewinds: the stretches of epochs that it builds on. Those between are
// superseded: they were decided, stand in the sinks, and have been written again.
type line struct {
	stretches []Rewound // To is the last of a stretch, and Newest the last before it
	// lost: it goes back behind what is known of rewinds.
	lost bool
	// aside are the superseded epochs that were met, and untold the sinks that don't tell epochs though there may be some.
	aside  map[Epoch]bool
	untold map[string]bool
}

// lineOf follows the rewinds, oldest first, back from an epoch.
func lineOf(tip Epoch, rewinds []Rewound, forgotten bool) line {
	l := line{aside: map[Epoch]bool{}, untold: map[string]bool{}}
	l.lost = !tip.known() && (forgotten || len(rewinds) > 0)
	for at := tip; at.known(); {
		i := len(rewinds) - 1
		for i >= 0 && !at.after(rewinds[i].Newest) {
			i--
		}
		if i < 0 {
			l.stretches, l.lost = append(l.stretches, Rewound{To: at}), forgotten
			return l
		}
		l.stretches = append(l.stretches, Rewound{To: at, Newest: rewinds[i].Newest})
		at, rewinds = rewinds[i].To, rewinds[:i]
	}
	return l
}

func (l *line) holds(at Epoch) bool {
	for _, s := range l.stretches {
		if !at.after(s.To) && at.after(s.Newest) {
			return true
		}
	}
	return false
}

// superseded reports whether an output was put aside by a rewind. One that does not tell its epoch makes its sink a
// doubtful one.
func (e *evaluator) superseded(sink string, at Epoch) bool {
	switch {
	case len(e.job.Cut.Rewinds) == 0 || e.line.lost:
		return false
	case !at.known():
		e.line.untold[sink] = true
		return false
	case e.line.holds(at):
		return false
	}
	e.report.Superseded++
	e.line.aside[at] = true
	return true
}

// settleLine makes unknown what can't be told of sinks that don't say which of their records are superseded. Late
// records and dead letters decide where the others are, so of theirs nothing is known in any sink.
func (e *evaluator) settleLine() {
	e.report.SupersededEpochs = len(e.line.aside)
	all := e.line.lost
	for _, c := range []*Copies{e.job.Late, e.job.Dead} {
		all = all || c != nil && e.line.untold[c.Name]
	}
	for _, list := range []*[]Case{&e.report.Missing, &e.report.Doubled, &e.report.Different} {
		*list = slices.DeleteFunc(*list, func(c Case) bool { return all || e.line.untold[c.Sink] })
	}
	if e.line.lost {
		e.undeterminable(Case{Why: "the pipeline was rewound, and not all of its rewinds are known: which records they put aside is not known"})
	}
	for sink := range e.line.untold {
		e.undeterminable(Case{Sink: sink, Why: "the pipeline was rewound, and the sink's records don't tell their epoch: which of them the rewind put aside is not known"})
	}
}

// newest are the positions of Newest, unless it is not what the proven epoch has become: then it says nothing of it.
func (c *Cut) newest() []stream.Position {
	if l := lineOf(c.Decided, c.Rewinds, false); len(c.Rewinds) > 0 && c.Proven.known() && !l.holds(c.Proven) {
		return nil
	}
	return c.Newest
}
