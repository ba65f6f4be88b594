package column

import (
	"fmt"
	"strings"
)

// Part is a part of a record.
type Part uint8

const (
	partUnset Part = iota
	// Field is a field of the value, which is a JSON object then.
	Field
	// Key of the record, as it is.
	Key
	// Value of the record as a whole, as it is.
	Value
	// Time is the record's timestamp; a record without one has null.
	Time
	// Header is the last header of a name.
	Header
	// Headers are all of them, as a JSON array of {"key": …, "value": …}.
	Headers
	// Generation and N are the epoch that writes the record.
	Generation
	N
)

// From says where a column's content comes from.
type From struct {
	Part Part
	// Name of the field or header.
	Name string
}

// calls are the parts that are written as a call.
var calls = map[string]Part{"key": Key, "value": Value, "time": Time, "headers": Headers, "header": Header}

// ParseFrom reads "customer", which is a field of the value, "key()", "value()", "time()", "headers()" or
// "header(name)".
func ParseFrom(text string) (From, error) {
	inner, isCall := strings.CutSuffix(text, ")")
	name, arg, opened := strings.Cut(inner, "(")
	if !isCall || !opened {
		if text == "" {
			return From{}, fmt.Errorf("say what stands in the column: the name of a field, %s", forms)
		}
		return From{Field, text}, nil
	}
	part, known := calls[name]
	if !known {
		return From{}, fmt.Errorf("%q is no part of a record; write the name of a field, %s", text, forms)
	}
	if (part == Header) != (arg != "") {
		return From{}, fmt.Errorf("%q: header needs a name, and the others none: %s", text, forms)
	}
	return From{part, arg}, nil
}

const forms = "key(), value(), time(), headers() or header(NAME)"

// UnmarshalText is ParseFrom, for settings.
func (f *From) UnmarshalText(text []byte) (err error) {
	*f, err = ParseFrom(string(text))
	return err
}

// String is what ParseFrom reads; of the epoch, which is set apart, "generation" and "epoch".
func (f From) String() string {
	switch f.Part {
	case Field:
		return f.Name
	case Header:
		return "header(" + f.Name + ")"
	case Generation:
		return "generation"
	case N:
		return "epoch"
	case partUnset, Key, Value, Time, Headers:
	}
	for name, p := range calls {
		if p == f.Part {
			return name + "()"
		}
	}
	return ""
}

// told is the part, for people.
func (f From) told() string {
	switch f.Part {
	case Field:
		return fmt.Sprintf("the field %q", f.Name)
	case Header:
		return fmt.Sprintf("the header %q", f.Name)
	case Key:
		return "the key"
	case Value:
		return "the value"
	case Time:
		return "the timestamp"
	case Headers:
		return "the headers"
	case partUnset, Generation, N:
	}
	return "the epoch"
}
