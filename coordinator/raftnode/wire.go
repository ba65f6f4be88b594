package raftnode

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/unisink/unisink/internal/mutant"
)

// What lies on disk is protobuf (unisink.storage.v1), in its canonical form: fields in the
// order of their numbers, each once, nothing that is zero. Both directions are written down
// once, as a function that visits a value's fields in that order; wire either appends the
// fields or takes them off. Whatever is left when the visit is over, this version does not know,
// and a replica that went on without it would differ from the others.

// errUnknownField is in the chain of every complaint about something that a newer version wrote.
var errUnknownField = errors.New("unknown field")

// errDamaged is in the chain of every other complaint about stored bytes.
var errDamaged = errors.New("damaged")

const (
	wireVarint = 0
	wireBytes  = 2

	// sharedText is the longest command whose strings share one allocation. Longer ones would
	// keep their state parts in memory for the sake of a name.
	sharedText = 2048
)

// wire is a message being written or read. After the first error it does nothing.
type wire struct {
	writing bool
	out     []byte // writing
	in      string // reading: what has not been taken off yet
	clone   bool   // reading: strings do not share memory with in
	err     error
}

func (w *wire) fail(kind error, format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
	}
	w.in = ""
}

// next reports whether the field comes next and takes its tag off.
func (w *wire) next(number, kind int) bool {
	tag, n := uvarint(w.in)
	if n == 0 || tag>>3 != uint64(number) {
		return false
	}
	if tag&7 != uint64(kind) {
		w.fail(errUnknownField, "field %d has wire type %d, not %d", number, tag&7, kind)
		return false
	}
	w.in = w.in[n:]
	return true
}

// uvarint reads a varint in its shortest form; n is 0 if there is none.
func uvarint(s string) (v uint64, n int) {
	if len(s) > 0 && s[0] < 0x80 {
		return uint64(s[0]), 1
	}
	for i := 0; i < len(s) && i < 10; i++ {
		b := s[i]
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if b == 0 || i == 9 && b > 1 {
				return 0, 0
			}
			return v, i + 1
		}
	}
	return 0, 0
}

func appendUvarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func sizeUvarint(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// number is every field that is a varint.
func (w *wire) number(number int, v uint64) uint64 {
	if w.writing {
		if v != 0 {
			w.out = appendUvarint(w.out, uint64(number)<<3|wireVarint)
			w.out = appendUvarint(w.out, v)
		}
		return v
	}
	if !w.next(number, wireVarint) {
		return 0
	}
	got, n := uvarint(w.in)
	if n == 0 || got == 0 {
		w.fail(errDamaged, "field %d is no number", number)
		return 0
	}
	w.in = w.in[n:]
	return got
}

func (w *wire) i64(number int, v *int64)  { whole(w, number, v, 0, math.MaxUint64) }
func (w *wire) u64(number int, v *uint64) { whole(w, number, v, 0, math.MaxUint64) }
func (w *wire) u32(number int, v *uint32) { whole(w, number, v, 0, math.MaxUint32) }
func (w *wire) i32(number int, v *int32)  { whole(w, number, v, -1<<31, math.MaxInt32) }

// num is a number with a type of its own.
func num[T ~uint64](w *wire, number int, v *T) { whole(w, number, v, 0, math.MaxUint64) }

// whole is a number between two bounds, the lower of which, when it is negative, extends the
// sign as protobuf does. What is written is never assigned: it may be shared with readers.
func whole[T ~int32 | ~uint32 | ~int64 | ~uint64](w *wire, number int, v *T, low int64, high uint64) {
	if w.writing {
		w.number(number, uint64(int64(*v)))
		return
	}
	got := w.number(number, 0)
	if got > high && (low == 0 || int64(got) >= 0 || int64(got) < low) {
		w.fail(errDamaged, "field %d is too large", number)
		return
	}
	*v = T(got)
}

func (w *wire) flag(number int, v *bool) {
	if w.writing {
		if *v {
			w.number(number, 1)
		}
		return
	}
	got := w.number(number, 0)
	if got > 1 {
		w.fail(errDamaged, "field %d is neither true nor false", number)
		return
	}
	*v = got == 1
}

// enum is an enumeration whose newest value is last.
func enum[T ~uint8](w *wire, number int, v *T, last T) {
	if w.writing {
		if *v > last {
			w.fail(errUnknownField, "field %d has the value %d, and there is none beyond %d", number, *v, last)
		}
		w.number(number, uint64(*v))
		return
	}
	got := w.number(number, 0)
	if got > uint64(last) {
		w.fail(errUnknownField, "field %d has the value %d, and this version knows them up to %d", number, got, last)
		return
	}
	*v = T(got)
}

func text[T ~string](w *wire, number int, v *T) {
	if w.writing {
		if *v != "" {
			if !utf8.ValidString(string(*v)) {
				w.fail(errDamaged, "the text %q is not UTF-8", string(*v))
			}
			w.out = appendUvarint(w.out, uint64(number)<<3|wireBytes)
			w.out = appendUvarint(w.out, uint64(len(*v)))
			w.out = append(w.out, *v...)
		}
		return
	}
	got := w.take(number)
	if !utf8.ValidString(got) {
		w.fail(errDamaged, "field %d is not UTF-8", number)
		return
	}
	if w.clone {
		got = strings.Clone(got)
	}
	*v = T(got)
}

func (w *wire) bytes(number int, v *[]byte) {
	if w.writing {
		if len(*v) > 0 {
			w.out = appendUvarint(w.out, uint64(number)<<3|wireBytes)
			w.out = appendUvarint(w.out, uint64(len(*v)))
			w.out = append(w.out, *v...)
		}
		return
	}
	if got := w.take(number); got != "" {
		*v = []byte(got)
	}
}

// take takes a field's bytes off; "" if it does not come next.
func (w *wire) take(number int) string {
	if !w.next(number, wireBytes) {
		return ""
	}
	got, ok := w.chunk()
	if !ok || got == "" {
		w.fail(errDamaged, "field %d is cut off or empty", number)
		return ""
	}
	return got
}

// chunk takes a length and as many bytes off.
func (w *wire) chunk() (string, bool) {
	length, n := uvarint(w.in)
	if n == 0 || length > uint64(len(w.in)-n) {
		return "", false
	}
	got := w.in[n : n+int(length)]
	w.in = w.in[n+int(length):]
	return got, true
}

// sub is a message within the message; a zero one is left out.
func sub[T any](w *wire, number int, v *T, visit func(*wire, *T)) {
	if w.writing {
		before := len(w.out)
		start := w.open(number)
		if visit(w, v); len(w.out) == start {
			w.out = w.out[:before]
			return
		}
		w.close(start)
		return
	}
	if in := w.take(number); in != "" {
		within(w, number, in, v, visit)
	}
}

// one is a message that must be there, be it empty.
func one[T any](w *wire, number int, v *T, visit func(*wire, *T)) {
	if w.writing {
		start := w.open(number)
		visit(w, v)
		w.close(start)
		return
	}
	if !w.next(number, wireBytes) {
		w.fail(errDamaged, "field %d is missing", number)
		return
	}
	in, ok := w.chunk()
	if !ok {
		w.fail(errDamaged, "field %d is cut off", number)
		return
	}
	within(w, number, in, v, visit)
}

// list is a list of messages; zero elements are kept.
func list[T any](w *wire, number int, v *[]T, visit func(*wire, *T)) {
	if w.writing {
		for i := range *v {
			one(w, number, &(*v)[i], visit)
		}
		return
	}
	if count := w.count(number); count > 0 {
		*v = make([]T, count)
	}
	for i := range *v {
		one(w, number, &(*v)[i], visit)
	}
}

// count looks ahead how many elements of the list come in a row.
func (w *wire) count(number int) int {
	ahead := wire{in: w.in}
	count := 0
	for ahead.next(number, wireBytes) {
		if _, ok := ahead.chunk(); !ok {
			break
		}
		count++
	}
	return count
}

// open begins a message within the message; close ends it and writes its length in front.
func (w *wire) open(number int) (start int) {
	w.out = appendUvarint(w.out, uint64(number)<<3|wireBytes)
	w.out = append(w.out, 0) // the length, when it fits into one byte
	return len(w.out)
}

func (w *wire) close(start int) {
	length := uint64(len(w.out) - start)
	for range sizeUvarint(length) - 1 {
		w.out = append(w.out, 0)
	}
	copy(w.out[start+sizeUvarint(length)-1:], w.out[start:start+int(length)])
	appendUvarint(w.out[:start-1], length)
}

// within reads a whole message from in.
func within[T any](w *wire, number int, in string, v *T, visit func(*wire, *T)) {
	outer := w.in
	w.in = in
	visit(w, v)
	w.done()
	if w.err != nil {
		w.err = fmt.Errorf("in field %d: %w", number, w.err)
		return
	}
	w.in = outer
}

// done complains about whatever has not been taken off.
func (w *wire) done() {
	if w.writing || w.err != nil || w.in == "" || mutant.On("raft/unknown-field") {
		return
	}
	tag, n := uvarint(w.in)
	if n == 0 {
		w.fail(errDamaged, "no field begins where one should")
		return
	}
	w.fail(errUnknownField, "field %d is not known here, or not in its place; this version is too old to follow", tag>>3)
}

// decode reads one value from the whole of b, which it does not keep.
func decode[T any](b []byte, v *T, visit func(*wire, *T)) error {
	w := wire{in: string(b), clone: len(b) > sharedText}
	visit(&w, v)
	w.done()
	return w.err
}
