package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// comparison holds the outputs of all sinks against what was recomputed.
type comparison struct {
	e      *evaluator
	report Report
	// epochs says which epoch a result came from in the first sink that tells, to compare the others:
	// one decision makes it visible in all of them.
	epochs map[windowID]epoch
}

type epoch struct {
	generation, n uint64
	sink          string
}

// contents is what one sink holds.
type contents struct {
	sink *Sink
	seen map[windowID]int
	// early are results of windows that the watermark had not reached.
	early []early
}

type early struct {
	id     windowID
	fields map[string]any
	output Output // without its slices
}

func (c *comparison) read(ctx context.Context, s *Sink) (*contents, error) {
	in := &contents{sink: s, seen: make(map[windowID]int)}
	return in, s.Reader.Read(ctx, func(o Output) error {
		id, fields, torn := parse(s, &o)
		if torn != "" {
			c.report.Different = append(c.report.Different, Case{Sink: s.Name, Key: o.Place, Why: torn})
			return nil
		}
		in.seen[id]++
		switch in.seen[id] {
		case 1:
			if c.e.windows[id] != nil && c.e.due(id) == mustNotFire {
				o.Key, o.Value = nil, nil
				in.early = append(in.early, early{id, fields, o})
				return nil
			}
			c.result(s, id, fields, &o)
		case 2:
			c.report.Doubled = append(c.report.Doubled, c.label(s, id, "again at "+o.Place))
		}
		return nil
	})
}

func (c *comparison) anyEarly(read []*contents) bool {
	return slices.ContainsFunc(read, func(in *contents) bool { return len(in.early) > 0 })
}

// settle judges the early results of a sink, now that it is known whether the pipeline was drained,
// and says what is missing.
func (c *comparison) settle(in *contents) {
	s := in.sink
	for i := range in.early {
		c.result(s, in.early[i].id, in.early[i].fields, &in.early[i].output)
	}
	for id, w := range c.e.windows {
		if in.seen[id] > 0 {
			continue
		}
		switch d := c.e.due(id); {
		case d == mustNotFire, d == mayFireLater:
		case w.unsure != "":
			c.report.Undeterminable = append(c.report.Undeterminable, c.label(s, id, "it is not there; "+w.unsure))
		case d == mayFire || c.e.p.Idle && len(c.e.splits) > 1:
			c.report.Undeterminable = append(c.report.Undeterminable, c.label(s, id, "it is not there; silent splits may have made it late"))
		default:
			c.report.Missing = append(c.report.Missing, c.label(s, id, "it is not there"))
		}
	}
}

// result judges the first output of a window.
func (c *comparison) result(s *Sink, id windowID, fields map[string]any, o *Output) {
	w := c.e.windows[id]
	switch {
	case w == nil:
		c.report.Different = append(c.report.Different, c.label(s, id, "no record explains it, at "+o.Place))
		return
	case c.e.due(id) == mustNotFire:
		c.report.Different = append(c.report.Different, c.label(s, id, "it had not fired at the cut, and is there, at "+o.Place))
		return
	case w.unsure != "":
		c.report.Undeterminable = append(c.report.Undeterminable, c.label(s, id, w.unsure))
		return
	}
	if why := differs(s, w, fields); why != "" {
		label := c.label(s, id, why+", at "+o.Place)
		if c.e.p.Idle && len(c.e.splits) > 1 {
			c.report.Undeterminable = append(c.report.Undeterminable, label)
		} else {
			c.report.Different = append(c.report.Different, label)
		}
		return
	}
	c.together(s, id, o)
}

// differs returns how a result is not what it must be, or "".
func differs(s *Sink, w *want, fields map[string]any) string {
	for name, what := range s.Fields {
		var should int64
		switch what {
		case Count:
			should = w.count
		case Sum:
			should = w.sum
		case Min:
			should = w.min
		case Max:
			should = w.max
		default:
			return fmt.Sprintf("field %q: %q can't be recomputed", name, what)
		}
		switch is, err := integer(fields, name); {
		case err != nil:
			return err.Error()
		case is != should:
			return fmt.Sprintf("%s is %d, and must be %d", name, is, should)
		}
	}
	return ""
}

// together checks that a result is of the same epoch in all sinks.
func (c *comparison) together(s *Sink, id windowID, o *Output) {
	if o.N == 0 {
		return
	}
	if c.epochs == nil {
		c.epochs = make(map[windowID]epoch)
	}
	first, ok := c.epochs[id]
	if !ok {
		c.epochs[id] = epoch{o.Generation, o.N, s.Name}
		return
	}
	if first.generation != o.Generation || first.n != o.N {
		c.report.Different = append(c.report.Different, c.label(s, id, fmt.Sprintf("it is of epoch %d.%d, and of %d.%d in sink %q",
			o.Generation, o.N, first.generation, first.n, first.sink)))
	}
}

// parse reads whose result an output is; torn says why it is none.
func parse(s *Sink, o *Output) (id windowID, fields map[string]any, torn string) {
	fields, err := object(o.Value)
	if err != nil {
		return id, nil, err.Error()
	}
	if id.start, err = integer(fields, s.Start); err != nil {
		return id, nil, err.Error()
	}
	id.key = string(o.Key)
	if s.Key != "" {
		if id.key, err = text(fields, s.Key); err != nil {
			return id, nil, err.Error()
		}
	}
	return id, fields, ""
}

func (c *comparison) label(s *Sink, id windowID, why string) Case {
	return Case{Sink: s.Name, Key: id.key, Window: interval(id.start, c.e.size), Why: why}
}

func (c *comparison) finish() Report {
	r := c.report
	for _, list := range [][]Case{r.Missing, r.Doubled, r.Different, r.Undeterminable} {
		slices.SortFunc(list, func(a, b Case) int {
			return cmp.Or(cmp.Compare(a.Sink, b.Sink), cmp.Compare(a.Window, b.Window), cmp.Compare(a.Key, b.Key))
		})
	}
	switch {
	case len(r.Missing)+len(r.Doubled)+len(r.Different) > 0:
		r.Verdict = Broken
	case len(r.Undeterminable) > 0:
		r.Verdict = Undeterminable
	default:
		r.Verdict = Clean
	}
	return r
}
