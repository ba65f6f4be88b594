package processor

import (
	"context"
	"slices"
	"testing"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// noticedWithin is how many random lives may pass until a sabotage is noticed.
const noticedWithin = 2000

// TestTheTrialsCanSee breaks the pipeline on purpose, one promise at a time: if nothing is noticed within a
// bounded number of lives, the property is blind.
func TestTheTrialsCanSee(t *testing.T) {
	for _, s := range sabotages() {
		t.Run(s.name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("tries what judges, in one goroutine")
			}
			for seed := range uint64(noticedWithin) {
				tr := someTrial(seed, trialLength)
				if err := live(tr, s.sabotage); err != nil {
					if err := live(tr, sabotage{}); err != nil {
						t.Fatalf("life %d fails without it: %v", seed+1, err)
					}
					t.Logf("noticed in life %d: %.200v", seed+1, err)
					return
				}
			}
			t.Errorf("%d lives have not noticed it", noticedWithin)
		})
	}
}

type namedSabotage struct {
	name string
	sabotage
}

func sabotages() []namedSabotage {
	list := []namedSabotage{
		{"the source is opened one record too early", sabotage{open: moved(-1)}},
		{"the source is opened one record too late", sabotage{open: moved(+1)}},
		{"the source is opened at its beginning", sabotage{open: func([]stream.Position) []stream.Position { return nil }}},
		{"a record is read twice", sabotage{batch: func(b *stream.Batch) {
			if n := len(b.Records); n > 1 {
				b.Records[n-1] = b.Records[n-2]
			}
		}}},
		{"the end of a split is not told", sabotage{batch: func(b *stream.Batch) { b.Ended = false }}},
		{"a split that has more counts as silent", sabotage{batch: func(b *stream.Batch) { b.HighWater = -1 }}},
	}
	for _, sink := range []string{"results", "copy", "late", "dead"} {
		list = append(list,
			namedSabotage{"a record for sink " + sink + " is lost", sabotage{sink: edited(sink, func(r []stream.Record) []stream.Record { return r[:len(r)-1] })}},
			namedSabotage{"a record for sink " + sink + " is sent twice", sabotage{sink: edited(sink, func(r []stream.Record) []stream.Record { return append(slices.Clone(r), r[0]) })}},
		)
	}
	for _, sink := range []string{"results", "late", "dead"} {
		list = append(list, namedSabotage{"records for sink " + sink + " are in another order", sabotage{sink: edited(sink, func(r []stream.Record) []stream.Record {
			r = slices.Clone(r)
			slices.Reverse(r)
			return r
		})}})
	}
	list = append(list,
		namedSabotage{"a tombstone becomes an empty value", sabotage{sink: edited("dead", func(r []stream.Record) []stream.Record {
			return each(r, func(r *stream.Record) { r.Value = append([]byte{}, r.Value...) })
		})}},
		namedSabotage{"a dead letter loses a header", sabotage{sink: edited("dead", func(r []stream.Record) []stream.Record {
			return each(r, func(r *stream.Record) { r.Headers = r.Headers[1:] })
		})}},
		namedSabotage{"a dead letter loses its key", sabotage{sink: edited("dead", func(r []stream.Record) []stream.Record {
			return each(r, func(r *stream.Record) { r.Key = nil })
		})}},
		namedSabotage{"a dead letter gets another time", sabotage{sink: edited("dead", func(r []stream.Record) []stream.Record {
			return each(r, func(r *stream.Record) { r.Time++ })
		})}},
		namedSabotage{"an update is not marked as one", sabotage{sink: edited("results", func(r []stream.Record) []stream.Record {
			return each(r, func(r *stream.Record) { r.Value = trimUpdate(r.Value) })
		})}},
	)
	return append(list, operatorSabotages()...)
}

