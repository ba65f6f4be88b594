package processor

import (
	"encoding/binary"
	"fmt"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/window"
)

// remembering is what a snapshot holds.
type remembering interface {
	// reset makes the operator new, for the splits that are read.
	reset(splits []stream.Split)
	// restore reads what meta wrote into a new operator. What is keyed is put in behind it.
	restore(meta []byte, splits []stream.Split) error
	// meta appends the small part of a snapshot.
	meta(dst []byte) []byte
	// keyed is the other part, the same for as long as the operator lives; nil: there is none.
	keyed() state.Keyed
}

// metaVersion is that of the small part of a snapshot. Version 2 has dead letters among the counters, and
// the end through which windows are closed.
const metaVersion = 2

func (o *windowOperator[T, A]) keyed() state.Keyed { return o.view }

func (o *windowOperator[T, A]) meta(dst []byte) []byte {
	return binary.AppendVarint(o.metaOfTime(dst), int64(o.lateness.Closed(o.settled)))
}

// metaOfTime appends what all operators with windows keep beside their accumulators.
func (o *windowing[T, A]) metaOfTime(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, metaVersion)
	dst = binary.AppendUvarint(dst, uint64(len(o.fingerprint)))
	dst = append(dst, o.fingerprint...)
	dst = binary.AppendUvarint(dst, uint64(o.keyGroups))
	dst = binary.AppendVarint(dst, int64(o.marks.Combined()))
	for _, c := range o.count.list(metaVersion) {
		dst = binary.AppendUvarint(dst, *c)
	}
	marks := o.marks.Snapshot()
	dst = binary.AppendUvarint(dst, uint64(len(marks)))
	for _, m := range marks {
		for _, s := range []string{m.Split.Resource, m.Split.ID} {
			dst = binary.AppendUvarint(dst, uint64(len(s)))
			dst = append(dst, s...)
		}
		dst = binary.AppendVarint(dst, int64(m.Watermark))
	}
	return dst
}

func (o *windowOperator[T, A]) restore(meta []byte, splits []stream.Split) error {
	o.reset(splits)
	d := state.Decoder{Rest: meta}
	version, err := o.restoreTime(&d, splits)
	if err != nil {
		return err
	}
	closed := o.settled // of version 1, which knew no lateness
	if version > 1 {
		closed = stream.Watermark(d.Varint())
	}
	if d.Err != nil {
		return d.Err
	}
	o.lateness.Reset(closed)
	return nil
}

// restoreTime reads what metaOfTime wrote, in any version.
func (o *windowing[T, A]) restoreTime(d *state.Decoder, splits []stream.Split) (version uint64, err error) {
	if version, err = metaVersionOf(d); err != nil {
		return 0, err
	}
	theirs := string(d.Bytes())
	groups := d.Uvarint()
	if d.Err == nil && (theirs != o.fingerprint || groups != uint64(o.keyGroups)) {
		return 0, fmt.Errorf("%w: the state was written by %q with %d key groups, the pipeline is %q with %d; run the old specification, or start from scratch",
			participant.ErrMisconfigured, theirs, groups, o.fingerprint, o.keyGroups)
	}
	combined := stream.Watermark(d.Varint())
	for _, c := range o.count.list(version) {
		*c = d.Uvarint()
	}
	var marks []window.Mark
	for n := d.Uvarint(); n > 0 && d.Err == nil; n-- {
		split := stream.Split{Resource: string(d.Bytes()), ID: string(d.Bytes())}
		marks = append(marks, window.Mark{Split: split, Watermark: stream.Watermark(d.Varint())})
	}
	if d.Err != nil {
		return 0, d.Err
	}
	if mutant.On("processor/watermark-restored") {
		marks, combined = nil, stream.MinWatermark
	}
	o.marks.Reset(splits, marks, combined)
	o.settled = combined
	if mutant.On("processor/fired-stays-fired") {
		o.settled = stream.MinWatermark
	}
	return version, nil
}

// metaVersionOf reads with which version a snapshot's small part was written.
func metaVersionOf(d *state.Decoder) (uint64, error) {
	v := d.Uvarint()
	if d.Err == nil && (v == 0 || v > metaVersion) {
		return 0, fmt.Errorf("%w: version %d is unknown to this program, which reads 1 to %d; run a newer one", state.ErrFormat, v, metaVersion)
	}
	return v, d.Err
}

// list names the counters in the order of the snapshot of a version.
func (c *Counters) list(version uint64) []*uint64 {
	all := []*uint64{&c.Records, &c.Windowed, &c.Late, &c.Filtered, &c.Skipped, &c.Fired, &c.DeadLettered}
	if version < 2 {
		return all[:6]
	}
	return all
}
