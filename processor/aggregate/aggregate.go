package aggregate

import (
	"errors"

	"github.com/unisink/unisink/processor/number"
)

// Of folds the records of one key in one window into an accumulator A. Its methods are called
// from one goroutine.
type Of[T, A any] interface {
	// Name tells this aggregate and its encoding from all others. It is a part of the pipeline's
	// fingerprint: state written under another name is refused.
	Name() string
	// Init makes acc the accumulator of no records.
	Init(acc *A)
	// Add folds a record in. After an error acc is as it was before; what of rec is kept must be copied.
	Add(acc *A, rec *T) error
	// Merge folds other, of the same key, into acc. After an error acc is as it was before.
	Merge(acc, other *A) error
	// Encode appends acc to dst for a snapshot.
	Encode(dst []byte, acc *A) []byte
	// Decode reads what Encode appended. What is kept of src must be copied.
	Decode(src []byte, acc *A) error
}

// Checker is what an aggregate may have beside [Of]: it tells beforehand whether a record can be added,
// for callers that must add it to several accumulators or to none. All aggregates of this package have it.
type Checker[T, A any] interface {
	// Check returns the error that Add would return, and changes nothing.
	Check(acc *A, rec *T) error
}

// Validator is what an aggregate may have beside [Of], if it has settings that can be wrong.
type Validator interface {
	// Validate names what is wrong with the settings. Until that is nil, Add fails with it.
	Validate() error
}

// What can be wrong with a record.
var (
	// ErrOverflow: a sum or a count does not fit into its type.
	ErrOverflow = number.ErrOverflow
	// ErrNotFinite: a float is NaN or infinite.
	ErrNotFinite = number.ErrNotFinite
	// ErrMixed: a decimal came to floats, or a float to decimals.
	ErrMixed = errors.New("decimals and floats are mixed")
	// ErrTooMany: one accumulator would keep more than its stated limit.
	ErrTooMany = errors.New("too many different values")
	// ErrTooLong: a value to be kept is longer than [MaxValue].
	ErrTooLong = errors.New("value too long")
)

var errAccumulator = errors.New("accumulator is damaged")
