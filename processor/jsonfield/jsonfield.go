package jsonfield

import (
	"encoding/binary"
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
type Reader struct {
	names []string
	// tokens are the names as they mostly stand in a document, with quotes and colon; empty
	// where a name has bytes that must be escaped.
	tokens []string
}

// For makes a Reader of fields by name. The names are matched exactly, case included.
func For(names ...string) *Reader {
	r := &Reader{names: names}
	for _, n := range names {
		token := `"` + n + `":`
		if special([]byte(n), 0) < len(n) {
			token = ""
		}
		r.tokens = append(r.tokens, token)
	}
	return r
}

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
		field := -1
		if hint < len(r.tokens) && startsWith(doc[i:], r.tokens[hint]) {
			field = hint
			i += len(r.tokens[hint])
		} else {
			next, escaped := text(doc, i)
			if next < 0 {
				return syntax(^next)
			}
			field = r.find(doc[i+1:next-1], escaped, hint)
			if i = space(doc, next); i >= len(doc) || doc[i] != ':' {
				return syntax(i)
			}
			i++
		}
		i = space(doc, i)
		next, kind, escaped := value(doc, i, 1)
		if next < 0 {
			return syntax(^next)
		}
		if field >= 0 {
			raw := doc[i:next:next]
			if kind == String {
				raw = doc[i+1 : next-1 : next-1]
			}
			v := &out[field] // field by field: nothing is built to be copied
			v.Kind, v.Raw, v.Escaped = kind, raw, escaped
			hint = field + 1
		}
		if i = space(doc, next); i >= len(doc) {
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

// startsWith reports whether doc starts with a token, unless that is empty.
func startsWith(doc []byte, token string) bool {
	return token != "" && len(doc) >= len(token) && string(doc[:len(token)]) == token
}

// find returns the index of a name or -1. Fields mostly come in the same order, so it begins at hint.
func (r *Reader) find(k []byte, escaped bool, hint int) int {
	if escaped {
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
	rest := digits
	for len(rest) >= 8 && len(digits) <= 19 { // 19 digits do not overflow
		x := binary.LittleEndian.Uint64(rest)
		if notDigits(x) != 0 {
			break
		}
		n = n*100_000_000 + eight(x)
		rest = rest[8:]
	}
	for _, c := range rest {
		d := uint64(c - '0')
		if d > 9 {
			return 0, fmt.Errorf("%w: a number that is not an integer", ErrType)
		}
		if len(digits) > 19 && n > (math.MaxUint64-d)/10 {
			return 0, fmt.Errorf("%w: an integer that does not fit into 64 bits", ErrType)
		}
		n = n*10 + d
	}
	switch {
	case negative && n <= 1<<63:
		return -int64(n), nil // -(1<<63) is itself
	case !negative && n <= math.MaxInt64:
		return int64(n), nil
	}
	return 0, fmt.Errorf("%w: an integer that does not fit into 64 bits", ErrType)
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

// The scanners return where a value ends, or the complement of the place that is wrong.

// value scans any value.
func value(doc []byte, i, depth int) (end int, kind Kind, escaped bool) {
	if i >= len(doc) {
		return ^i, Missing, false
	}
	switch c := doc[i]; {
	case c == '"':
		end, escaped = text(doc, i)
		return end, String, escaped
	case c == '-' || c-'0' <= 9:
		return number(doc, i), Number, false
	case c == '{':
		return nested(doc, i, depth+1, '}'), Object, false
	case c == '[':
		return nested(doc, i, depth+1, ']'), Array, false
	case c == 't':
		return word(doc, i, "true"), Bool, false
	case c == 'f':
		return word(doc, i, "false"), Bool, false
	case c == 'n':
		return word(doc, i, "null"), Null, false
	}
	return ^i, Missing, false
}

func word(doc []byte, i int, w string) int {
	end := i + len(w)
	if end > len(doc) || string(doc[i:end]) != w {
		return ^i
	}
	return end
}

// text scans a string from its opening quote.
func text(doc []byte, i int) (end int, escaped bool) {
	if i >= len(doc) || doc[i] != '"' {
		return ^i, false
	}
	i++
	if i+8 <= len(doc) { // most strings are short
		if m := specials(binary.LittleEndian.Uint64(doc[i:])); m != 0 && doc[i+first(m)] == '"' {
			return i + first(m) + 1, false
		}
	}
	for {
		i = special(doc, i)
		switch {
		case i >= len(doc):
			return ^i, false
		case doc[i] == '"':
			return i + 1, escaped
		case doc[i] != '\\':
			return ^i, false
		}
		escaped = true
		n := escape(doc[i:])
		if n == 0 {
			return ^i, false
		}
		i += n
	}
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

func number(doc []byte, i int) int {
	if doc[i] == '-' {
		i++
	}
	switch {
	case i < len(doc) && doc[i] == '0':
		i++
	case i < len(doc) && doc[i]-'1' <= 8:
		i = digits(doc, i)
	default:
		return ^i
	}
	if i < len(doc) && doc[i] == '.' {
		n := digits(doc, i+1)
		if n == i+1 {
			return ^n
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
			return ^n
		}
		i = n
	}
	return i
}

func digits(doc []byte, i int) int {
	for ; i+8 <= len(doc); i += 8 {
		if m := notDigits(binary.LittleEndian.Uint64(doc[i:])); m != 0 {
			return i + first(m)
		}
	}
	for i < len(doc) && doc[i]-'0' <= 9 {
		i++
	}
	return i
}

// nested scans an object or array.
func nested(doc []byte, i, depth int, closing byte) int {
	if depth > maxDepth {
		return ^i
	}
	i = space(doc, i+1)
	if i < len(doc) && doc[i] == closing {
		return i + 1
	}
	for {
		if closing == '}' {
			next, _ := text(doc, i)
			if next < 0 {
				return next
			}
			if i = space(doc, next); i >= len(doc) || doc[i] != ':' {
				return ^i
			}
			i = space(doc, i+1)
		}
		next, _, _ := value(doc, i, depth)
		if next < 0 {
			return next
		}
		i = space(doc, next)
		switch {
		case i < len(doc) && doc[i] == ',':
			i = space(doc, i+1)
		case i < len(doc) && doc[i] == closing:
			return i + 1
		default:
			return ^i
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
