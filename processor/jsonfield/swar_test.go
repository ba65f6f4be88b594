package jsonfield

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// TestEightBytesAtOnceAreJudgedAsOneByOne: every byte at every place, among every kind of neighbour.
func TestEightBytesAtOnceAreJudgedAsOneByOne(t *testing.T) {
	for _, neighbour := range []byte{0, 0x1f, 0x20, '"', '0', '9', ':', '/', '\\', 'a', 0x7f, 0x80, 0xa2, 0xb5, 0xff} {
		for at := range 8 {
			for c := range 256 {
				var b [8]byte
				for i := range b {
					b[i] = neighbour
				}
				b[at] = byte(c)
				var special, digit uint64
				for i, c := range b {
					if !plain[c] {
						special |= 0x80 << (8 * i)
					}
					if c < '0' || c > '9' {
						digit |= 0x80 << (8 * i)
					}
				}
				x := binary.LittleEndian.Uint64(b[:])
				if got := specials(x); got != special {
					t.Fatalf("%q: specials %x, want %x", b, got, special)
				}
				if got := notDigits(x); got != digit {
					t.Fatalf("%q: not digits %x, want %x", b, got, digit)
				}
			}
		}
	}
}

func TestEightDigitsAreANumber(t *testing.T) {
	for _, n := range []uint64{0, 1, 10, 99, 12345678, 87654321, 90000009, 10101010, 99999999} {
		if got := eight(binary.LittleEndian.Uint64(fmt.Appendf(nil, "%08d", n))); got != n {
			t.Errorf("%08d is %d", n, got)
		}
	}
}

// TestWhatIsSpecialIsFoundAtAnyDistance: behind whole words, and in what is left behind them.
func TestWhatIsSpecialIsFoundAtAnyDistance(t *testing.T) {
	for size := range 40 {
		doc := []byte(fmt.Sprintf("%0*d", size, 0))[:size]
		if got := special(doc, 0); got != size {
			t.Errorf("%d plain bytes: %d", size, got)
		}
		if got := digits(doc, 0); got != size {
			t.Errorf("%d digits: %d", size, got)
		}
		for at := range doc {
			doc[at] = '"'
			if got := special(doc, 0); got != at {
				t.Errorf("a quote at %d of %d: %d", at, size, got)
			}
			if got := digits(doc, 0); got != at {
				t.Errorf("no digit at %d of %d: %d", at, size, got)
			}
			doc[at] = '0'
		}
	}
}
