package expr

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/unisink/unisink/processor/jsonfield"
)

// parseJSON is a whole JSON value as CEL knows it, or an error of CEL's. The rules for numbers are those of
// a field: one that does not fit is an error where it is used, and only there.
func parseJSON(text []byte) ref.Val {
	if !utf8.Valid(text) {
		return types.WrapErr(errUTF8)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return types.WrapErr(err)
	}
	return jsonToRef(v)
}

func jsonToRef(v any) ref.Val {
	switch v := v.(type) {
	case nil:
		return types.NullValue
	case bool:
		return types.Bool(v)
	case string:
		return types.String(v)
	case json.Number:
		var out Value
		out.setNumber(&jsonfield.Value{Kind: jsonfield.Number, Raw: []byte(v)})
		return out.toRef()
	case []any:
		list := make([]ref.Val, len(v))
		for i, e := range v {
			list[i] = jsonToRef(e)
		}
		return types.NewRefValList(types.DefaultTypeAdapter, list)
	case map[string]any:
		m := make(map[ref.Val]ref.Val, len(v))
		for k, e := range v {
			m[types.String(k)] = jsonToRef(e)
		}
		return types.NewRefValMap(types.DefaultTypeAdapter, m)
	}
	return types.NewErr("a %T is no JSON", v)
}

// Absent reports whether the value is an optional one without a value, which an object leaves out.
func (v *Value) Absent() bool {
	if v.Kind != Other {
		return false
	}
	o, ok := v.ref.(*types.Optional)
	return ok && !o.HasValue()
}

// AppendJSON appends the value as JSON. Integers are written with all digits and doubles so that they are read as
// doubles again; bytes are base64, timestamps RFC 3339 and durations seconds, as in JSON of protocol buffers, and so
// are the doubles that JSON does not have: "NaN", "Infinity", "-Infinity".
func (v *Value) AppendJSON(dst []byte) ([]byte, error) {
	switch v.Kind {
	case Null:
		return append(dst, "null"...), nil
	case Bool:
		return strconv.AppendBool(dst, v.Bool()), nil
	case Int:
		return strconv.AppendInt(dst, v.Int(), 10), nil
	case Uint:
		return strconv.AppendUint(dst, v.num, 10), nil
	case Double:
		return AppendDouble(dst, v.Double()), nil
	case String:
		return AppendString(dst, v.Data), nil
	case Bytes:
		return appendBase64(dst, v.Data), nil
	case JSON:
		b := bytes.NewBuffer(dst)
		if err := json.Compact(b, v.Data); err != nil {
			return dst, err
		}
		return b.Bytes(), nil
	case Other:
		return appendRef(dst, v.ref)
	case Broken:
		return dst, v.ref.(*types.Err)
	case Missing:
	}
	return dst, errors.New("there is no value")
}

func appendBase64(dst, data []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), data), '"')
}

// AppendDouble appends a double as JSON that is read as a double again.
func AppendDouble(dst []byte, d float64) []byte {
	switch {
	case math.IsNaN(d):
		return append(dst, `"NaN"`...)
	case math.IsInf(d, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(d, -1):
		return append(dst, `"-Infinity"`...)
	}
	if a := math.Abs(d); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(dst, d, 'e', -1, 64)
	}
	dst = strconv.AppendFloat(dst, d, 'f', -1, 64)
	if d == math.Trunc(d) {
		dst = append(dst, ".0"...)
	}
	return dst
}

// escaped are the bytes that cannot stand for themselves in a JSON string.
var escaped = func() (t [256]bool) {
	for c := range 0x20 {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

const hexDigits = "0123456789abcdef"

// AppendString appends UTF-8 text as a JSON string.
func AppendString(dst, text []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i, c := range text {
		if !escaped[c] {
			continue
		}
		dst = append(dst, text[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, text[from:]...), '"')
}

func appendRef(dst []byte, r ref.Val) ([]byte, error) {
	switch r := r.(type) {
	case *types.Err:
		return dst, r
	case *types.Optional:
		if !r.HasValue() {
			return append(dst, "null"...), nil
		}
		return appendRef(dst, r.GetValue())
	case types.Timestamp:
		return AppendString(dst, []byte(r.Time.UTC().Format(time.RFC3339Nano))), nil
	case types.Duration:
		return AppendString(dst, append(strconv.AppendFloat(nil, r.Seconds(), 'f', -1, 64), 's')), nil
	case traits.Mapper:
		return appendMap(dst, r)
	case *mapped:
		return r.appendJSON(dst)
	case traits.Lister:
		dst = append(dst, '[')
		n := 0
		for it := r.Iterator(); it.HasNext() == types.True; n++ {
			if n > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = appendRef(dst, it.Next()); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	}
	var v Value
	if v.setRef(r); v.Kind == Other {
		return dst, fmt.Errorf("a %s cannot be written as JSON", r.Type().TypeName())
	}
	return v.AppendJSON(dst)
}

// appendMap writes a map in the order of its keys, since that of CEL's changes from run to run.
func appendMap(dst []byte, m traits.Mapper) ([]byte, error) {
	type entry struct {
		name  string
		value ref.Val
	}
	var list []entry
	for it := m.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		name, ok := k.ConvertToType(types.StringType).(types.String)
		if !ok {
			return dst, fmt.Errorf("a %s cannot be the name of a field", k.Type().TypeName())
		}
		list = append(list, entry{string(name), m.Get(k)})
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	dst = append(dst, '{')
	for i, e := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendRef(append(AppendString(dst, []byte(e.name)), ':'), e.value); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// Unwrap makes an optional value that has one the value itself.
func (v *Value) Unwrap() {
	if v.Kind != Other {
		return
	}
	if o, ok := v.ref.(*types.Optional); ok && o.HasValue() {
		v.Data = nil // what it had may be another's
		v.setRef(o.GetValue())
	}
}
