package state

import (
	"encoding/binary"
	"fmt"

	"github.com/unisink/unisink/internal/veil"
)

// DecodeWhole puts groups that were written whole into a state that has none of their entries: for each
// group its number (a varint), then what AppendGroup wrote. It refuses keys that do not belong to their
// group.
func DecodeWhole(payload []byte, groups uint32, into Restored) error {
	d := Decoder{Rest: payload}
	for len(d.Rest) > 0 && d.Err == nil {
		g := d.Uvarint()
		if d.Err == nil && g >= uint64(groups) {
			return fmt.Errorf("%w: key group %d of %d", ErrFormat, g, groups)
		}
		d.entries(uint32(g), groups, into) // less than groups
	}
	return d.Err
}

// DecodeGroup puts what AppendGroup wrote for a group into a state that has none of its entries.
func DecodeGroup(payload []byte, group, groups uint32, into Restored) error {
	d := Decoder{Rest: payload}
	d.entries(group, groups, into)
	return d.end(group)
}

// DecodeChanges applies what AppendChanges wrote for a group.
func DecodeChanges(payload []byte, group, groups uint32, into Restored) error {
	d := Decoder{Rest: payload}
	for n := d.Uvarint(); n > 0 && d.Err == nil; n-- {
		start, key := d.Varint(), d.Bytes()
		if hash, ok := d.ofGroup(key, group, groups); ok {
			d.fail(into.Remove(start, hash, key), key)
		}
	}
	d.entries(group, groups, into)
	return d.end(group)
}

// end refuses what stands behind the last entry of a group.
func (d *Decoder) end(group uint32) error {
	if d.Err == nil && len(d.Rest) > 0 {
		return fmt.Errorf("%w: there is something behind the last entry of group %d", ErrFormat, group)
	}
	return d.Err
}

// entries reads what AppendGroup wrote.
func (d *Decoder) entries(group, groups uint32, into Restored) {
	for n := d.Uvarint(); n > 0 && d.Err == nil; n-- {
		start, key, value := d.Varint(), d.Bytes(), d.Bytes()
		if hash, ok := d.ofGroup(key, group, groups); ok {
			d.fail(into.Put(start, hash, key, value), key)
		}
	}
}

// ofGroup hashes a key that must be of a group.
func (d *Decoder) ofGroup(key []byte, group, groups uint32) (hash uint64, ok bool) {
	if d.Err != nil {
		return 0, false
	}
	hash = Hash(key)
	if Group(hash, groups) != group {
		d.Err = fmt.Errorf("%w: %s is not of group %d", ErrFormat, veil.Key(key), group)
	}
	return hash, d.Err == nil
}

func (d *Decoder) fail(err error, key []byte) {
	if err != nil {
		d.Err = fmt.Errorf("%w: entry of %s: %w", ErrFormat, veil.Key(key), err)
	}
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
	return d.Take(d.Uvarint())
}

// Byte reads one byte.
func (d *Decoder) Byte() byte {
	if b := d.Take(1); d.Err == nil {
		return b[0]
	}
	return 0
}

// Take reads so many bytes, which stay a part of the input.
func (d *Decoder) Take(n uint64) []byte {
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
