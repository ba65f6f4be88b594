package form

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Decode fills out, a pointer to a struct, with the settings. A field is named by its tag
// `yaml:"name"`, else by its own name in snake case; `yaml:"-"` leaves it out and
// `yaml:"name,required"` needs it. A tag `enum:"a,b"` lists the texts that are allowed, and `doc:"…"` is for
// [SchemaOf]. What is not in the file keeps the value it has in out.
//
// Fields may be strings, booleans, numbers, [time.Duration], [Secret], what has UnmarshalText, and
// structs, pointers, slices and maps by name of these. A slice of strings may be given as one value
// with commas. References ${NAME} and ${NAME:-default} in values are replaced by the environment's.
//
// The error is [Mistakes]: every unknown field, missing one and value that does not fit, with its place.
func (s Settings) Decode(out any) error {
	v := reflect.ValueOf(out)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("spec: Decode needs a pointer to a struct, not %T", out)
	}
	d := decoder{Reader: Reader{File: s.File}, lookup: s.lookup}
	n := s.node
	if n == nil {
		n = &Node{Kind: Mapping, At: s.At}
	}
	d.structure(n, s.path, v.Elem())
	return d.Mistakes.Err()
}

// Mistake is something wrong with one of the settings, at its place: a topic that is not allowed, two
// settings that exclude each other. Field is its name, "tls.ca" within another; empty: the settings as a whole.
func (s Settings) Mistake(field, format string, args ...any) error {
	m := Mistake{File: s.File, At: s.At, Path: s.path, Text: fmt.Sprintf(format, args...)}
	at := s.node
	for name := range strings.SplitSeq(field, ".") {
		if field == "" {
			break
		}
		m.Path = Under(m.Path, name)
		var next *Node
		if at != nil {
			for i, k := range at.Keys {
				if k.Value == name {
					m.At, next = k.At, at.Items[i]
				}
			}
		}
		at = next
	}
	return Mistakes{m}
}

type decoder struct {
	Reader
	lookup func(string) (string, bool)
}

// setting is a field of a struct as the file names it.
type setting struct {
	name     string
	index    []int
	required bool
	doc      string
	enum     []string // what is allowed; none: anything
}

// settingsOf lists the fields of a struct; those of embedded structs stand with the others.
func settingsOf(t reflect.Type) []setting {
	var out []setting
	for _, f := range reflect.VisibleFields(t) {
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && f.Type.Kind() == reflect.Struct {
			continue
		}
		if name == "" {
			name = snake(f.Name)
		}
		one := setting{name: name, index: f.Index, required: opts == "required", doc: f.Tag.Get("doc")}
		if enum := f.Tag.Get("enum"); enum != "" {
			one.enum = strings.Split(enum, ",")
		}
		out = append(out, one)
	}
	return out
}

// snake writes MaxPollBytes as max_poll_bytes and TLSName as tls_name.
func snake(name string) string {
	var b strings.Builder
	upper := func(i int) bool { return i >= 0 && i < len(name) && name[i] >= 'A' && name[i] <= 'Z' }
	for i := range len(name) {
		if upper(i) && i > 0 && (!upper(i-1) || i+1 < len(name) && !upper(i+1)) {
			b.WriteByte('_')
		}
		b.WriteByte(name[i])
	}
	return strings.ToLower(b.String())
}

func (d *decoder) structure(n *Node, path string, out reflect.Value) {
	settings := settingsOf(out.Type())
	known := make([]string, len(settings))
	for i, s := range settings {
		known[i] = s.name
	}
	if n.Kind != Mapping {
		d.Wrong(n.At, path, "a mapping belongs here, and this is %s; it has the fields %s", n.Kind, strings.Join(known, ", "))
		return
	}
	f := d.Fields(n, path, known, nil)
	for _, s := range settings {
		v := f.Has[s.name]
		if v == nil {
			if s.required {
				f.Miss(s.name, "the adapter needs it")
			}
			continue
		}
		field, err := out.FieldByIndexErr(s.index)
		if err != nil {
			d.Wrong(v.At, Under(path, s.name), "the program cannot take this setting: %s", err)
			continue
		}
		d.value(v, Under(path, s.name), field)
		if len(s.enum) > 0 && field.Kind() == reflect.String && field.Len() > 0 && !slices.Contains(s.enum, field.String()) {
			d.Wrong(v.At, Under(path, s.name), "%q is none of %s", field.String(), strings.Join(s.enum, ", "))
		}
	}
}

