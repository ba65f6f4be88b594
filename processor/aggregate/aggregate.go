package aggregate

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
