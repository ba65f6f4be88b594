package fold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/unisink/unisink/processor/spec/expr"
)

// Row is what a window needs of a record.
type Row struct {
	// At is the event time, Unix milliseconds.
	At int64
	// Keep: the record goes on to its window.
	Keep bool
	Key  []byte
	// Args are what the aggregates are computed of, one for each. Absent ones are left out.
	Args []expr.Value
}

// cell is the accumulator of one aggregate. Integers stand in it; whatever else is in its box.
type cell struct {
	sum   int64
	count int64
	box   any
}

// column is one aggregate. Its cells are those of the same index.
type column interface {
	// name is part of the state's name.
	name() string
	// check tells whether a value can be added, and changes nothing.
	check(c *cell, r *Row, v *expr.Value) error
	// add adds a value that was checked.
	add(c *cell, r *Row, v *expr.Value) error
	merge(c, other *cell) error
	encode(dst []byte, c *cell) []byte
	decode(src []byte, c *cell) error
	// value is the result.
	value(c *cell, out *expr.Value) error
}

// The accumulators of some aggregates: up to eight lie in the window's table itself.
type (
	// Cells1 is that of one aggregate.
	Cells1 [1]cell
	// Cells2 are those of two.
	Cells2 [2]cell
	// Cells3 are those of three.
	Cells3 [3]cell
	// Cells4 are those of four.
	Cells4 [4]cell
	// Cells6 are those of up to six.
	Cells6 [6]cell
	// Cells8 are those of up to eight.
	Cells8 [8]cell
	// CellsN are in a slice of their own.
	CellsN []cell
)

// Columns are the aggregates of a window, before it is known how their cells lie.
type Columns struct {
	names   []string
	columns []column
}

// Len is their number.
func (c *Columns) Len() int { return len(c.columns) }

// Composite is the aggregate that they are together. C is one of the kinds of cells.
type Composite[C any] struct {
	Columns
	cells   func(*C) []cell
	fresh   func(*C)
	scratch []byte
}

// compose puts columns into cells of kind C.
func compose[C any](c *Columns, cells func(*C) []cell, fresh func(*C)) *Composite[C] {
	return &Composite[C]{Columns: *c, cells: cells, fresh: fresh}
}

// Visitor is called with the composite of the right size.
type Visitor interface {
	Of1(a *Composite[Cells1])
	Of2(a *Composite[Cells2])
	Of3(a *Composite[Cells3])
	Of4(a *Composite[Cells4])
	Of6(a *Composite[Cells6])
	Of8(a *Composite[Cells8])
	OfN(a *Composite[CellsN])
}

// Visit makes the composite and hands it over: its type depends on the number of columns.
func (c *Columns) Visit(v Visitor) {
	switch n := len(c.columns); {
	case n <= 1:
		v.Of1(compose(c, func(a *Cells1) []cell { return a[:n] }, func(a *Cells1) { *a = Cells1{} }))
	case n <= 2:
		v.Of2(compose(c, func(a *Cells2) []cell { return a[:n] }, func(a *Cells2) { *a = Cells2{} }))
	case n <= 3:
		v.Of3(compose(c, func(a *Cells3) []cell { return a[:n] }, func(a *Cells3) { *a = Cells3{} }))
	case n <= 4:
		v.Of4(compose(c, func(a *Cells4) []cell { return a[:n] }, func(a *Cells4) { *a = Cells4{} }))
	case n <= 6:
		v.Of6(compose(c, func(a *Cells6) []cell { return a[:n] }, func(a *Cells6) { *a = Cells6{} }))
	case n <= 8:
		v.Of8(compose(c, func(a *Cells8) []cell { return a[:n] }, func(a *Cells8) { *a = Cells8{} }))
	default:
		v.OfN(compose(c, func(a *CellsN) []cell { return *a }, func(a *CellsN) { *a = make(CellsN, n) }))
	}
}

// Name tells how the state lies: the kinds of the aggregates in their order, not what they are called or
// computed of.
func (c *Columns) Name() string {
	names := make([]string, len(c.columns))
	for i, col := range c.columns {
		names[i] = col.name()
	}
	return "columns/1 " + strings.Join(names, "; ")
}

// Init makes acc the accumulator of no records.
func (a *Composite[C]) Init(acc *C) { a.fresh(acc) }

// Check says what Add would, and changes nothing: sliding windows ask each window before they add to any.
func (a *Composite[C]) Check(acc *C, r *Row) error {
	cells := a.cells(acc)
	for i, col := range a.columns {
		if v := &r.Args[i]; !v.Absent() {
			if err := col.check(&cells[i], r, v); err != nil {
				return fmt.Errorf("%s: %w", a.names[i], err)
			}
		}
	}
	return nil
}

// Add folds a record into all aggregates, or into none.
func (a *Composite[C]) Add(acc *C, r *Row) error {
	if err := a.Check(acc, r); err != nil {
		return err
	}
	cells := a.cells(acc)
	for i, col := range a.columns {
		if v := &r.Args[i]; !v.Absent() {
			if err := col.add(&cells[i], r, v); err != nil {
				return fmt.Errorf("%s: %w", a.names[i], err)
			}
		}
	}
	return nil
}

// Merge folds other into acc, or leaves it as it was.
func (a *Composite[C]) Merge(acc, other *C) error {
	before := a.Encode(nil, acc)
	cells, more := a.cells(acc), a.cells(other)
	for i, col := range a.columns {
		if err := col.merge(&cells[i], &more[i]); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", a.names[i], err), a.Decode(before, acc))
		}
	}
	return nil
}

// Encode appends acc to dst for a snapshot: each cell behind its length.
func (a *Composite[C]) Encode(dst []byte, acc *C) []byte {
	cells := a.cells(acc)
	for i, col := range a.columns {
		a.scratch = col.encode(a.scratch[:0], &cells[i])
		dst = append(binary.AppendUvarint(dst, uint64(len(a.scratch))), a.scratch...)
	}
	return dst
}

var errDamaged = errors.New("accumulator is damaged")

// Decode reads what Encode appended.
func (a *Composite[C]) Decode(src []byte, acc *C) error {
	a.fresh(acc)
	cells := a.cells(acc)
	for i, col := range a.columns {
		n, head := binary.Uvarint(src)
		if head <= 0 || n > uint64(len(src)-head) { //nolint:gosec // never negative
			return fmt.Errorf("%s: %w", a.names[i], errDamaged)
		}
		if err := col.decode(src[head:head+int(n)], &cells[i]); err != nil { //nolint:gosec // at most the length of src
			return fmt.Errorf("%s: %w", a.names[i], err)
		}
		src = src[head+int(n):] //nolint:gosec // as above
	}
	if len(src) > 0 {
		return errDamaged
	}
	return nil
}

// Values fills the frame's columns from first on with the results.
func (a *Composite[C]) Values(acc *C, f *expr.Frame, first int) error {
	cells := a.cells(acc)
	for i, col := range a.columns {
		if err := col.value(&cells[i], f.Column(first+i)); err != nil {
			return fmt.Errorf("%s: %w", a.names[i], err)
		}
	}
	return nil
}
