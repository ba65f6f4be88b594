package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify/fold"
)

// Pipeline says what a pipeline of tumbling windows does, for records and results that are flat JSON
// objects. A [Job] says it of any other.
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

// Sink says how to read the results of one sink.
type Sink struct {
	Name   string
	Reader OutputReader
	// Key is the field with the key; "": the output's key.
	Key string
	// Start is the field with the window's start, Unix milliseconds.
	Start string
	// Fields say what else a result holds: count, sum, min, max or avg.
	Fields map[string]Aggregate
}

// Run recomputes and compares a pipeline of flat JSON objects. An error says that something could not be
// read; the comparison's outcome is in the report.
func Run(ctx context.Context, p Pipeline, source SourceReader, sinks []Sink, cut Cut) (Report, error) {
	j := Job{
		Plan: Plan{
			Window: Window{Kind: Tumbling, Size: p.Window}, Disorder: p.Disorder, Idle: p.Idle, OnBad: BadFails,
		},
		Source: source, Cut: cut,
	}
	if p.SkipBad {
		j.Plan.OnBad = BadSkipped
	}
	places := map[Aggregate]int{}
	for i := range sinks {
		for _, what := range slices.Sorted(maps.Values(sinks[i].Fields)) {
			if _, known := places[what]; !known {
				places[what] = len(j.Plan.Folds)
				j.Plan.Folds = append(j.Plan.Folds, Fold{Kind: what})
			}
		}
		j.Results = append(j.Results, sinks[i].target(places))
	}
	j.Plan.Read = p.reader(len(j.Plan.Folds))
	return j.Run(ctx)
}

func (p *Pipeline) reader(folds int) func(*stream.Record) (Seen, error) {
	return func(r *stream.Record) (seen Seen, err error) {
		fields, err := fold.Object(r.Value)
		if err != nil {
			return Seen{}, err
		}
		seen.At = r.Time
		if p.EventTime != "" {
			if seen.At, err = integer(fields, p.EventTime); err != nil {
				return Seen{}, err
			}
		}
		seen.Keep = p.Where == nil || p.Where(fields)
		seen.Timed = seen.Keep || !p.WhereFirst
		if !seen.Keep {
			return seen, nil
		}
		seen.Key = string(r.Key)
		if p.Key != "" {
			if seen.Key, err = text(fields, p.Key); err != nil {
				return seen, err
			}
		}
		if p.Value == "" {
			seen.Values = slices.Repeat([]any{int64(0)}, folds)
			return seen, nil
		}
		v, err := integer(fields, p.Value)
		seen.Values = slices.Repeat([]any{v}, folds)
		return seen, err
	}
}

func (s *Sink) target(places map[Aggregate]int) Target {
	return Target{Name: s.Name, Reader: s.Reader, Find: func(o *Output) (Found, error) {
		f := Found{Key: string(o.Key), NoEnd: true, NoUpdate: true, Values: make(map[int]any, len(s.Fields))}
		fields, err := fold.Object(o.Value)
		if err != nil {
			return f, err
		}
		if f.Start, err = integer(fields, s.Start); err != nil {
			return f, err
		}
		if s.Key != "" {
			if f.Key, err = text(fields, s.Key); err != nil {
				return f, err
			}
		}
		for name, what := range s.Fields {
			f.Values[places[what]] = fields[name]
		}
		return f, nil
	}}
}

func integer(fields map[string]any, name string) (int64, error) {
	n, ok := fields[name].(json.Number)
	if !ok {
		return 0, fmt.Errorf("field %q is no number", name)
	}
	return n.Int64()
}

func text(fields map[string]any, name string) (string, error) {
	switch v := fields[name].(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	return "", fmt.Errorf("field %q is no text", name)
}
