package state

import (
	"encoding/binary"
	"fmt"
)

// The payload of keyed state, once for each key group that has something, ascending:
//
//	group, number of entries, then for each entry:
//	    window start (zigzag), length and bytes of the key, length and bytes of the accumulator
//
// all numbers as varints.

// Encoded is keyed state as bytes, cut at key groups.
type Encoded struct {
	// Bytes holds all groups one after the other; the caller's until the next Encode.
	Bytes []byte
	// Groups says where each group that has something begins.
	Groups []Bound
}

// Bound is where a group begins in Encoded.Bytes.
type Bound struct {
	Group uint32
	Off   int
}

// Encoder turns Windows into bytes and keeps its buffers from one time to the next.
type Encoder[A any] struct {
	refs    []oldRef[A]
	counts  []int
	out     Encoded
	scratch []byte
}

type oldRef[A any] struct {
	start int64
	table *Table[A]
	entry int32
}

// Encode writes all of w; put appends an accumulator to dst.
func (e *Encoder[A]) Encode(w *Windows[A], groups uint32, put func(dst []byte, acc *A) []byte) Encoded {
	starts := w.Starts()
	// A counting sort by group: order within a group is by window, then as made.
	if len(e.counts) != int(groups)+1 {
		e.counts = make([]int, groups+1)
	}
	clear(e.counts)
	total := 0
	for _, s := range starts {
		t := w.tables[s]
		total += t.Len()
		for i := range t.entries {
			e.counts[Group(t.entries[i].hash, groups)+1]++
		}
	}
	for g := range groups {
		e.counts[g+1] += e.counts[g]
	}
	if cap(e.refs) < total {
		e.refs = make([]oldRef[A], total)
	}
	e.refs = e.refs[:total]
	for _, s := range starts {
		t := w.tables[s]
		for i := range t.entries {
			g := Group(t.entries[i].hash, groups)
			e.refs[e.counts[g]] = oldRef[A]{start: s, table: t, entry: int32(i)} // see Upsert
			e.counts[g]++
		}
	}
	e.out.Bytes, e.out.Groups = e.out.Bytes[:0], e.out.Groups[:0]
	first := 0
	for g := range groups { // counts[g] is now the end of group g
		if n := e.counts[g] - first; n > 0 {
			e.group(g, e.refs[first:first+n], put)
		}
		first = e.counts[g]
	}
	clear(e.refs) // no table is kept from here
	return e.out
}

func (e *Encoder[A]) group(g uint32, refs []oldRef[A], put func(dst []byte, acc *A) []byte) {
	e.out.Groups = append(e.out.Groups, Bound{Group: g, Off: len(e.out.Bytes)})
	b := binary.AppendUvarint(e.out.Bytes, uint64(g))
	b = binary.AppendUvarint(b, uint64(len(refs)))
	for _, r := range refs {
		x := &r.table.entries[r.entry]
		b = binary.AppendVarint(b, r.start)
		b = appendBytes(b, r.table.key(x))
		e.scratch = put(e.scratch[:0], &x.acc)
		b = binary.AppendUvarint(b, uint64(len(e.scratch)))
		b = append(b, e.scratch...)
	}
	e.out.Bytes = b
}

// Decode adds what Encode wrote to w; get reads an accumulator. It refuses keys that do not belong
// to their group, and keys that are there already.
func Decode[A any](payload []byte, w *Windows[A], groups uint32, get func(src []byte, acc *A) error) error {
	d := Decoder{Rest: payload}
	for len(d.Rest) > 0 && d.Err == nil {
		g, n := d.Uvarint(), d.Uvarint()
		if d.Err == nil && g >= uint64(groups) {
			return fmt.Errorf("%w: key group %d of %d", ErrFormat, g, groups)
		}
		for ; n > 0 && d.Err == nil; n-- {
			start, key, acc := d.Varint(), d.Bytes(), d.Bytes()
			if d.Err != nil {
				break
			}
			hash := Hash(key)
			if uint64(Group(hash, groups)) != g {
				return fmt.Errorf("%w: key %q is not of group %d", ErrFormat, key, g)
			}
			slot, made := w.At(start).Upsert(hash, key)
			if !made {
				return fmt.Errorf("%w: key %q of window %d is there twice", ErrFormat, key, start)
			}
			if err := get(acc, slot); err != nil {
				return fmt.Errorf("%w: accumulator of key %q: %w", ErrFormat, key, err)
			}
		}
	}
	return d.Err
}

// Decoder reads varints and byte strings one after the other; the first error stays in Err, and
// every read after it returns zero.
type Decoder struct {
	Rest []byte
	Err  error
}

// Uvarint reads an unsigned number.
func (d *Decoder) Uvarint() uint64 {
	v, n := binary.Uvarint(d.Rest)
	return moved(d, v, n)
}

// Varint reads a signed number.
func (d *Decoder) Varint() int64 {
	v, n := binary.Varint(d.Rest)
	return moved(d, v, n)
}

// Bytes reads a length and as many bytes, which stay a part of the input.
func (d *Decoder) Bytes() []byte {
	n := d.Uvarint()
	if d.Err == nil && n > uint64(len(d.Rest)) {
		d.Err = fmt.Errorf("%w: it ends too early", ErrFormat)
	}
	if d.Err != nil {
		return nil
	}
	b := d.Rest[:n:n]
	d.Rest = d.Rest[n:]
	return b
}

func moved[N int64 | uint64](d *Decoder, v N, n int) N {
	if d.Err == nil && n <= 0 {
		d.Err = fmt.Errorf("%w: bad number", ErrFormat)
	}
	if d.Err != nil {
		return 0
	}
	d.Rest = d.Rest[n:]
	return v
}
