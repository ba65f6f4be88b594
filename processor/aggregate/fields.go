package aggregate

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/unisink/unisink/internal/invariant"
)

// Fields makes one aggregate of several, so that a window has them all: a record is added to all of them or, with an error, to
// none. S is a struct of the caller's with a field for the accumulator of each.
//
// The names are a part of [Of.Name], so state is refused that was written for other fields or in another order.
//
// Where two or more of them keep memory behind pointers and have no [Checker], records are slow to add.
func Fields[T, S any](fields ...FieldOf[T, S]) Of[T, S] {
	j := &joint[T, S]{fields: fields}
	for _, f := range fields {
		j.order = append(j.order, f.part)
		if f.part.undo() == undoCopy {
			j.copied++
		}
	}
	// Those that a copy puts back come first. The next may fail as well; it should be one that cannot be
	// asked beforehand. The rest must be asked before anything is added.
	slices.SortStableFunc(j.order, func(a, b part[T, S]) int { return cmp.Compare(a.undo(), b.undo()) })
	j.asked = j.order[min(j.copied+1, len(j.order)):]
	return j
}

// FieldOf is one of the aggregates of [Fields]; [Field] makes it.
type FieldOf[T, S any] struct {
	name string
	part part[T, S]
}

// part is an aggregate as one over S, which leaves the rest of S alone.
type part[T, S any] interface {
	Of[T, S]
	Checker[T, S]
	Validator
	undo() undo
	// save keeps a copy of the accumulator, which restore puts back.
	save(s *S)
	restore(s *S)
}

// undo is how a part is left as it was if the record cannot be added to another.
type undo int

const (
	undoCopy  undo = iota // by a copy
	undoNever             // by encoding and decoding
	undoCheck             // by asking beforehand
)

// Field says under which name and where in S an aggregate has its accumulator.
func Field[T, S, A any](name string, agg Of[T, A], in func(s *S) *A) FieldOf[T, S] {
	f := &field[T, S, A]{name: name, agg: agg, in: in, copies: copies(agg)}
	f.checker, _ = agg.(Checker[T, A])
	return FieldOf[T, S]{name, f}
}

// copies reports whether copies of an aggregate's accumulators are independent.
func copies[T, A any](agg Of[T, A]) bool {
	if c, ok := agg.(interface{ copies() bool }); ok { // it has pointers, but changes nothing behind them
		return c.copies()
	}
	return !pointers(reflect.TypeFor[A]())
}

// pointers reports whether a value of the type may share memory with a copy of it.
func pointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if pointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	case reflect.Array:
		return pointers(t.Elem())
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return true
	default:
		return false
	}
}

type field[T, S, A any] struct {
	name    string
	agg     Of[T, A]
	in      func(*S) *A
	checker Checker[T, A] // or nil
	copies  bool
	saved   A
	backup  []byte
}

func (f *field[T, S, A]) Name() string { return fmt.Sprintf("%q=%s", f.name, f.agg.Name()) }

func (f *field[T, S, A]) Validate() error {
	if v, ok := f.agg.(Validator); ok {
		return f.named(v.Validate())
	}
	return nil
}

func (f *field[T, S, A]) undo() undo {
	switch {
	case f.copies:
		return undoCopy
	case f.checker == nil:
		return undoNever
	default:
		return undoCheck
	}
}

func (f *field[T, S, A]) save(s *S) {
	if f.copies {
		f.saved = *f.in(s)
		return
	}
	f.backup = f.agg.Encode(f.backup[:0], f.in(s))
}

func (f *field[T, S, A]) restore(s *S) {
	if f.copies {
		*f.in(s) = f.saved
		return
	}
	if err := f.agg.Decode(f.backup, f.in(s)); err != nil {
		invariant.Unreachable("aggregate %q does not read what it wrote: %v", f.agg.Name(), err)
	}
}

func (f *field[T, S, A]) Check(s *S, rec *T) error {
	if f.checker != nil {
		return f.named(f.checker.Check(f.in(s), rec))
	}
	f.save(s)
	err := f.Add(s, rec)
	f.restore(s)
	return err
}

