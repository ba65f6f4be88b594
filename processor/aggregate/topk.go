package aggregate

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// Counted is a value and how often it came.
type Counted struct {
	Value []byte // good until encode returns
	Count int64
}

// Tally is the accumulator of [TopK]: how often each value came.
type Tally struct {
	values values
	counts []int64
}

// Len is the number of different values.
func (t Tally) Len() int { return len(t.counts) }

// AppendTop appends the k most frequent values to dst, the most frequent first, of equally frequent ones
// the least in the order of bytes; fewer if there are fewer.
func (t Tally) AppendTop(dst []Counted, k int) []Counted {
	first := len(dst)
	for i, n := range t.counts {
		c := Counted{t.values.at(i), n}
		at, _ := slices.BinarySearchFunc(dst[first:], c, func(a, b Counted) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), bytes.Compare(a.Value, b.Value))
		})
		if at >= k {
			continue
		}
		if len(dst)-first == k {
			dst = dst[:len(dst)-1]
		}
		dst = slices.Insert(dst, first+at, c)
	}
	return dst
}

// TopK counts how often each value of a field comes, exactly, for the most frequent ones: see [Tally.AppendTop]. It keeps
// all of them, as [Distinct] does and with the same errors: an estimate could name the wrong ones.
// Value appends the value to dst.
func TopK[T any](limit int, value func(dst []byte, rec *T) []byte) Of[T, Tally] {
	return &topK[T]{limit: limit, value: value}
}

type topK[T any] struct {
	limit   int
	value   func([]byte, *T) []byte
	scratch []byte
}

func (*topK[T]) Name() string { return "top_k" }

func (k *topK[T]) Validate() error { return checkLimit("the limit of top k", k.limit, MaxLimit) }

func (*topK[T]) Init(acc *Tally) { *acc = Tally{} }

func (k *topK[T]) Add(acc *Tally, rec *T) error {
	i, err := k.look(acc, rec)
	switch {
	case err != nil:
		return err
	case i < 0:
		acc.values.push(k.scratch)
		acc.counts = append(acc.counts, 1)
		return nil
	default:
		return addTo(&acc.counts[i], 1)
	}
}

func (k *topK[T]) Check(acc *Tally, rec *T) error {
	i, err := k.look(acc, rec)
	if err != nil || i < 0 {
		return err
	}
	n := acc.counts[i]
	return addTo(&n, 1)
}

// look puts the record's value into scratch and finds it, -1 if it is new and may be added.
func (k *topK[T]) look(acc *Tally, rec *T) (int, error) {
	if err := k.Validate(); err != nil {
		return -1, err
	}
	k.scratch = k.value(k.scratch[:0], rec)
	if err := checkValue(k.scratch); err != nil {
		return -1, err
	}
	if i := acc.values.find(k.scratch); i >= 0 {
		return i, nil
	}
	return -1, room(acc.Len(), k.limit)
}

func (k *topK[T]) Merge(acc, other *Tally) error {
	n := acc.Len()
	for i, count := range other.counts {
		at := acc.values.find(other.values.at(i))
		if at < 0 {
			if err := room(n, k.limit); err != nil {
				return err
			}
			n++
		} else if err := addTo(&count, acc.counts[at]); err != nil {
			return err
		}
	}
	for i, count := range other.counts {
		v := other.values.at(i)
		if at := acc.values.find(v); at >= 0 {
			acc.counts[at] += count
			continue
		}
		acc.values.push(v)
		acc.counts = append(acc.counts, count)
	}
	return nil
}

func (*topK[T]) Encode(dst []byte, acc *Tally) []byte {
	dst = binary.AppendUvarint(dst, uint64(acc.Len())) // not negative
	for i, n := range acc.counts {
		dst = binary.AppendUvarint(appendValue(dst, acc.values.at(i)), uint64(n)) // positive
	}
	return dst
}

func (*topK[T]) Decode(src []byte, acc *Tally) error {
	r := reader{rest: src}
	*acc = Tally{}
	acc.values.decode(&r, r.count(2), func() {
		n := int64(r.uvarint()) // checked below
		if n < 1 {
			r.fail()
		}
		acc.counts = append(acc.counts, n)
	})
	return r.end()
}

// Ranked is a number, and what came with it.
type Ranked struct {
	By    int64
	Value []byte // good until encode returns
}

// Ranking is the accumulator of [Largest].
type Ranking struct{ items []Ranked }

// Items are the largest numbers, the largest first, of equal ones the one that came first. They are good until
// encode returns.
func (r Ranking) Items() []Ranked { return r.items }

// maxRanking is the largest k of Largest.
const maxRanking = 10_000

// Largest keeps the k largest numbers (1 to 10,000) and a value of their records, of equal numbers those that came
// first. Value appends the value to dst; it may be nil. One of more than [MaxValue] bytes is ErrTooLong.
func Largest[T any](k int, by func(rec *T) int64, value func(dst []byte, rec *T) []byte) Of[T, Ranking] {
	return &largest[T]{k: k, by: by, value: value}
}

type largest[T any] struct {
	k       int
	by      func(*T) int64
	value   func([]byte, *T) []byte
	scratch []byte
}

func (l *largest[T]) Name() string { return fmt.Sprintf("largest k=%d", l.k) }

func (l *largest[T]) Validate() error { return checkLimit("k of largest", l.k, maxRanking) }

func (*largest[T]) Init(acc *Ranking) { *acc = Ranking{} }

func (l *largest[T]) Add(acc *Ranking, rec *T) error {
	if err := l.Check(acc, rec); err != nil {
		return err
	}
	l.insert(acc, l.by(rec), l.scratch)
	return nil
}

func (l *largest[T]) Check(_ *Ranking, rec *T) error {
	if err := l.Validate(); err != nil {
		return err
	}
	if l.value != nil {
		l.scratch = l.value(l.scratch[:0], rec)
	}
	return checkValue(l.scratch)
}

func (l *largest[T]) insert(acc *Ranking, by int64, value []byte) {
	at, _ := slices.BinarySearchFunc(acc.items, by, func(have Ranked, by int64) int {
		if have.By >= by {
			return -1
		}
		return 1
	})
	if at >= l.k {
		return
	}
	var buf []byte
	if n := len(acc.items); n == l.k {
		buf, acc.items = acc.items[n-1].Value, acc.items[:n-1]
	}
	acc.items = slices.Insert(acc.items, at, Ranked{by, append(buf[:0], value...)})
}

func (l *largest[T]) Merge(acc, other *Ranking) error {
	for _, item := range other.items {
		l.insert(acc, item.By, item.Value)
	}
	return nil
}

func (*largest[T]) Encode(dst []byte, acc *Ranking) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(acc.items))) // not negative
	for _, item := range acc.items {
		dst = appendValue(binary.AppendVarint(dst, item.By), item.Value)
	}
	return dst
}

func (l *largest[T]) Decode(src []byte, acc *Ranking) error {
	r := reader{rest: src}
	*acc = Ranking{}
	n := r.count(2)
	if n > l.k {
		r.fail()
	}
	for i := 0; i < n && !r.bad; i++ {
		by, v := r.varint(), r.value()
		if len(v) > MaxValue || i > 0 && acc.items[i-1].By < by {
			r.fail()
		}
		acc.items = append(acc.items, Ranked{by, slices.Clone(v)})
	}
	return r.end()
}
