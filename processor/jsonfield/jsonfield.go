package jsonfield

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// Kind of a JSON value.
type Kind uint8

const (
	// Missing: the object has no such field.
	Missing Kind = iota
	Null
	Bool
	Number
	String
	Object
	Array
)

// String names the kind as people do.
func (k Kind) String() string {
	names := [...]string{"missing", "null", "a boolean", "a number", "a string", "an object", "an array"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Value is one field. It points into the document.
type Value struct {
	Kind Kind
	// Raw is the value as it stands in the document; of a string, without the quotes.
	Raw []byte
	// Escaped: the string has escapes.
	Escaped bool
}

var (
	// ErrSyntax says that the document is no JSON object.
	ErrSyntax = errors.New("not a JSON object")
	// ErrType says that a field is missing or of another kind than was asked for.
	ErrType = errors.New("wrong type")
)

// maxDepth is how deep values may be nested; encoding/json has the same bound.
const maxDepth = 10000

// Reader reads the fields with certain names. It may be used by several goroutines at once.
type Reader struct{ names []string }

// For makes a Reader of fields by name. The names are matched exactly, case included.
func For(names ...string) *Reader { return &Reader{names: names} }

// Read fills out with the fields in the order of the names given to For; len(out) must be their number.
func (r *Reader) Read(doc []byte, out []Value) error {
	for i := range out {
		out[i] = Value{}
	}
	i := space(doc, 0)
	if i >= len(doc) || doc[i] != '{' {
		return syntax(i)
	}
	i = space(doc, i+1)
	if i < len(doc) && doc[i] == '}' {
		return atEnd(doc, i+1)
	}
	hint := 0
	for {
		key, next, err := text(doc, i)
		if err != nil {
			return err
		}
		i = space(doc, next)
		if i >= len(doc) || doc[i] != ':' {
			return syntax(i)
		}
		v, next, err := value(doc, space(doc, i+1), 1)
		if err != nil {
			return err
		}
		if f := r.find(key, hint); f >= 0 {
			out[f] = v
			hint = f + 1
		}
		i = space(doc, next)
		if i >= len(doc) {
			return syntax(i)
		}
		switch doc[i] {
		case ',':
			i = space(doc, i+1)
		case '}':
			return atEnd(doc, i+1)
		default:
			return syntax(i)
		}
	}
}

// find returns the index of a name or -1. Fields mostly come in the same order, so it begins at hint.
func (r *Reader) find(key Value, hint int) int {
	k := key.Raw
	if key.Escaped {
		k = unescape(nil, k)
	}
	if hint < len(r.names) && string(k) == r.names[hint] {
		return hint
	}
	for i, n := range r.names {
		if string(k) == n {
			return i
		}
	}
	return -1
}

// Int is the value as an integer of 64 bits. A number with a fraction or an exponent is ErrType.
func (v Value) Int() (int64, error) {
	if v.Kind != Number {
		return 0, fmt.Errorf("%w: %s where an integer should be", ErrType, v.Kind)
	}
	digits := v.Raw
	negative := digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	var n uint64
	for _, c := range digits {
		d := uint64(c - '0')
		if d > 9 {
			return 0, fmt.Errorf("%w: %q is not an integer", ErrType, v.Raw)
		}
		if n > (math.MaxUint64-d)/10 {
			return 0, fmt.Errorf("%w: %q does not fit into 64 bits", ErrType, v.Raw)
		}
		n = n*10 + d
	}
	switch {
	case negative && n <= 1<<63:
		return -int64(n), nil // -(1<<63) is itself
	case !negative && n <= math.MaxInt64:
		return int64(n), nil
	}
	return 0, fmt.Errorf("%w: %q does not fit into 64 bits", ErrType, v.Raw)
}

// Bool is the value as a boolean.
func (v Value) Bool() (bool, error) {
	if v.Kind != Bool {
		return false, fmt.Errorf("%w: %s where a boolean should be", ErrType, v.Kind)
	}
	return v.Raw[0] == 't', nil
}

// Text is the value of a string: a part of the document, or of buf if it has escapes. Buf grows as
// needed and may be nil; it must be a buffer of its own, never what an earlier Text returned.
func (v Value) Text(buf *[]byte) ([]byte, error) {
	if v.Kind != String {
		return nil, fmt.Errorf("%w: %s where a string should be", ErrType, v.Kind)
	}
	if !v.Escaped {
		return v.Raw, nil
	}
	if buf == nil {
		return unescape(nil, v.Raw), nil
	}
	*buf = unescape((*buf)[:0], v.Raw)
	return *buf, nil
}

func syntax(at int) error { return fmt.Errorf("%w, at byte %d", ErrSyntax, at) }

func space(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\n' || doc[i] == '\t' || doc[i] == '\r') {
		i++
	}
	return i
}

func atEnd(doc []byte, i int) error {
	if i = space(doc, i); i < len(doc) {
		return syntax(i)
	}
	return nil
}

// value reads any value from i, and returns where it ends.
func value(doc []byte, i, depth int) (Value, int, error) {
	if i >= len(doc) {
		return Value{}, i, syntax(i)
	}
	switch c := doc[i]; {
	case c == '"':
		return text(doc, i)
	case c == '-' || c >= '0' && c <= '9':
		end, err := number(doc, i)
		return Value{Kind: Number, Raw: doc[i:end]}, end, err
	case c == '{':
		end, err := nested(doc, i, depth+1, '}')
		return Value{Kind: Object, Raw: doc[i:end]}, end, err
	case c == '[':
		end, err := nested(doc, i, depth+1, ']')
		return Value{Kind: Array, Raw: doc[i:end]}, end, err
	case c == 't':
		return word(doc, i, "true", Bool)
	case c == 'f':
		return word(doc, i, "false", Bool)
	case c == 'n':
		return word(doc, i, "null", Null)
	}
	return Value{}, i, syntax(i)
}

func word(doc []byte, i int, w string, kind Kind) (Value, int, error) {
	end := i + len(w)
	if end > len(doc) || string(doc[i:end]) != w {
		return Value{}, i, syntax(i)
	}
	return Value{Kind: kind, Raw: doc[i:end]}, end, nil
}

// plain are the bytes that stand for themselves inside a string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x20 && c != '"' && c != '\\'
	}
	return t
}()

