package file

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// Lines says what of a record a line holds.
type Lines string

const (
	// LineValue is the value as it is, and nothing else; the default. A value with a line break can't be
	// written, and a tombstone becomes null.
	LineValue Lines = "value"
	// LineRecord is the whole record as one JSON object, whatever its bytes are:
	//
	//	{"key":"c-01","value":"{\"cents\":","timestamp":1700000000000,"headers":[{"key":"trace","value":"t1"}]}
	//
	// Key and value are null where the record has none. Bytes that are no UTF-8 stand as {"base64":"..."}.
	// It is what dead letters want: nothing of them is lost, and nothing in them is refused.
	LineRecord Lines = "record"
)

func (l Lines) check() error {
	switch l {
	case "", LineValue, LineRecord:
		return nil
	}
	return fmt.Errorf("lines %q: a line is the value or the record", l)
}

// appendRecord appends the record as LineRecord writes it.
func appendRecord(dst []byte, r *stream.Record) []byte {
	dst = appendBytes(append(dst, `{"key":`...), r.Key)
	dst = appendBytes(append(dst, `,"value":`...), r.Value)
	dst = strconv.AppendInt(append(dst, `,"timestamp":`...), r.Time, 10)
	dst = append(dst, `,"headers":[`...)
	for i, h := range r.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendBytes(append(dst, `{"key":`...), []byte(h.Key))
		dst = append(appendBytes(append(dst, `,"value":`...), h.Value), '}')
	}
	return append(dst, "]}"...)
}

// appendBytes appends text as a JSON string, other bytes as {"base64":"..."}, and nil as null.
func appendBytes(dst, b []byte) []byte {
	switch {
	case b == nil:
		return append(dst, "null"...)
	case !utf8.Valid(b):
		dst = append(dst, `{"base64":"`...)
		return append(base64.StdEncoding.AppendEncode(dst, b), `"}`...)
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	_ = e.Encode(string(b)) // valid text always encodes
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})...)
}

// ParseRecord reads a line that LineRecord wrote. The record's slices are its own.
func ParseRecord(line []byte) (stream.Record, error) {
	var in struct {
		Key, Value raw
		Timestamp  int64
		Headers    []struct{ Key, Value raw }
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return stream.Record{}, fmt.Errorf("the line is no record with key, value, timestamp and headers: %w: %w", participant.ErrMisconfigured, err)
	}
	if d.InputOffset() != int64(len(bytes.TrimRight(line, " \t\r\n"))) {
		return stream.Record{}, fmt.Errorf("the line has something behind its record: %w", participant.ErrMisconfigured)
	}
	r := stream.Record{Key: in.Key, Value: in.Value, Time: in.Timestamp}
	for _, h := range in.Headers {
		r.Headers = append(r.Headers, stream.Header{Key: string(h.Key), Value: h.Value})
	}
	return r, nil
}

// raw is what appendBytes wrote.
type raw []byte

// UnmarshalJSON reads null, a string or {"base64":"..."}.
func (r *raw) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, null) {
		*r = nil
		return nil
	}
	if text[0] != '{' {
		var s string
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		*r = []byte(s)
		return nil
	}
	var b struct{ Base64 *[]byte }
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return err
	}
	if b.Base64 == nil {
		return fmt.Errorf("%s is neither text nor {\"base64\": ...}", text)
	}
	*r = *b.Base64
	return nil
}
