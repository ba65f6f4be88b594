package processor

import "reflect"

// backup keeps accumulators as they were before a record came that several of them must take, or none.
type backup[T, A any] struct {
	agg Aggregate[T, A]
	// plain: a copy of an accumulator shares nothing with it. Others are kept encoded.
	plain  bool
	values []A
	bytes  []byte
	ends   []int // of each one in bytes
}

func newBackup[T, A any](agg Aggregate[T, A]) backup[T, A] {
	return backup[T, A]{agg: agg, plain: plain(reflect.TypeFor[A]())}
}

func (b *backup[T, A]) reset() {
	clear(b.values) // nothing is held from here
	b.values, b.bytes, b.ends = b.values[:0], b.bytes[:0], b.ends[:0]
}

func (b *backup[T, A]) keep(acc *A) {
	if b.plain {
		b.values = append(b.values, *acc)
		return
	}
	b.bytes = b.agg.Encode(b.bytes, acc)
	b.ends = append(b.ends, len(b.bytes))
}

// restore makes acc what the i-th one was that was kept.
func (b *backup[T, A]) restore(i int, acc *A) error {
	if b.plain {
		*acc = b.values[i]
		return nil
	}
	begin := 0
	if i > 0 {
		begin = b.ends[i-1]
	}
	b.agg.Init(acc)
	return b.agg.Decode(b.bytes[begin:b.ends[i]], acc)
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
