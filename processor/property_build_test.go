package processor

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unisink/unisink/processor/stream"
)

// sample is a record of a tape, decoded.
type sample struct {
	id, key, kind []byte
	at, value     int64
}

// build makes the pipeline of a life anew, as a new process does.
func (l *life) build() (*Pipeline, error) {
	s := Map(From("in", Source(l.src), decodeSample), mapSample)
	holds := func(r *sample) bool { return string(r.kind) != kindDropped }
	at := func(r *sample) int64 { return r.at }
	switch l.clock {
	case "field":
		s = s.EventTime(at).Where(holds)
	case "filtered":
		s = s.Where(holds).EventTime(at)
	default:
		s = s.Where(holds)
	}
	s = s.Key(func(dst []byte, r *sample) []byte { return append(dst, r.key...) })
	switch l.setup.bad {
	case "skip":
		s = s.SkipBad()
	case "dead":
		s = s.DeadLetters("dead", l.sink("dead"))
	}
	w := l.windows(s).Disorder(milliseconds(l.disorder)).IdleAfter(milliseconds(l.idle))
	if l.lateness > 0 {
		w = w.AllowedLateness(milliseconds(l.lateness))
	}
	encode := l.encodeResult()
	w = w.To("results", l.sink("results"), encode).To("copy", l.sink("copy"), encode)
	if l.late {
		w = w.Late("late", l.sink("late"), encodeLateSample)
	}
	opts := []Option{KeyGroups(4)}
	if l.inline > 0 {
		opts = append(opts, StateStore(l.parts))
	}
	p, err := w.Pipeline("test", opts...)
	if err != nil {
		return nil, err
	}
	if l.fault.operator != nil {
		made := p.newOperator
		p.newOperator = func() operator { return l.fault.operator(made()) }
	}
	return p, nil
}

func (l *life) sink(name string) Sink {
	if l.fault.sink != nil {
		return l.fault.sink(name, l.sinks[name])
	}
	return l.sinks[name]
}

func (l *life) windows(s *Stream[sample]) *Windowed[sample, tally] {
	switch {
	case l.gap > 0:
		return Session[sample, tally](s, milliseconds(l.gap), tallying{})
	case l.every < l.size:
		return Sliding[sample, tally](s, milliseconds(l.size), milliseconds(l.every), tallying{})
	}
	return Tumbling[sample, tally](s, milliseconds(l.size), tallying{})
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

var errIllegible = errors.New("illegible")

func decodeSample(in *stream.Record, out *sample) error {
	out.id = append(strconv.AppendInt(out.id[:0], int64(in.Partition), 10), '/')
	out.id = strconv.AppendInt(out.id, in.Offset, 10)
	out.key, out.kind = in.Key, in.Headers[0].Value
	if string(out.kind) == kindIllegible || string(out.kind) == kindTorn {
		return errIllegible
	}
	out.at, out.value = in.Time, 0
	if in.Value == nil {
		return nil
	}
	_, err := fmt.Sscan(string(in.Value), &out.at, &out.value)
	return err
}

func mapSample(in, out *sample) error {
	if string(in.kind) == kindUnmappable {
		return errIllegible
	}
	*out = *in
	return nil
}

func encodeLateSample(_ *stream.Record, r *sample, out *stream.Record) error {
	out.Value = append(out.Value, r.id...)
	if string(r.kind) == kindStubborn {
		return errIllegible
	}
	return nil
}

func (l *life) encodeResult() func(r *Result[tally], out *stream.Record) error {
	return func(r *Result[tally], out *stream.Record) error {
		ids := r.Value.ids
		if l.gap > 0 {
			ids = slices.Sorted(slices.Values(ids)) // in which order sessions are merged is not said
		}
		out.Value = fmt.Appendf(out.Value, "%s [%d,%d) %d: %s", r.Key, r.Window.Start, r.Window.End, r.Value.sum, strings.Join(ids, " "))
		if r.Update {
			out.Value = append(out.Value, " update"...)
		}
		return nil
	}
}

// tally is which records there were, in their order, and their sum.
type tally struct {
	ids []string
	sum int64
}

// tallying is an aggregate of a user's own, which allocates and can fail.
type tallying struct{}

func (tallying) Name() string { return "tally" }

func (tallying) Init(acc *tally) { *acc = tally{} }

// sour is a value that no tally takes.
const sour = 77

func (tallying) Add(acc *tally, r *sample) error {
	if r.value == sour {
		return errors.New("sour")
	}
	return tallying{}.Merge(acc, &tally{[]string{string(r.id)}, r.value})
}

func (tallying) Merge(acc, other *tally) error {
	if acc.sum+other.sum < acc.sum {
		return errors.New("integer overflow")
	}
	acc.ids = append(acc.ids[:len(acc.ids):len(acc.ids)], other.ids...)
	acc.sum += other.sum
	return nil
}

// Encode makes it so long that a tight vote has no room for it.
func (tallying) Encode(dst []byte, acc *tally) []byte {
	return fmt.Appendf(dst, "%060d %s", acc.sum, strings.Join(acc.ids, " "))
}

func (tallying) Decode(src []byte, acc *tally) (err error) {
	words := strings.Fields(string(src))
	if len(words) < 2 {
		return errors.New("no tally")
	}
	acc.sum, err = strconv.ParseInt(words[0], 10, 64)
	acc.ids = words[1:]
	return err
}
