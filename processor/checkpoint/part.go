package checkpoint

import (
	"encoding/binary"
	"fmt"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

// What is in a part's payload: its first byte.
const (
	// sectionWhole: length of meta (uvarint), meta, keyed state as groups one behind the other.
	sectionWhole = 1
	// sectionKeyed: keyed state alone, as groups. Older programs wrote it; this one reads it.
	sectionKeyed = 2
	// sectionLink: a part of a chain; see partWriter.
	sectionLink = 3
	// sectionChain: meta, and what the chain is made of; see appendChain.
	sectionChain = 4
)

const flagSealed = 1

// partWriter makes the payload of a part of a chain:
//
//	sectionLink, flags (one byte), id, id of the part before it (length and bytes),
//	first and last group, first of the whole groups and their number, 4 bytes each, entries, 8 bytes,
//	number of starts that were dropped, the starts,
//	then for each group that has something: its number, length of what follows (4 bytes), and as
//	state.Recorded appends it the whole group or its changes
//
// numbers of fixed length are little endian, all others varints. A whole group that is not there has no entries.
type partWriter struct {
	buf   []byte
	fixed int // where the numbers of fixed length begin
	first uint32
	info  linkInfo
	most  int // bytes of one group
}

const fixedLength = 4*4 + 8

func (w *partWriter) begin(buf []byte, id, after string, sealed bool, first uint32, gone []int64) {
	flags := byte(0)
	if sealed {
		flags = flagSealed
	}
	buf = append(buf[:0], sectionLink, flags)
	buf = appendString(appendString(buf, id), after)
	w.fixed = len(buf)
	buf = append(buf, make([]byte, fixedLength)...)
	buf = binary.AppendUvarint(buf, uint64(len(gone)))
	for _, start := range gone {
		buf = binary.AppendVarint(buf, start)
	}
	w.buf, w.first, w.info, w.most = buf, first, linkInfo{sealed: sealed}, mostGroup
}

// group appends a group, whole or its changes; groups come in their order.
func (w *partWriter) group(k state.Recorded, g uint32, whole bool, entries int) error {
	if whole {
		if w.info.whole.count == 0 {
			w.info.whole.first = g
		}
		w.info.whole.count++
		if entries == 0 {
			return nil
		}
	}
	begin := len(w.buf)
	w.buf = binary.AppendUvarint(w.buf, uint64(g))
	at := len(w.buf)
	w.buf = append(w.buf, 0, 0, 0, 0)
	if whole {
		w.buf = k.AppendGroup(w.buf, g)
		w.info.entries += entries
	} else {
		w.buf = k.AppendChanges(w.buf, g)
		n := changesIn(w.buf[at+4:])
		if n == 0 {
			w.buf = w.buf[:begin]
			return nil
		}
		w.info.entries += n
	}
	length := len(w.buf) - at - 4
	if length > w.most {
		return fmt.Errorf("%w: key group %d has %d bytes and a part of the state holds at most %d; give the pipeline more key groups",
			participant.ErrMisconfigured, g, length, w.most)
	}
	binary.LittleEndian.PutUint32(w.buf[at:], uint32(length)) // as checked
	return nil
}

// mostGroup is the most that one group may have, bytes.
const mostGroup = 1<<30 - 1<<20

// end fills in what is known at the end only.
func (w *partWriter) end(last uint32) {
	b := w.buf[w.fixed:]
	for i, n := range []uint32{w.first, last, w.info.whole.first, w.info.whole.count} {
		binary.LittleEndian.PutUint32(b[4*i:], n)
	}
	binary.LittleEndian.PutUint64(b[16:], uint64(w.info.entries)) // not negative
}

// changesIn is how many entries AppendChanges has appended and removed.
func changesIn(body []byte) int {
	d := state.Decoder{Rest: body}
	removed := d.Uvarint()
	for n := removed; n > 0 && d.Err == nil; n-- {
		d.Varint()
		d.Bytes()
	}
	return int(removed + d.Uvarint()) // as many as fit into memory
}

// partHead is what a part of a chain says before its groups.
type partHead struct {
	id, after   string
	first, last uint32
	info        linkInfo
	gone        []int64
}

func readHead(d *state.Decoder) (h partHead) {
	flags := d.Byte()
	h.info.sealed = flags&flagSealed != 0
	h.id, h.after = string(d.Bytes()), string(d.Bytes())
	if fixed := d.Take(fixedLength); d.Err == nil {
		h.first, h.last = binary.LittleEndian.Uint32(fixed), binary.LittleEndian.Uint32(fixed[4:])
		h.info.whole = groupRange{binary.LittleEndian.Uint32(fixed[8:]), binary.LittleEndian.Uint32(fixed[12:])}
		h.info.entries = int(binary.LittleEndian.Uint64(fixed[16:])) // compared with what is expected
	}
	for n := d.Uvarint(); n > 0 && d.Err == nil; n-- {
		h.gone = append(h.gone, d.Varint())
	}
	return h
}

// readGroups calls f for every group of a part.
func readGroups(d *state.Decoder, f func(g uint32, body []byte) error) error {
	for len(d.Rest) > 0 && d.Err == nil {
		g := d.Uvarint()
		var body []byte
		if length := d.Take(4); d.Err == nil {
			body = d.Take(uint64(binary.LittleEndian.Uint32(length)))
		}
		if d.Err != nil {
			break
		}
		if g >= 1<<32 {
			return fmt.Errorf("%w: key group %d", state.ErrFormat, g)
		}
		if err := f(uint32(g), body); err != nil {
			return err
		}
	}
	return d.Err
}

// chainInfo is what the first part of a snapshot says of the others: enough to know that none is
// missing, and what need not be decoded.
type chainInfo struct {
	last    place // of the last part
	links   []linkInfo
	entries int // of the whole state
	windows []state.Window
}

// place is what tells the parts of one operator apart.
type place struct{ generation, n, index uint64 }

func placeOf(id string) place {
	p, _ := parsePart(id) // no part of ours has the place of none
	return place{p.generation, p.n, p.index}
}

func appendChain(dst []byte, c *chain, size state.Size) []byte {
	last := placeOf(c.last())
	for _, n := range []uint64{last.generation, last.n, last.index} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.links)))
	for _, l := range c.links {
		flags := byte(0)
		if l.info.sealed {
			flags = flagSealed
		}
		dst = append(dst, flags)
		dst = binary.AppendUvarint(dst, uint64(l.info.whole.first))
		dst = binary.AppendUvarint(dst, uint64(l.info.whole.count))
		dst = binary.AppendUvarint(dst, uint64(l.info.entries)) // not negative
	}
	dst = binary.AppendUvarint(dst, uint64(size.Entries)) // not negative
	dst = binary.AppendUvarint(dst, uint64(len(size.Windows)))
	for _, w := range size.Windows {
		dst = binary.AppendUvarint(binary.AppendVarint(dst, w.Start), uint64(w.Entries)) // not negative
	}
	return dst
}

func readChain(d *state.Decoder, groups uint32) (c chainInfo) {
	c.last = place{d.Uvarint(), d.Uvarint(), d.Uvarint()}
	for n := d.Uvarint(); n > 0 && d.Err == nil; n-- {
		l := linkInfo{sealed: d.Byte()&flagSealed != 0}
		first, count := d.Uvarint(), d.Uvarint()
		l.entries = int(d.Uvarint()) // compared only
		if d.Err == nil && (first > uint64(groups) || count > uint64(groups)-first) {
			d.Err = fmt.Errorf("%w: key groups %d and %d more, of %d", state.ErrFormat, first, count, groups)
		}
		l.whole = groupRange{uint32(first), uint32(count)} // as checked
		c.links = append(c.links, l)
	}
	c.entries = int(d.Uvarint()) // compared only
	for n := d.Uvarint(); n > 0 && d.Err == nil; n-- {
		c.windows = append(c.windows, state.Window{Start: d.Varint(), Entries: int(d.Uvarint())}) // bounded by Reserve
	}
	return c
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}
