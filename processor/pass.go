package processor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
)

// Passed is a pipeline under construction that sends every record on by itself, without a window. Each
// method returns a new Passed.
type Passed[T any] struct {
	in    *Stream[T]
	id    string
	sinks []passOutput[T]
}

type passOutput[T any] struct {
	name   string
	sink   Sink
	encode func(in *stream.Record, rec *T, out *stream.Record) error
}

// PassThrough sends the records of a stream on as they come, in their order within each split. It keeps
// no state but how far it has read; a Key that was given does nothing.
func PassThrough[T any](s *Stream[T]) *Passed[T] { return &Passed[T]{in: s, id: "pass"} }

// ID names the operator; default "pass".
func (p *Passed[T]) ID(id string) *Passed[T] {
	n := *p
	n.id = id
	return &n
}

// To sends every record to a sink as well. Name is the sink's resource name. Encode appends to out's Key
// and Value, which come empty, and may set Headers, Time and Partition, which is that of the source; the
// pipeline sets EventTime and From.
func (p *Passed[T]) To(name string, sink Sink, encode func(in *stream.Record, rec *T, out *stream.Record) error) *Passed[T] {
	n := *p
	n.sinks = append(p.sinks[:len(p.sinks):len(p.sinks)], passOutput[T]{name, sink, encode})
	return &n
}

// Pipeline ends the construction. The error names every mistake.
func (p *Passed[T]) Pipeline(name string, opts ...Option) (*Pipeline, error) {
	sinks := make([]namedSink, len(p.sinks))
	for i, o := range p.sinks {
		sinks[i] = namedSink{o.name, o.sink}
	}
	errs := p.in.mistakes()
	if len(p.sinks) == 0 {
		errs = append(errs, errors.New("no sink was given; call To"))
	}
	return assemble(name, opts, middle{
		from: p.in.from, steps: p.in.steps, id: p.id, sinks: sinks, dead: p.in.onBad.dead, fingerprint: passFingerprint, mistakes: errs,
		operator: func(uint32) operator { return newPassOperator(p) },
	})
}

// passFingerprint says what the state depends on: on nothing.
const passFingerprint = "pass/1"

// passOperator has nothing to fire and nothing to remember but its counters.
type passOperator[T any] struct {
	intake[T]
	sinks []passOutput[T]
}

func newPassOperator[T any](p *Passed[T]) *passOperator[T] {
	return &passOperator[T]{intake: newIntake(p.in, len(p.sinks)), sinks: p.sinks}
}

func (o *passOperator[T]) process(ctx context.Context, b *stream.Batch, _ int64, out *outbox) error {
	return o.each(ctx, b, out, func(in *stream.Record) error { return o.record(ctx, in, out) })
}

// record sends one record to all sinks or, when one cannot take it, to none.
func (o *passOperator[T]) record(ctx context.Context, in *stream.Record, out *outbox) error {
	what, err := o.read(in)
	if err != nil {
		return err
	}
	if what != keep {
		o.count.Filtered++
		return nil
	}
	for i := range o.sinks {
		to := out.next(i)
		to.Partition = in.Partition
		if err := o.sinks[i].encode(in, &o.rec, to); err != nil {
			for j := range i + 1 {
				out.undo(j)
			}
			return &badRecord{fmt.Errorf("encode for sink %q: %w", o.sinks[i].name, err)}
		}
		to.EventTime = in.EventTime
		to.From = stream.Origin{Topic: in.Topic, Partition: in.Partition, Offset: in.Offset}
	}
	for i := range o.sinks {
		if err := out.full(ctx, i); err != nil {
			return err
		}
	}
	o.count.Passed++
	return nil
}

func (o *passOperator[T]) silent(int64) {}

func (o *passOperator[T]) end() {}

func (o *passOperator[T]) fire(context.Context, *outbox) error { return nil }

func (o *passOperator[T]) reset([]stream.Split) { o.count = Counters{} }

func (o *passOperator[T]) counts() Counters { return o.count }

func (o *passOperator[T]) watermark() (stream.Watermark, int) { return stream.MinWatermark, 0 }

func (o *passOperator[T]) keyed() state.Keyed { return nil }

func (o *passOperator[T]) meta(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, metaVersion)
	dst = binary.AppendUvarint(dst, uint64(len(passFingerprint)))
	dst = append(dst, passFingerprint...)
	for _, c := range o.count.passList(metaVersion) {
		dst = binary.AppendUvarint(dst, *c)
	}
	return dst
}

func (o *passOperator[T]) restore(meta []byte, splits []stream.Split) error {
	o.reset(splits)
	d := state.Decoder{Rest: meta}
	version, err := metaVersionOf(&d)
	if err != nil {
		return err
	}
	if theirs := string(d.Bytes()); d.Err == nil && theirs != passFingerprint {
		return fmt.Errorf("%w: the state was written by %q, and the pipeline is %q; run the old specification, or start from scratch",
			participant.ErrMisconfigured, theirs, passFingerprint)
	}
	for _, c := range o.count.passList(version) {
		*c = d.Uvarint()
	}
	return d.Err
}

// passList names the counters in the order of the snapshot of a version.
func (c *Counters) passList(version uint64) []*uint64 {
	all := []*uint64{&c.Records, &c.Passed, &c.Filtered, &c.Skipped, &c.DeadLettered}
	if version < 2 {
		return all[:4]
	}
	return all
}
