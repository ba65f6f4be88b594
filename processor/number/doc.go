// Package number holds numbers that never lie: decimals that are exact, and a number whose kind is known at run time only.
//
// Nothing is rounded in silence, and nothing wraps around: what does not fit is [ErrOverflow].
package number

import "errors"

// What can be wrong with a number.
var (
	// ErrOverflow: it does not fit into its type.
	ErrOverflow = errors.New("overflow")
	// ErrNotFinite: it is NaN or infinite.
	ErrNotFinite = errors.New("not a finite number")
	// ErrNone: it is no number.
	ErrNone = errors.New("no number")
)