var (
	secretType   = reflect.TypeFor[Secret]()
	durationType = reflect.TypeFor[time.Duration]()
)

func (d *decoder) value(n *Node, path string, out reflect.Value) {
	switch {
	case out.Type() == secretType:
		s, err := secretFrom(n, d.lookup)
		if err != nil {
			d.Wrong(n.At, path, "%s", err)
		}
		out.Set(reflect.ValueOf(s))
		return
	case out.Kind() == reflect.Pointer:
		out.Set(reflect.New(out.Type().Elem()))
		d.value(n, path, out.Elem())
		return
	}
	if u, ok := out.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if text, ok := d.scalar(n, path); ok {
			if err := u.UnmarshalText([]byte(text)); err != nil {
				d.Wrong(n.At, path, "%s", err)
			}
		}
		return
	}
	switch out.Kind() {
	case reflect.Struct:
		d.structure(n, path, out)
	case reflect.Slice:
		d.slice(n, path, out)
	case reflect.Map:
		d.table(n, path, out)
	default:
		if text, ok := d.scalar(n, path); ok {
			if err := setScalar(out, text); err != nil {
				d.Wrong(n.At, path, "%s", err)
			}
		}
	}
}

// scalar is a single value with its references replaced.
func (d *decoder) scalar(n *Node, path string) (string, bool) {
	if n.Kind == Mapping && len(n.Keys) == 1 && (n.Keys[0].Value == "env" || n.Keys[0].Value == "file") {
		d.Wrong(n.At, path, "this setting is no secret; write the value itself, or \"${NAME}\"")
		return "", false
	}
	if n.Kind != Scalar {
		d.Wrong(n.At, path, "a single value belongs here, and this is %s", n.Kind)
		return "", false
	}
	text, err := Expand(n.Value, d.lookup)
	if err != nil {
		d.Wrong(n.At, path, "%s", err)
		return "", false
	}
	return text, true
}

func (d *decoder) slice(n *Node, path string, out reflect.Value) {
	if n.Kind == Scalar && out.Type().Elem().Kind() == reflect.String {
		text, ok := d.scalar(n, path)
		if !ok {
			return
		}
		list := reflect.MakeSlice(out.Type(), 0, 1)
		for part := range strings.SplitSeq(text, ",") {
			list = reflect.Append(list, reflect.ValueOf(strings.TrimSpace(part)).Convert(out.Type().Elem()))
		}
		out.Set(list)
		return
	}
	if n.Kind != Sequence {
		d.Wrong(n.At, path, "a list belongs here, and this is %s", n.Kind)
		return
	}
	list := reflect.MakeSlice(out.Type(), len(n.Items), len(n.Items))
	for i, item := range n.Items {
		d.value(item, fmt.Sprintf("%s[%d]", path, i), list.Index(i))
	}
	out.Set(list)
}

func (d *decoder) table(n *Node, path string, out reflect.Value) {
	if n.Kind != Mapping || out.Type().Key().Kind() != reflect.String {
		d.Wrong(n.At, path, "names with values belong here, and this is %s", n.Kind)
		return
	}
	table := reflect.MakeMapWithSize(out.Type(), len(n.Keys))
	for i, k := range n.Keys {
		v := reflect.New(out.Type().Elem()).Elem()
		d.value(n.Items[i], Under(path, k.Value), v)
		table.SetMapIndex(reflect.ValueOf(k.Value).Convert(out.Type().Key()), v)
	}
	out.Set(table)
}

func setScalar(out reflect.Value, text string) error {
	if out.Type() == durationType {
		v, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is no duration; write it as in 500ms, 1s or 5m", text)
		}
		out.SetInt(int64(v))
		return nil
	}
	switch out.Kind() {
	case reflect.String:
		out.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		out.SetBool(text == "true")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v, err := strconv.ParseInt(text, 10, out.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is no whole number that fits here", text)
		}
		out.SetInt(v)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v, err := strconv.ParseUint(text, 10, out.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is no whole number of at least 0 that fits here", text)
		}
		out.SetUint(v)
	case reflect.Float32, reflect.Float64:
		v, err := strconv.ParseFloat(text, out.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is no number", text)
		}
		out.SetFloat(v)
	default:
		return fmt.Errorf("a setting cannot be a %s", out.Type())
	}
	return nil
}
