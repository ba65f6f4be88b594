package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/unisink/unisink/processor/stream"
)

// SourceReader reads a pipeline's source again.
type SourceReader interface {
	// Read calls f with every record of every split from the pipeline's beginning up to, and not
	// including, the position of its split; splits without a position are not read. Records of one
	// split come in order. The record is f's until it returns.
	Read(ctx context.Context, to []stream.Position, f func(split stream.Split, r *stream.Record) error) error
}

// OutputReader reads what readers of a sink can see.
type OutputReader interface {
	// Read calls f with every committed result up to the cut.
	Read(ctx context.Context, f func(Output) error) error
}

// Output is one committed result as it stands in a sink. Its slices are the caller's until f returns.
type Output struct {
	Key, Value []byte
	// Generation and N are the epoch that wrote it; zero: the sink does not tell.
	Generation, N uint64
	// Place says where it stands, for people: "totals/2 offset 17".
	Place string
}

// Cut is up to where to judge: the pipeline's last proven epoch.
type Cut struct {
	// Positions of every split of the source, with offset 0 for one that never had a record: it holds
	// every window back, and without it windows look missing that were right not to fire.
	Positions []stream.Position
	// Newest is how far the newest decided epoch had read after the outputs' extent was fixed, for a
	// pipeline that goes on meanwhile: windows that fired between Positions and Newest may be there,
	// and are judged if they are. Nil: nothing went on.
	Newest []stream.Position
	// Final: the epoch ended a stop or a drain, and nothing went on since. Which of the two is seen in
	// the sinks: if one holds a window that the watermark had not reached, it was a drain, and then
	// all must hold all. (A drain that lost every such window in every sink looks like a stop; who
	// knows that it was a drain says Drained.)
	Final bool
	// Drained: everything has fired, because the epoch drained the pipeline or the source has ended. (What
	// an earlier drain fired, and the pipeline then went on behind, is not known here: records that
	// came late for it look missing.)
	Drained bool
	// Ended splits had no more records and hold no window back.
	Ended []stream.Split
}

// Pipeline says what the pipeline does, for records and results that are flat JSON objects.
type Pipeline struct {
	Window   time.Duration
	Disorder time.Duration
	// Idle: silent splits may be left out of the watermark.
	Idle bool
	// EventTime is the field with the event time, Unix milliseconds; "": the record's timestamp.
	EventTime string
	// Key is the field by which records are grouped; "": the record's key.
	Key string
	// Value is the field that is aggregated; "": none, records are counted only.
	Value string
	// Where keeps the records for which it is true; nil keeps all. Numbers are json.Number.
	Where func(fields map[string]any) bool
	// WhereFirst: records that are filtered out do not move the watermark.
	WhereFirst bool
	// SkipBad: records that cannot be decoded are skipped, not an error.
	SkipBad bool
}

// Aggregate is what a field of a result holds.
type Aggregate string

// The aggregates that can be recomputed.
const (
	Count Aggregate = "count"
	Sum   Aggregate = "sum"
	Min   Aggregate = "min"
	Max   Aggregate = "max"
)

// Sink says how to read the results of one sink.
type Sink struct {
	Name   string
	Reader OutputReader
	// Key is the field with the key; "": the output's key.
	Key string
	// Start is the field with the window's start, Unix milliseconds.
	Start string
	// Fields say what else a result holds.
	Fields map[string]Aggregate
}

// Verdict of a Report.
type Verdict string

// The verdicts, from good to bad.
const (
	// Clean: every result is there once and is right.
	Clean Verdict = "clean"
	// Undeterminable: nothing is wrong for certain, and something cannot be known.
	Undeterminable Verdict = "undeterminable"
	// Broken: something is missing, doubled or different.
	Broken Verdict = "broken"
)

// Case is one result that is not as it should be.
type Case struct {
	Sink   string `json:"sink"`
	Key    string `json:"key"`
	Window string `json:"window"`
	// Why, for people.
	Why string `json:"-"`
}

// Report is what Run found.
type Report struct {
	Verdict Verdict `json:"verdict"`
	// Records of the source up to the cut.
	Records int `json:"records"`
	// Windows counts the results that every sink must hold: keys of fired windows.
	Windows        int    `json:"windows"`
	Missing        []Case `json:"missing"`
	Doubled        []Case `json:"doubled"`
	Different      []Case `json:"different"`
	Undeterminable []Case `json:"undeterminable"`

	// Filtered, Late and Skipped records are in no window; Open windows have not fired.
	Filtered, Late, Skipped int `json:"-"`
	Open                    int `json:"-"`
}

// Run recomputes and compares. An error says that something could not be read; the comparison's
// outcome is in the report.
func Run(ctx context.Context, p Pipeline, source SourceReader, sinks []Sink, cut Cut) (Report, error) {
	if p.Window < time.Millisecond {
		return Report{}, fmt.Errorf("verify: window size %v is less than a millisecond", p.Window)
	}
	e := newEvaluator(p, cut)
	to := cut.Positions
	if cut.Newest != nil {
		to = cut.Newest
	}
	if err := source.Read(ctx, to, e.record); err != nil {
		return Report{}, fmt.Errorf("verify: read the source: %w", err)
	}
	e.close(cut.Drained)
	c := comparison{e: e, report: Report{
		Records: e.records, Filtered: e.filtered, Late: e.late, Skipped: e.skipped,
		Missing: []Case{}, Doubled: []Case{}, Different: []Case{}, Undeterminable: []Case{},
	}}
	c.report.Undeterminable = append(c.report.Undeterminable, e.unknown...)
	read := make([]*contents, len(sinks))
	for i := range sinks {
		var err error
		if read[i], err = c.read(ctx, &sinks[i]); err != nil {
			return Report{}, fmt.Errorf("verify: read sink %q: %w", sinks[i].Name, err)
		}
	}
	if cut.Final && c.anyEarly(read) {
		e.close(true)
	}
	for id := range e.windows {
		if e.due(id) == mustFire {
			c.report.Windows++
		} else {
			c.report.Open++
		}
	}
	for _, in := range read {
		c.settle(in)
	}
	return c.finish(), nil
}