// text reads a string from its opening quote.
func text(doc []byte, i int) (Value, int, error) {
	if i >= len(doc) || doc[i] != '"' {
		return Value{}, i, syntax(i)
	}
	i++
	start, escaped := i, false
	for i < len(doc) {
		c := doc[i]
		if plain[c] {
			i++
			continue
		}
		if c == '"' {
			return Value{Kind: String, Raw: doc[start:i], Escaped: escaped}, i + 1, nil
		}
		if c != '\\' {
			return Value{}, i, syntax(i)
		}
		escaped = true
		n := escape(doc[i:])
		if n == 0 {
			return Value{}, i, syntax(i)
		}
		i += n
	}
	return Value{}, i, syntax(i)
}

// escape is the length of the escape that s begins with, 0 if it is none.
func escape(s []byte) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(s); ok {
			return 6
		}
	}
	return 0
}

func hex4(s []byte) (r rune, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	for _, c := range s[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

func number(doc []byte, i int) (int, error) {
	if doc[i] == '-' {
		i++
	}
	switch {
	case i < len(doc) && doc[i] == '0':
		i++
	case i < len(doc) && doc[i] >= '1' && doc[i] <= '9':
		i = digits(doc, i)
	default:
		return i, syntax(i)
	}
	if i < len(doc) && doc[i] == '.' {
		n := digits(doc, i+1)
		if n == i+1 {
			return n, syntax(n)
		}
		i = n
	}
	if i < len(doc) && doc[i]|0x20 == 'e' {
		i++
		if i < len(doc) && (doc[i] == '+' || doc[i] == '-') {
			i++
		}
		n := digits(doc, i)
		if n == i {
			return n, syntax(n)
		}
		i = n
	}
	return i, nil
}

func digits(doc []byte, i int) int {
	for i < len(doc) && doc[i]-'0' <= 9 {
		i++
	}
	return i
}

// nested reads over an object or array.
func nested(doc []byte, i, depth int, closing byte) (int, error) {
	if depth > maxDepth {
		return i, fmt.Errorf("%w: nested too deeply", ErrSyntax)
	}
	i = space(doc, i+1)
	if i < len(doc) && doc[i] == closing {
		return i + 1, nil
	}
	for {
		if closing == '}' {
			_, next, err := text(doc, i)
			if err != nil {
				return next, err
			}
			i = space(doc, next)
			if i >= len(doc) || doc[i] != ':' {
				return i, syntax(i)
			}
			i = space(doc, i+1)
		}
		_, next, err := value(doc, i, depth)
		if err != nil {
			return next, err
		}
		i = space(doc, next)
		switch {
		case i < len(doc) && doc[i] == ',':
			i = space(doc, i+1)
		case i < len(doc) && doc[i] == closing:
			return i + 1, nil
		default:
			return i, syntax(i)
		}
	}
}

// unescape appends what a checked string means.
func unescape(dst, s []byte) []byte {
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			dst = append(dst, s[i])
			i++
			continue
		}
		if s[i+1] != 'u' {
			dst = append(dst, simple(s[i+1]))
			i += 2
			continue
		}
		r, _ := hex4(s[i:])
		i += 6
		if utf16.IsSurrogate(r) {
			low, ok := hex4(s[i:])
			if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
				r = pair
				i += 6
			} else {
				r = utf8.RuneError
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

func simple(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}
