package processor

import (
	"fmt"
	"reflect"

	"github.com/unisink/unisink/participant"
)

// together adds a record to several accumulators, or to none.
type together[T, A any] struct {
	agg     Aggregate[T, A]
	checker checker[T, A] // nil: it cannot be asked
	// plain: a copy of an accumulator shares nothing with it.
	plain bool

	// Accumulators as they were before the record at hand: copied, or if they are not plain, encoded.
	values []A
	bytes  []byte
	ends   []int // of each one in bytes
}

// checker is an aggregate that tells beforehand what Add would say; see Aggregate.
type checker[T, A any] interface {
	Check(acc *A, rec *T) error
}

func newTogether[T, A any](agg Aggregate[T, A]) together[T, A] {
	t := together[T, A]{agg: agg, plain: plain(reflect.TypeFor[A]())}
	if !t.plain {
		t.checker, _ = agg.(checker[T, A])
	}
	return t
}

// add returns which accumulator has refused the record, and why; then all are as they were, but those that
// the record has made.
func (t *together[T, A]) add(to []touched[A], rec *T) (refused int, err error) {
	switch {
	case len(to) == 1:
		if err := t.agg.Add(to[0].acc, rec); err != nil {
			return 0, &badRecord{err}
		}
		return 0, nil
	case t.checker != nil:
		return t.addChecked(to, rec)
	}
	clear(t.values) // nothing is held from here
	t.values, t.bytes, t.ends = t.values[:0], t.bytes[:0], t.ends[:0]
	for i := range to {
		if i < len(to)-1 && !to[i].made { // nothing can fail behind the last one
			t.keep(to[i].acc)
		}
		err := t.agg.Add(to[i].acc, rec)
		if err == nil {
			continue
		}
		if undo := t.restore(to[:i]); undo != nil {
			return i, fmt.Errorf("%w: aggregate %q does not read what it wrote: %w", participant.ErrBug, t.agg.Name(), undo)
		}
		return i, &badRecord{err}
	}
	return 0, nil
}

func (t *together[T, A]) addChecked(to []touched[A], rec *T) (refused int, err error) {
	for i := range to {
		if err := t.checker.Check(to[i].acc, rec); err != nil {
			return i, &badRecord{err}
		}
	}
	for i := range to {
		if err := t.agg.Add(to[i].acc, rec); err != nil {
			return i, fmt.Errorf("%w: aggregate %q refuses what its Check took: %w", participant.ErrBug, t.agg.Name(), err)
		}
	}
	return 0, nil
}

func (t *together[T, A]) keep(acc *A) {
	if t.plain {
		t.values = append(t.values, *acc)
		return
	}
	t.bytes = t.agg.Encode(t.bytes, acc)
	t.ends = append(t.ends, len(t.bytes))
}

// restore makes the accumulators what they were. Those that the record has made are the caller's to drop.
func (t *together[T, A]) restore(to []touched[A]) error {
	kept, begin := 0, 0
	for _, a := range to {
		if a.made {
			continue
		}
		if t.plain {
			*a.acc = t.values[kept]
		} else {
			end := t.ends[kept]
			t.agg.Init(a.acc)
			if err := t.agg.Decode(t.bytes[begin:end], a.acc); err != nil {
				return err
			}
			begin = end
		}
		kept++
	}
	return nil
}

// plain reports whether copies of a type's values share nothing that can change.
func plain(t reflect.Type) bool {
	switch k := t.Kind(); k {
	case reflect.Array:
		return plain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !plain(t.Field(i).Type) {
				return false
			}
		}
		return true
	case reflect.String:
		return true
	default:
		return k >= reflect.Bool && k <= reflect.Complex128 && k != reflect.Uintptr
	}
}
