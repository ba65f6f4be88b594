package column

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/unisink/unisink/processor/stream"
)

// appendJSON appends a field's JSON, which is not null.
func (t *Type) appendJSON(dst []byte, raw json.RawMessage) ([]byte, error) {
	switch t.Kind {
	case JSON:
		return t.appendDocument(dst, raw)
	case Bytes:
		s, err := unquoted(raw, "base64")
		if err != nil {
			return dst, err
		}
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return dst, errors.New("is no base64, which a text in a column of bytes must be")
		}
		return appendHex(dst, b), nil
	case Bool:
		if s := string(raw); s != "true" && s != "false" {
			return dst, fmt.Errorf("is %s, and neither true nor false", told(raw))
		}
		return append(dst, raw...), nil
	case Text, OtherObject:
		s, err := unquoted(raw, "text")
		if err != nil {
			return dst, err
		}
		return t.appendString(dst, s)
	case Integer, Float, Numeric, Timestamp, LocalTime, Date:
		s := string(raw)
		quoted := raw[0] == '"'
		if quoted {
			var err error
			if s, err = unquote(raw); err != nil {
				return dst, err
			}
		} else if raw[0] == '{' || raw[0] == '[' || raw[0] == 't' || raw[0] == 'f' {
			return dst, fmt.Errorf("is %s", told(raw))
		}
		return t.appendScalar(dst, s, quoted)
	case kindUnset:
	}
	return dst, errors.New("is for a column of no known type")
}

// appendRaw appends bytes that are no JSON: a key, a whole value, a header.
func (t *Type) appendRaw(dst, b []byte) ([]byte, error) {
	if t.Kind == Bytes {
		return appendHex(dst, b), nil
	}
	if !utf8.Valid(b) {
		return dst, errors.New("is no UTF-8; a column of type bytea takes any bytes")
	}
	switch t.Kind {
	case JSON:
		if !json.Valid(b) {
			return dst, errors.New("is no JSON")
		}
		return t.appendDocument(dst, b)
	case Bool:
		if s := string(b); s != "true" && s != "false" {
			return dst, errors.New("is neither true nor false")
		}
		return append(dst, b...), nil
	case Text, OtherObject:
		return t.appendString(dst, string(b))
	case Integer, Float, Numeric, Timestamp, LocalTime, Date:
		_, isNumber := readDecimal(b)
		return t.appendScalar(dst, string(b), !isNumber)
	case kindUnset, Bytes:
	}
	return dst, errors.New("is for a column of no known type")
}

// appendInteger appends a time in Unix milliseconds or a number.
func (t *Type) appendInteger(dst []byte, n int64) ([]byte, error) {
	if t.Kind == Text {
		return t.appendText(dst, strconv.FormatInt(n, 10))
	}
	return t.appendJSON(dst, strconv.AppendInt(nil, n, 10))
}

// appendHeaders writes them as dead letters in files have them: bytes that are no UTF-8 stand as {"base64": …}.
func (t *Type) appendHeaders(dst []byte, headers []stream.Header) ([]byte, error) {
	type header struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
	}
	out := make([]header, len(headers))
	for i, h := range headers {
		out[i] = header{h.Key, string(h.Value)}
		switch {
		case h.Value == nil:
			out[i].Value = nil
		case !utf8.Valid(h.Value) || t.Binary && bytes.IndexByte(h.Value, 0) >= 0:
			out[i].Value = map[string][]byte{"base64": h.Value}
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return dst, err
	}
	if t.Kind == JSON {
		return t.appendDocument(dst, text)
	}
	return t.appendRaw(dst, text)
}

// appendScalar appends a number or a time; quoted: it was a text.
func (t *Type) appendScalar(dst []byte, s string, quoted bool) ([]byte, error) {
	switch t.Kind {
	case Integer:
		d, ok := readDecimal([]byte(s))
		n, fits := d.integer(t.Bits)
		switch {
		case !ok:
			return dst, errors.New("is no number")
		case !fits:
			return dst, fmt.Errorf("is no whole number of %d bits", t.Bits)
		}
		return strconv.AppendInt(dst, n, 10), nil
	case Float:
		return t.appendFloat(dst, s, quoted)
	case Numeric:
		return t.appendNumeric(dst, s, quoted)
	case Timestamp, LocalTime, Date:
		return t.appendTime(dst, s, quoted)
	case kindUnset, Bool, Text, Bytes, JSON, OtherObject:
	}
	return dst, errors.New("is for a column of no known type")
}

// special reports whether a text is one of the numbers that are none, as PostgreSQL and Go both read them.
func special(s string) bool { return s == "NaN" || s == "Infinity" || s == "-Infinity" }

func (t *Type) appendFloat(dst []byte, s string, quoted bool) ([]byte, error) {
	if quoted && special(s) {
		return append(dst, s...), nil
	}
	d, ok := readDecimal([]byte(s))
	if !ok {
		return dst, errors.New("is no number")
	}
	v, err := strconv.ParseFloat(s, t.Bits)
	if err != nil || math.IsInf(v, 0) || v == 0 && len(d.digits) > 0 {
		return dst, errors.New("is out of the range of such a column")
	}
	return strconv.AppendFloat(dst, v, 'g', -1, t.Bits), nil
}