// operatorSabotages break what the operator remembers, or when it fires.
func operatorSabotages() []namedSabotage {
	op := func(name string, change func(s *saboteur)) namedSabotage {
		return namedSabotage{name, sabotage{operator: func(inner operator) operator {
			s := &saboteur{operator: inner}
			change(s)
			return s
		}}}
	}
	restored := func(name string, change func(w *windowing[sample, tally], splits []stream.Split)) namedSabotage {
		return namedSabotage{name, sabotage{
			operator: func(inner operator) operator { return &saboteur{operator: inner} },
			loaded: func(l *life) {
				if len(l.decided.at) > 0 { // not at the first start
					change(l.task.loop.op.(*saboteur).windowing(), l.src.Splits())
				}
			},
		}}
	}
	return []namedSabotage{
		restored("a restart forgets the watermark", func(w *windowing[sample, tally], splits []stream.Split) {
			w.marks.Reset(splits, w.marks.Snapshot(), stream.MinWatermark)
		}),
		restored("a restart forgets the watermarks of the splits", func(w *windowing[sample, tally], splits []stream.Split) {
			w.marks.Reset(splits, nil, w.marks.Combined())
		}),
		restored("a restart forgets one split's watermark", func(w *windowing[sample, tally], splits []stream.Split) {
			w.marks.Reset(splits, w.marks.Snapshot()[:max(0, len(splits)-1)], w.marks.Combined())
		}),
		restored("after a restart the disorder is another", func(w *windowing[sample, tally], _ []stream.Split) { w.marks.Disorder++ }),
		restored("after a restart no split is ever idle", func(w *windowing[sample, tally], _ []stream.Split) { w.marks.IdleAfter = 0 }),
		restored("a split is idle too early", func(w *windowing[sample, tally], _ []stream.Split) { w.marks.IdleAfter /= 2 }),
		restored("counters start anew after a restart", func(w *windowing[sample, tally], _ []stream.Split) { w.count = Counters{} }),
		restored("what has fired fires again after a restart", func(w *windowing[sample, tally], _ []stream.Split) { w.settled = stream.MinWatermark }),
		{"a part of the state is not restored", sabotage{restore: func(r *participant.Restore, _ *life) {
			if len(r.Parts) > 1 {
				r.Parts = r.Parts[:len(r.Parts)-1]
			}
		}}},
		{"the keyed state is that of the epoch before", sabotage{restore: func(r *participant.Restore, l *life) {
			if len(r.Parts) > 1 && len(l.before) > 1 {
				r.Parts = append(r.Parts[:1:1], l.before[1:]...)
			}
		}}},
		{"branches that were not decided are committed", sabotage{sink: func(_ string, s Sink) Sink { return hasty{s} }}},
		op("silence does not count", func(s *saboteur) { s.deaf = true }),
		op("windows fire one batch late", func(s *saboteur) { s.lazy = true }),
		op("a drain leaves windows open", func(s *saboteur) { s.endless = true }),
		op("late is judged by the watermark behind the batch", func(s *saboteur) { s.hasty = true }),
		op("a split that ends holds back", func(s *saboteur) { s.deafToEnds = true }),
	}
}

func moved(by int64) func(from []stream.Position) []stream.Position {
	return func(from []stream.Position) []stream.Position {
		for i := range from {
			from[i].Offset = max(0, from[i].Offset+by)
		}
		return from
	}
}

func each(records []stream.Record, f func(r *stream.Record)) []stream.Record {
	records = slices.Clone(records)
	for i := range records {
		f(&records[i])
	}
	return records
}

func trimUpdate(value []byte) []byte {
	if n := len(value) - len(" update"); n > 0 && string(value[n:]) == " update" {
		return value[:n]
	}
	return value
}

// edited changes what is written to one sink.
func edited(sink string, change func([]stream.Record) []stream.Record) func(string, Sink) Sink {
	return func(name string, s Sink) Sink {
		if name != sink {
			return s
		}
		return editing{s, change}
	}
}

type editing struct {
	Sink
	change func([]stream.Record) []stream.Record
}

func (e editing) Begin(ctx context.Context, name participant.BranchName) (participant.Branch, error) {
	b, err := e.Sink.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	return editedBranch{b.(Writer), e.change}, nil
}

type editedBranch struct {
	Writer
	change func([]stream.Record) []stream.Record
}

func (b editedBranch) Write(ctx context.Context, records []stream.Record) error {
	return b.Writer.Write(ctx, b.change(records))
}

// hasty is a resource that commits where it should roll back.
type hasty struct{ Sink }

func (h hasty) Rollback(ctx context.Context, handle participant.Handle) (participant.Proof, error) {
	return h.Commit(ctx, handle)
}

// saboteur stands before an operator and does some things wrong.
type saboteur struct {
	operator

	deaf, lazy, endless, hasty, deafToEnds bool

	skipped bool
}

func (s *saboteur) windowing() *windowing[sample, tally] {
	switch o := s.operator.(type) {
	case *windowOperator[sample, tally]:
		return &o.windowing
	case *sessionOperator[sample, tally]:
		return &o.windowing
	}
	panic("no operator with windows")
}

func (s *saboteur) silent(waited int64) {
	if !s.deaf {
		s.operator.silent(waited)
	}
}

func (s *saboteur) end() {
	if !s.endless {
		s.operator.end()
	}
}

func (s *saboteur) fire(ctx context.Context, out *outbox) error {
	if s.skipped = s.lazy && !s.skipped; s.skipped {
		return nil
	}
	return s.operator.fire(ctx, out)
}

func (s *saboteur) process(ctx context.Context, b *stream.Batch, waited int64, out *outbox) error {
	if s.deafToEnds {
		b.Ended = false
	}
	if s.hasty {
		marks := &s.windowing().marks
		split := marks.Add(b.Split)
		for i := range b.Records {
			var r sample
			if decodeSample(&b.Records[i], &r) == nil && r.at < maxEventTime {
				marks.Observe(split, r.at)
			}
		}
	}
	return s.operator.process(ctx, b, waited, out)
}
