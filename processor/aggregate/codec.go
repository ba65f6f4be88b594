package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrOverflow says that a sum or a count does not fit into 64 bits.
var ErrOverflow = errors.New("integer overflow")

var errAccumulator = errors.New("accumulator is damaged")

// number encodes accumulators that are one integer.
type number struct{}

func (number) Encode(dst []byte, acc *int64) []byte { return binary.AppendVarint(dst, *acc) }

func (number) Decode(src []byte, acc *int64) error { return readInts(src, acc) }

func addTo(acc *int64, v int64) error {
	s := *acc + v
	if (s > *acc) != (v > 0) && v != 0 {
		return fmt.Errorf("%d + %d: %w", *acc, v, ErrOverflow)
	}
	*acc = s
	return nil
}

func appendInts(dst []byte, values ...int64) []byte {
	for _, v := range values {
		dst = binary.AppendVarint(dst, v)
	}
	return dst
}

func readInts(src []byte, values ...*int64) error {
	for _, v := range values {
		x, n := binary.Varint(src)
		if n <= 0 {
			return errAccumulator
		}
		*v, src = x, src[n:]
	}
	if len(src) != 0 {
		return errAccumulator
	}
	return nil
}
