package expr

import (
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/unisink/unisink/processor/jsonfield"
)

// Kind of a [Value].
type Kind uint8

// The kinds. The zero value is no value: the record has no such field.
const (
	Missing Kind = iota
	Null
	Bool
	Int
	Uint
	Double
	String
	Bytes
	JSON   // an object or a list, as text
	Other  // what only CEL knows: a list, a map, a timestamp, a duration
	Broken // a field that cannot be used
)

// String names the kind as people do.
func (k Kind) String() string {
	return [...]string{"nothing", "null", "a boolean", "an integer", "an unsigned integer", "a double", "a string", "bytes", "an object or a list", "a value", "broken"}[k]
}

// Value is what an expression comes to. It may point into the record and into the frame that it was
// evaluated in, and is good until the frame's next record.
type Value struct {
	Kind Kind
	// Data of strings, bytes and JSON.
	Data []byte

	num uint64
	// ref of Other; of Broken the error.
	ref ref.Val
}

// Bool is the value of a Bool.
func (v *Value) Bool() bool { return v.num != 0 }

// Int is the value of an Int.
func (v *Value) Int() int64 { return int64(v.num) } //nolint:gosec // the same 64 bits

// Uint is the value of a Uint.
func (v *Value) Uint() uint64 { return v.num }

// Double is the value of a Double.
func (v *Value) Double() float64 { return math.Float64frombits(v.num) }

// SetInt makes v an Int.
func (v *Value) SetInt(n int64) { v.Kind, v.num, v.ref = Int, uint64(n), nil } //nolint:gosec // the same 64 bits

// SetBool makes v a Bool.
func (v *Value) SetBool(b bool) {
	v.Kind, v.num, v.ref = Bool, 0, nil
	if b {
		v.num = 1
	}
}

// SetDouble makes v a Double.
func (v *Value) SetDouble(d float64) { v.Kind, v.num, v.ref = Double, math.Float64bits(d), nil }

// SetData makes v a string, bytes or JSON; data is not copied.
func (v *Value) SetData(k Kind, data []byte) { v.Kind, v.Data, v.ref = k, data, nil }

// SetNull makes v null.
func (v *Value) SetNull() { v.Kind, v.ref = Null, nil }

func (v *Value) setBroken(err error) { v.Kind, v.ref = Broken, types.WrapErr(err) }

// Describe says what kind of value it is, for an error, and nothing of what is in it: `a string`, `an object or a list`.
func (v *Value) Describe() string {
	if v.Kind == Other {
		return "a " + v.ref.Type().TypeName()
	}
	return v.Kind.String()
}

var (
	errUTF8 = errors.New("the text is not UTF-8")
	errInt  = errors.New("the integer does not fit into 64 bits")
	errNum  = errors.New("the number does not fit into a double")
)

// setField makes v what a JSON field says. Strings with escapes are written to buf.
func (v *Value) setField(f *jsonfield.Value, buf *[]byte) {
	v.ref = nil
	switch f.Kind {
	case jsonfield.Missing:
		v.Kind = Missing
	case jsonfield.Null:
		v.Kind = Null
	case jsonfield.Bool:
		v.SetBool(f.Raw[0] == 't')
	case jsonfield.Number:
		v.setNumber(f)
	case jsonfield.String:
		text, err := f.Text(buf)
		if err == nil && !utf8.Valid(text) {
			err = errUTF8
		}
		if v.SetData(String, text); err != nil {
			v.setBroken(err)
		}
	case jsonfield.Object, jsonfield.Array:
		if v.SetData(JSON, f.Raw); !utf8.Valid(f.Raw) {
			v.setBroken(errUTF8)
		}
	}
}

// setNumber: a number without fraction and exponent is an integer and never rounded, any other a double.
func (v *Value) setNumber(f *jsonfield.Value) {
	for _, c := range f.Raw {
		if c == '.' || c|0x20 == 'e' {
			d, err := strconv.ParseFloat(string(f.Raw), 64)
			if v.SetDouble(d); err != nil {
				v.setBroken(errNum)
			}
			return
		}
	}
	n, err := f.Int()
	if v.SetInt(n); err != nil {
		v.setBroken(errInt)
	}
}

// toRef is the value as CEL knows it. It is a copy.
func (v *Value) toRef() ref.Val {
	switch v.Kind {
	case Null:
		return types.NullValue
	case Bool:
		return types.Bool(v.Bool())
	case Int:
		return types.Int(v.Int())
	case Uint:
		return types.Uint(v.num)
	case Double:
		return types.Double(v.Double())
	case String:
		return types.String(v.Data)
	case Bytes:
		return types.Bytes(append([]byte(nil), v.Data...))
	case JSON:
		return parseJSON(v.Data)
	case Other, Broken:
		return v.ref
	case Missing:
	}
	return types.NewErr("no such field")
}

// setRef makes v what CEL came to.
func (v *Value) setRef(r ref.Val) {
	switch r := r.(type) {
	case types.Null:
		v.SetNull()
	case types.Bool:
		v.SetBool(bool(r))
	case types.Int:
		v.SetInt(int64(r))
	case types.Uint:
		v.Kind, v.num, v.ref = Uint, uint64(r), nil
	case types.Double:
		v.SetDouble(float64(r))
	case types.String:
		v.SetData(String, append(v.Data[:0], r...))
	case types.Bytes:
		v.SetData(Bytes, append(v.Data[:0], r...))
	default:
		v.Kind, v.ref = Other, r
	}
}

// SetJSON makes v what a JSON value says, which is copied.
func (v *Value) SetJSON(text []byte) error {
	doc := append(append([]byte(`{"v":`), text...), '}')
	var out [1]jsonfield.Value
	if err := jsonfield.For("v").Read(doc, out[:]); err != nil {
		return err
	}
	var buf []byte
	v.setField(&out[0], &buf)
	return nil
}

// Ref is what only CEL knows, of kind Other.
func (v *Value) Ref() ref.Val { return v.ref }