func (f *field[T, S, A]) named(err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

func (f *field[T, S, A]) Init(s *S) { f.agg.Init(f.in(s)) }

func (f *field[T, S, A]) Add(s *S, rec *T) error { return f.named(f.agg.Add(f.in(s), rec)) }

func (f *field[T, S, A]) Merge(s, other *S) error { return f.named(f.agg.Merge(f.in(s), f.in(other))) }

func (f *field[T, S, A]) Encode(dst []byte, s *S) []byte { return f.agg.Encode(dst, f.in(s)) }

func (f *field[T, S, A]) Decode(src []byte, s *S) error { return f.named(f.agg.Decode(src, f.in(s))) }

type joint[T, S any] struct {
	fields  []FieldOf[T, S]
	order   []part[T, S] // in which records are added
	copied  int          // how many of order a copy puts back
	asked   []part[T, S] // the end of order
	scratch []byte
}

func (j *joint[T, S]) Name() string {
	var names []string
	for _, f := range j.fields {
		names = append(names, f.part.Name())
	}
	return "fields(" + strings.Join(names, ",") + ")"
}

// Validate names every mistake.
func (j *joint[T, S]) Validate() error {
	var errs []error
	seen := map[string]bool{}
	for _, f := range j.fields {
		if seen[f.name] {
			errs = append(errs, fmt.Errorf("two fields are named %q", f.name))
		}
		seen[f.name] = true
		errs = append(errs, f.part.Validate())
	}
	if len(j.fields) == 0 {
		errs = append(errs, errors.New("no fields were given"))
	}
	return errors.Join(errs...)
}

func (j *joint[T, S]) copies() bool { return j.copied == len(j.order) }

func (j *joint[T, S]) Init(acc *S) {
	var none S
	*acc = none
	if r, ok := any(acc).(*Row); ok {
		r.cells = make([]any, len(j.fields))
	}
	for _, f := range j.fields {
		f.part.Init(acc)
	}
}

func (j *joint[T, S]) Add(acc *S, rec *T) error {
	for _, f := range j.asked {
		if err := f.Check(acc, rec); err != nil {
			return err
		}
	}
	for i, f := range j.order {
		if i < j.copied {
			f.save(acc)
		}
		if err := f.Add(acc, rec); err != nil {
			if i > j.copied {
				invariant.Unreachable("aggregate %s refuses what its Check took: %v", f.Name(), err)
			}
			j.restore(acc, i)
			return err
		}
	}
	return nil
}

// restore puts the first n back.
func (j *joint[T, S]) restore(acc *S, n int) {
	for _, f := range j.order[:n] {
		f.restore(acc)
	}
}

// Check asks in the order of Add, so that both give the same error.
func (j *joint[T, S]) Check(acc *S, rec *T) error {
	for _, part := range [...][]part[T, S]{j.asked, j.order[:len(j.order)-len(j.asked)]} {
		for _, f := range part {
			if err := f.Check(acc, rec); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *joint[T, S]) Merge(acc, other *S) error {
	for i, f := range j.order {
		f.save(acc)
		if err := f.Merge(acc, other); err != nil {
			j.restore(acc, i)
			return err
		}
	}
	return nil
}

func (j *joint[T, S]) Encode(dst []byte, acc *S) []byte {
	for _, f := range j.fields {
		j.scratch = f.part.Encode(j.scratch[:0], acc)
		dst = appendValue(dst, j.scratch)
	}
	return dst
}

func (j *joint[T, S]) Decode(src []byte, acc *S) error {
	j.Init(acc)
	r := reader{rest: src}
	for _, f := range j.fields {
		v := r.value()
		if r.bad {
			break
		}
		if err := f.part.Decode(v, acc); err != nil {
			return err
		}
	}
	return r.end()
}

// Row is an S for [Fields] that are known at run time only. Its cells are allocated one by one when a key's first record
// comes; a struct needs no allocation.
type Row struct{ cells []any }

// At is the accumulator with that number, a pointer to its type. It is good until encode returns.
func (r Row) At(i int) any { return r.cells[i] }

// Cell is the place of a field in a [Row], counted from 0.
func Cell[A any](i int) func(r *Row) *A {
	return func(r *Row) *A {
		if i >= len(r.cells) {
			r.cells = slices.Grow(r.cells, i+1-len(r.cells))[:i+1]
		}
		if r.cells[i] == nil {
			r.cells[i] = new(A)
		}
		return r.cells[i].(*A) // Cell's own kind, unless two fields share a number
	}
}

// Where adds only the records for which holds is true to an aggregate, for [Fields] that are not to see all.
func Where[T, A any](holds func(rec *T) bool, agg Of[T, A]) Of[T, A] {
	w := &where[T, A]{Of: agg, holds: holds}
	if c, ok := agg.(Checker[T, A]); ok {
		return &checkedWhere[T, A]{w, c}
	}
	return w
}

type where[T, A any] struct {
	Of[T, A]
	holds func(*T) bool
}

func (w *where[T, A]) Name() string { return "where(" + w.Of.Name() + ")" }

func (w *where[T, A]) Validate() error {
	if v, ok := w.Of.(Validator); ok {
		return v.Validate()
	}
	return nil
}

func (w *where[T, A]) copies() bool { return copies(w.Of) }

func (w *where[T, A]) Add(acc *A, rec *T) error {
	if !w.holds(rec) {
		return nil
	}
	return w.Of.Add(acc, rec)
}

type checkedWhere[T, A any] struct {
	*where[T, A]
	checker Checker[T, A]
}

func (w *checkedWhere[T, A]) Check(acc *A, rec *T) error {
	if !w.holds(rec) {
		return nil
	}
	return w.checker.Check(acc, rec)
}
