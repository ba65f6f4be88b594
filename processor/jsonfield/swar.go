package jsonfield

import (
	"encoding/binary"
	"math/bits"
)

// Eight bytes at a time, the first of them the lowest of a uint64. A mask has the highest bit of each byte that is meant.

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// first is the index of the first byte that is in a mask.
func first(mask uint64) int { return bits.TrailingZeros64(mask) / 8 }

// specials has the bytes that do not stand for themselves inside a string: quotes, backslashes, control characters.
func specials(x uint64) uint64 {
	low := x &^ highs // so that no byte carries into the next
	noQuote := (low ^ '"'*ones) + 0x7f*ones
	noBackslash := (low ^ '\\'*ones) + 0x7f*ones
	noControl := low + (0x80-0x20)*ones
	return ^(noQuote & noBackslash & noControl) &^ x & highs
}

// notDigits has the bytes that are no digits.
func notDigits(x uint64) uint64 {
	x ^= '0' * ones                                  // 0 to 9, if digits
	return ((x&^highs + (0x80-10)*ones) | x) & highs // as above
}

// eight is the number that eight digits make.
func eight(x uint64) uint64 {
	const pairs, quads = 0x000000ff000000ff, 0x0000ffff0000ffff
	x -= '0' * ones
	x = x*10 + x>>8 // every other byte has two digits
	return ((x&pairs)*(100+1_000_000<<32) + (x>>16&pairs)*(1+10_000<<32)) >> 32
}

// plain are the bytes that stand for themselves inside a string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x20 && c != '"' && c != '\\'
	}
	return t
}()

// special is where, from i on, the first byte is that does not stand for itself inside a string.
func special(doc []byte, i int) int {
	for ; i+8 <= len(doc); i += 8 {
		if m := specials(binary.LittleEndian.Uint64(doc[i:])); m != 0 {
			return i + first(m)
		}
	}
	for i < len(doc) && plain[doc[i]] {
		i++
	}
	return i
}
