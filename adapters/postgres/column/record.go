package column

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/unisink/unisink/processor/stream"
)

// Column is one that is written.
type Column struct {
	Name string
	From From
	Type Type
	// NotNull: a record without content for it is refused.
	NotNull bool
	// Key columns say which row it is.
	Key bool
}

// Row is what stands in the columns of one record, in their order: texts as PostgreSQL reads them, nil for null.
// They are valid until the next Fill.
type Row [][]byte

// Writer makes rows of records. One goroutine uses it at a time.
type Writer struct {
	columns []Column
	// closed: a field of the value without a column is refused.
	closed bool
	fields map[string]bool // that have a column, or are known without
	value  bool            // some column needs a field

	object map[string]json.RawMessage // of the record, reused
	row    Row
	at     []span
	buf    []byte
}

// Misfit is a record that does not fit into the table.
type Misfit struct {
	// Column is where it does not fit; "": it is no row at all.
	Column string
	Text   string
}

func (m *Misfit) Error() string { return m.Text }

// NewWriter makes one. Closed: a field of the value that no column takes is refused, except those named in besides.
func NewWriter(columns []Column, closed bool, besides ...string) *Writer {
	w := &Writer{columns: columns, closed: closed, fields: map[string]bool{}, object: map[string]json.RawMessage{}}
	for _, c := range columns {
		if c.From.Part == Field {
			w.fields[c.From.Name], w.value = true, true
		}
	}
	for _, b := range besides {
		w.fields[b], w.value = true, true
	}
	return w
}

// Epoch that writes a record.
type Epoch struct{ Generation, N uint64 }

// Fill makes the row of a record that was opened: of its key columns alone, or of all. The error is a *Misfit.
func (w *Writer) Fill(r *stream.Record, e Epoch, keyOnly bool) (Row, error) {
	w.buf, w.row, w.at = w.buf[:0], w.row[:0], w.at[:0]
	for i := range w.columns {
		c := &w.columns[i]
		if keyOnly && !c.Key {
			continue
		}
		from := len(w.buf)
		text, found, err := w.append(w.buf, c, r, e)
		switch {
		case err != nil:
			return nil, &Misfit{c.Name, fmt.Sprintf("column %q (%s): %s %s", c.Name, c.Type.Name, c.From.told(), err)}
		case !found && c.NotNull:
			return nil, &Misfit{c.Name, fmt.Sprintf("column %q may not be null, and %s is not there or null", c.Name, c.From.told())}
		}
		w.buf, w.row, w.at = text, append(w.row, nil), append(w.at, span{from, len(text), found})
	}
	for i, s := range w.at { // now that the buffer does not move any more
		if s.found {
			w.row[i] = w.buf[s.from:s.to:s.to]
		}
	}
	return w.row, nil
}

// span is where a column's text stands in the buffer.
type span struct {
	from, to int
	found    bool
}

// True reports whether a field of the record that was opened is true.
func (w *Writer) True(field string) (bool, error) {
	switch raw := w.object[field]; string(raw) {
	case "true":
		return true, nil
	case "false", "null", "":
		return false, nil
	}
	return false, &Misfit{Text: fmt.Sprintf("the field %q, which says whether the row goes, is neither true nor false", field)}
}

// Fields reports whether the value must be an object.
func (w *Writer) Fields() bool { return w.value }

// Open reads the value's fields, where a column needs them. The error is a *Misfit.
func (w *Writer) Open(r *stream.Record) error {
	clear(w.object)
	if !w.value || r.Value == nil {
		return nil
	}
	if !utf8.Valid(r.Value) {
		return &Misfit{Text: "the value is no UTF-8, and its fields are wanted"}
	}
	if err := json.Unmarshal(r.Value, &w.object); err != nil || w.object == nil {
		if w.object == nil { // the value is null
			w.object, err = map[string]json.RawMessage{}, errors.New("it is null")
		}
		return &Misfit{Text: "the value is no JSON object with fields: " + whyNoObject(err)}
	}
	if !w.closed {
		return nil
	}
	for name := range w.object {
		if !w.fields[name] {
			return &Misfit{Column: name, Text: fmt.Sprintf("the value has a field %q, for which no column is written; name the columns that are", name)}
		}
	}
	return nil
}

// whyNoObject says where a value stops being one, and not what stands there.
func whyNoObject(err error) string {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("it is no JSON at byte %d", syntax.Offset)
	}
	return err.Error()
}

// append appends the content of a column; found is false for null.
func (w *Writer) append(dst []byte, c *Column, r *stream.Record, e Epoch) (text []byte, found bool, err error) {
	switch c.From.Part {
	case Field:
		raw := w.object[c.From.Name]
		if len(raw) == 0 || string(raw) == "null" {
			return dst, false, nil
		}
		text, err = c.Type.appendJSON(dst, raw)
	case Key:
		if r.Key == nil {
			return dst, false, nil
		}
		text, err = c.Type.appendRaw(dst, r.Key)
	case Value:
		if r.Value == nil {
			return dst, false, nil
		}
		text, err = c.Type.appendRaw(dst, r.Value)
	case Time:
		if r.Time == 0 {
			return dst, false, nil
		}
		text, err = c.Type.appendInteger(dst, r.Time)
	case Header:
		i := len(r.Headers) - 1
		for i >= 0 && r.Headers[i].Key != c.From.Name {
			i--
		}
		if i < 0 || r.Headers[i].Value == nil {
			return dst, false, nil
		}
		text, err = c.Type.appendRaw(dst, r.Headers[i].Value)
	case Headers:
		text, err = c.Type.appendHeaders(dst, r.Headers)
	case Generation:
		text, err = c.Type.appendInteger(dst, int64(e.Generation))
	case N:
		text, err = c.Type.appendInteger(dst, int64(e.N))
	case partUnset:
		err = errors.New("stands nowhere")
	}
	return text, err == nil, err
}

// unquote reads a JSON string that is valid UTF-8. Half a surrogate pair, which no text can hold, is refused: the decoder
// would put U+FFFD in its place.
func unquote(raw json.RawMessage) (string, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", err
	}
	if loneSurrogate(raw) {
		return "", errors.New("holds half a character (a lone surrogate)")
	}
	return s, nil
}

// loneSurrogate looks through the escapes of a valid JSON string.
func loneSurrogate(raw []byte) bool {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return false
		}
		unit, isUnit := escapedUnit(raw[i:])
		switch low, paired := escapedUnit(raw[min(i+escapeLength, len(raw)):]); {
		case !isUnit:
			raw = raw[i+2:] // \n, or \\
		case !utf16.IsSurrogate(unit):
			raw = raw[i+escapeLength:]
		case paired && utf16.DecodeRune(unit, low) != utf8.RuneError:
			raw = raw[i+2*escapeLength:]
		default:
			return true
		}
	}
}

// escapeLength of \uXXXX.
const escapeLength = 6

// escapedUnit is the UTF-16 unit that an escape at the beginning stands for; false where there is none.
func escapedUnit(raw []byte) (rune, bool) {
	if len(raw) < escapeLength || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(raw[2:escapeLength]), 16, 16)
	return rune(n), err == nil
}
