package expr

import (
	"errors"
	"fmt"
	"reflect"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/unisink/unisink/processor/jsonfield"
	"github.com/unisink/unisink/processor/stream"
)

// Frame holds what the expressions of a scope read of one record, and their results in between. Its
// buffers are used again for the next record.
type Frame struct {
	scope *Scope
	slots []Value
	temps []Value
	bufs  [][]byte
	in    *stream.Record
	root  *shape
	// whole is the JSON record as CEL knows it, made when somebody asks for more than fields.
	whole ref.Val
}

// Frame makes one for the expressions that were compiled so far.
func (s *Scope) Frame() *Frame {
	f := &Frame{scope: s, slots: make([]Value, len(s.slots)), temps: make([]Value, s.temps), bufs: make([][]byte, len(s.slots))}
	for i, l := range s.slots {
		if l.kind == slotField {
			if f.root == nil {
				f.root = &shape{}
			}
			f.root.add(l.path, i)
		}
	}
	if f.root != nil {
		f.root.ready()
	}
	return f
}

// shape says which fields of an object are read, and of those that are objects themselves.
type shape struct {
	names  []string
	places []int // slots; -1: only fields below it are read
	below  []*shape
	reader *jsonfield.Reader
	out    []jsonfield.Value
}

func (s *shape) add(path []string, place int) {
	i := 0
	for i < len(s.names) && s.names[i] != path[0] {
		i++
	}
	if i == len(s.names) {
		s.names, s.places, s.below = append(s.names, path[0]), append(s.places, -1), append(s.below, nil)
	}
	if len(path) == 1 {
		s.places[i] = place
		return
	}
	if s.below[i] == nil {
		s.below[i] = &shape{}
	}
	s.below[i].add(path[1:], place)
}

func (s *shape) ready() {
	s.reader, s.out = jsonfield.For(s.names...), make([]jsonfield.Value, len(s.names))
	for _, b := range s.below {
		if b != nil {
			b.ready()
		}
	}
}

// read fills the slots from an object; nil: from nothing.
func (s *shape) read(f *Frame, doc []byte) error {
	if doc == nil {
		clear(s.out)
	} else if err := s.reader.Read(doc, s.out); err != nil {
		return err
	}
	for i := range s.out {
		v := &s.out[i]
		if at := s.places[i]; at >= 0 {
			f.slots[at].setField(v, &f.bufs[at])
		}
		if s.below[i] != nil {
			var inner []byte
			if v.Kind == jsonfield.Object {
				inner = v.Raw
			}
			if err := s.below[i].read(f, inner); err != nil {
				return err
			}
		}
	}
	return nil
}

// Load fills the frame with a source's record. A tombstone is a record without fields. The error says
// that the record is no JSON object; it comes only if a field is read at all.
func (f *Frame) Load(in *stream.Record) error {
	f.in, f.whole = in, nil
	for i := range f.scope.slots {
		v := &f.slots[i]
		switch f.scope.slots[i].kind {
		case slotKey:
			v.SetData(Bytes, in.Key)
		case slotTime:
			v.SetInt(in.Time)
		case slotTopic:
			v.SetData(String, append(v.Data[:0], in.Topic...))
		case slotPartition:
			v.SetInt(int64(in.Partition))
		case slotOffset:
			v.SetInt(in.Offset)
		case slotValue:
			v.setValue(f.scope.rec, in.Value)
		case slotUnset, slotField, slotColumn:
		}
	}
	if f.root == nil {
		return nil
	}
	return f.root.read(f, in.Value)
}

// setValue is `rec` of records that are no JSON.
func (v *Value) setValue(rec recKind, value []byte) {
	if rec == recBytes {
		v.SetData(Bytes, value)
		return
	}
	if v.SetData(String, value); !validText(value) {
		v.setBroken(errUTF8)
	}
}

// Set sets a column. The value is not copied.
func (f *Frame) Set(column int, v *Value) { f.slots[column] = *v }

// Column is a column to be filled in place.
func (f *Frame) Column(column int) *Value { return &f.slots[column] }

// activation is the frame as CEL asks for names.
type activation Frame

func (a *activation) Parent() cel.Activation { return nil }

func (a *activation) ResolveName(name string) (any, bool) {
	f := (*Frame)(a)
	s := f.scope
	if s.rec == recNone {
		if i := s.column(name); i >= 0 {
			return f.slots[i].toRef(), true
		}
		return nil, false
	}
	switch name {
	case "rec":
		return f.rec(), true
	case "key":
		return types.Bytes(append([]byte{}, f.in.Key...)), true
	case "timestamp":
		return types.Int(f.in.Time), true
	case "topic":
		return types.String(f.in.Topic), true
	case "partition":
		return types.Int(f.in.Partition), true
	case "offset":
		return types.Int(f.in.Offset), true
	case "headers":
		m := make(map[ref.Val]ref.Val, len(f.in.Headers))
		for _, h := range f.in.Headers {
			m[types.String(h.Key)] = types.Bytes(append([]byte{}, h.Value...))
		}
		return types.NewRefValMap(types.DefaultTypeAdapter, m), true
	}
	return nil, false
}