func (t *Type) appendNumeric(dst []byte, s string, quoted bool) ([]byte, error) {
	if quoted && special(s) && t.Precision == 0 {
		return append(dst, s...), nil
	}
	d, ok := readDecimal([]byte(s))
	switch {
	case !ok:
		return dst, errors.New("is no number")
	case d.point > maxPoint || d.fraction() > maxFraction:
		return dst, errors.New("has more digits than a numeric can have")
	case t.Precision > 0 && len(d.digits) > 0 && len(d.digits)-d.point > t.Scale:
		return dst, fmt.Errorf("would be rounded to %d digits behind the point", t.Scale)
	case t.Precision > 0 && len(d.digits) > 0 && d.point > t.Precision-t.Scale:
		return dst, fmt.Errorf("has more than %d digits before the point", t.Precision-t.Scale)
	}
	return d.appendTo(dst), nil
}

const maxFraction = 16_383

// The forms in which PostgreSQL reads times, whatever DateStyle and TimeZone are.
const (
	instant = "2006-01-02 15:04:05.999999Z07:00"
	local   = "2006-01-02 15:04:05.999999"
)

// appendTime takes Unix milliseconds, or RFC 3339. Words like "now", which mean something else each time, are refused.
func (t *Type) appendTime(dst []byte, s string, quoted bool) ([]byte, error) {
	if t.Kind == Date {
		if _, err := time.Parse(time.DateOnly, s); err != nil || !quoted {
			return dst, errors.New("is no date like 2006-01-02")
		}
		return append(dst, s...), nil
	}
	var at time.Time
	if quoted {
		var err error
		at, err = time.Parse(time.RFC3339Nano, strings.Replace(s, " ", "T", 1))
		if err != nil && t.Kind == LocalTime {
			at, err = time.Parse("2006-01-02T15:04:05", strings.Replace(s, " ", "T", 1))
		}
		if err != nil {
			return dst, errors.New("is no time like 2006-01-02T15:04:05Z")
		}
	} else {
		d, ok := readDecimal([]byte(s))
		ms, fits := d.integer(64)
		if !ok || !fits {
			return dst, errors.New("is no time: a number is Unix milliseconds, and whole")
		}
		at = time.UnixMilli(ms)
	}
	if t.finer(s, quoted, at) {
		return dst, t.rounded()
	}
	at = at.UTC()
	if y := at.Year(); y < 1 || y > 9999 {
		return dst, errors.New("is a time outside of the years 1 to 9999")
	}
	if t.Kind == LocalTime {
		return at.AppendFormat(dst, local), nil
	}
	return at.AppendFormat(dst, instant), nil
}

// finer reports whether a time has more digits than the column keeps.
func (t *Type) finer(s string, quoted bool, at time.Time) bool {
	if quoted {
		return finer(s, t.Digits)
	}
	return at.Nanosecond()%int(math.Pow10(nanoseconds-t.Digits)) != 0
}

// nanoseconds has as many digits.
const nanoseconds = 9

// finer reports whether a text has a digit other than 0 behind so many that follow a point (or a comma, which stands for one).
func finer(s string, digits int) bool {
	for {
		i := strings.IndexAny(s, ".,")
		if i < 0 {
			return false
		}
		s = s[i+1:]
		for n := 0; n < len(s) && s[n] >= '0' && s[n] <= '9'; n++ {
			if n >= digits && s[n] != '0' {
				return true
			}
		}
	}
}

func (t *Type) rounded() error {
	return fmt.Errorf("would be rounded to %d digits of a second", t.Digits)
}

// appendString appends a text, which of a type that is none the server reads.
func (t *Type) appendString(dst []byte, s string) ([]byte, error) {
	if t.Kind == Text {
		return t.appendText(dst, s)
	}
	if trimmed := strings.TrimLeft(s, " Tt"); t.Clock && (trimmed == "" || trimmed[0] < '0' || trimmed[0] > '9') {
		return dst, errors.New("is no time of day like 15:04:05")
	}
	if (t.Clock || t.Interval) && finer(s, t.Digits) {
		return dst, t.rounded()
	}
	return t.appendText(dst, s)
}

func (t *Type) appendText(dst []byte, s string) ([]byte, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return dst, errors.New("holds a NUL character, which PostgreSQL's texts cannot")
	}
	if t.MaxBytes > 0 && len(s) > t.MaxBytes {
		return dst, fmt.Errorf("has %d bytes, and the column takes %d", len(s), t.MaxBytes)
	}
	if t.MaxLength > 0 && len(s) > t.MaxLength {
		if n := utf8.RuneCountInString(s); n > t.MaxLength {
			return dst, fmt.Errorf("has %d characters, and the column takes %d", n, t.MaxLength)
		}
	}
	return append(dst, s...), nil
}

// appendDocument appends valid JSON.
func (t *Type) appendDocument(dst, raw []byte) ([]byte, error) {
	if t.Binary && bytes.Contains(raw, []byte(`\u0000`)) && holdsNUL(raw) {
		return dst, errors.New("holds a NUL character, which jsonb cannot")
	}
	return append(dst, raw...), nil
}

// holdsNUL reports whether an escape of NUL stands in the JSON; one with an even number of backslashes before it is none.
func holdsNUL(raw []byte) bool {
	for at := 0; ; {
		i := bytes.Index(raw[at:], []byte(`\u0000`))
		if i < 0 {
			return false
		}
		at += i
		slashes := 0
		for at-slashes > 0 && raw[at-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return true
		}
		at += len(`\u0000`)
	}
}

func appendHex(dst, b []byte) []byte {
	return hex.AppendEncode(append(dst, `\x`...), b)
}

// unquoted is a field that must be a string.
func unquoted(raw json.RawMessage, what string) (string, error) {
	if raw[0] != '"' {
		return "", fmt.Errorf("is %s, and must be %s in a string", told(raw), what)
	}
	return unquote(raw)
}

// told says what kind of JSON value it is, and nothing of what is in it.
func told(raw json.RawMessage) string {
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "a boolean"
	}
	return "a number"
}