func (f *Frame) rec() ref.Val {
	switch f.scope.rec {
	case recMapped:
		return (*mapped)(f)
	case recBytes:
		return types.Bytes(append([]byte{}, f.in.Value...))
	case recString:
		if !validText(f.in.Value) {
			return types.WrapErr(errUTF8)
		}
		return types.String(f.in.Value)
	case recJSON, recNone, recUnset:
	}
	return (*object)(f)
}

// object is a JSON record to CEL: a map that reads only what is asked for.
type object Frame

// all is the whole record as a map, or an error.
func (o *object) all() ref.Val {
	if o.whole == nil {
		if o.whole = types.NewRefValMap(types.DefaultTypeAdapter, map[ref.Val]ref.Val{}); o.in.Value != nil {
			o.whole = parseJSON(o.in.Value)
		}
		if _, ok := o.whole.(traits.Mapper); !ok && !types.IsUnknownOrError(o.whole) {
			o.whole = types.WrapErr(jsonfield.ErrSyntax)
		}
	}
	return o.whole
}

func (o *object) mapper() (traits.Mapper, ref.Val) {
	all := o.all()
	m, ok := all.(traits.Mapper)
	if !ok {
		return nil, all
	}
	return m, nil
}

// Find returns a field; those that expressions name were read already.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	if name, ok := key.(types.String); ok {
		for i, l := range o.scope.slots {
			if l.kind == slotField && len(l.path) == 1 && l.path[0] == string(name) {
				v := &o.slots[i]
				if v.Kind == Missing {
					return nil, false
				}
				return v.toRef(), true
			}
		}
	}
	m, bad := o.mapper()
	if bad != nil {
		return bad, false
	}
	return m.Find(key)
}

// FindStringKey is Find for names that an expression writes out. A field that cannot be read is found: it is
// an error only where it is used.
func (o *object) FindStringKey(name string) (any, bool) {
	v, ok := o.Find(types.String(name))
	return v, ok
}

func (o *object) Get(key ref.Val) ref.Val {
	v, ok := o.Find(key)
	if !ok && v == nil {
		return types.NewErr("no such key: %v", key)
	}
	return v
}

func (o *object) Contains(key ref.Val) ref.Val {
	v, ok := o.Find(key)
	if v != nil && !ok {
		return v
	}
	return types.Bool(ok)
}

func (o *object) Size() ref.Val {
	m, bad := o.mapper()
	if bad != nil {
		return bad
	}
	return m.Size()
}

func (o *object) Iterator() traits.Iterator {
	m, bad := o.mapper()
	if bad != nil {
		return types.NewRefValMap(types.DefaultTypeAdapter, map[ref.Val]ref.Val{}).Iterator()
	}
	return m.Iterator()
}

func (o *object) ConvertToNative(t reflect.Type) (any, error) { return o.all().ConvertToNative(t) }
func (o *object) ConvertToType(t ref.Type) ref.Val            { return o.all().ConvertToType(t) }

func (o *object) Equal(other ref.Val) ref.Val {
	if p, ok := other.(*object); ok {
		other = p.all()
	}
	if all := o.all(); types.IsUnknownOrError(all) {
		return all
	}
	return o.all().Equal(other)
}

func (o *object) Type() ref.Type { return types.MapType }
func (o *object) Value() any     { return (*Frame)(o) }

// mapped is a mapped record to CEL.
type mapped Frame

var errNoConversion = errors.New("a mapped record cannot be converted")

func (m *mapped) ConvertToNative(reflect.Type) (any, error) { return nil, errNoConversion }
func (m *mapped) Type() ref.Type                            { return types.NewObjectType(recordType) }
func (m *mapped) Value() any                                { return (*Frame)(m) }

func (m *mapped) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return types.NewObjectType(recordType)
	}
	return types.WrapErr(errNoConversion)
}

func (m *mapped) Equal(other ref.Val) ref.Val {
	o, ok := other.(*mapped)
	return types.Bool(ok && o == m)
}

// Get returns a column for CEL's slow way.
func (m *mapped) Get(name ref.Val) ref.Val {
	text, ok := name.(types.String)
	i := m.scope.column(string(text))
	if !ok || i < 0 {
		return types.NewErr("no such field: %v", name)
	}
	return m.slots[i].toRef()
}

// IsSet reports whether there is such a column.
func (m *mapped) IsSet(name ref.Val) ref.Val {
	text, ok := name.(types.String)
	return types.Bool(ok && m.scope.column(string(text)) >= 0)
}

func (m *mapped) appendJSON(dst []byte) ([]byte, error) { return (*Frame)(m).AppendColumns(dst) }

// AppendColumns appends the columns as a JSON object, in their order.
func (f *Frame) AppendColumns(dst []byte) ([]byte, error) {
	dst = append(dst, '{')
	first := true
	for i, c := range f.scope.columns {
		if f.slots[i].Absent() {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		var err error
		if dst, err = f.slots[i].AppendJSON(append(AppendString(dst, []byte(c.Name)), ':')); err != nil {
			return dst, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return append(dst, '}'), nil
}
