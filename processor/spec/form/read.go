package form

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Reader takes nodes apart and gathers what is wrong with them.
type Reader struct {
	File     string
	Mistakes Mistakes
}

// Wrong adds a mistake.
func (r *Reader) Wrong(at Pos, path, format string, args ...any) {
	r.Mistakes = append(r.Mistakes, Mistake{File: r.File, At: at, Path: path, Text: fmt.Sprintf(format, args...)})
}

// Fields are those of a mapping that are known. Its place is unknown if it is none, which was told.
type Fields struct {
	r    *Reader
	Path string
	At   Pos
	Has  map[string]*Node
	// named are the fields that are there, empty ones too.
	named map[string]bool
}

// Fields takes a mapping apart. What it has besides the known fields is told as a mistake, or handed to
// extra if that is given and takes it.
func (r *Reader) Fields(n *Node, path string, known []string, extra func(key, value *Node) bool) Fields {
	f := Fields{r: r, Path: path, Has: map[string]*Node{}, named: map[string]bool{}}
	if n == nil {
		return f
	}
	if n.Kind != Mapping {
		r.Wrong(n.At, path, "a mapping belongs here, and this is %s; it has the fields %s", n.Kind, strings.Join(known, ", "))
		return f
	}
	f.At = n.At
	for i, k := range n.Keys {
		f.named[k.Value] = true
		switch v := n.Items[i]; {
		case slices.Contains(known, k.Value) && v.Kind == Null:
			r.Wrong(k.At, Under(path, k.Value), "it is empty; give it a value or leave it out")
		case slices.Contains(known, k.Value):
			f.Has[k.Value] = v
		case extra != nil && extra(k, v):
		default:
			r.Wrong(k.At, path, "unknown field %q%s", k.Value, Meant(k.Value, known))
		}
	}
	return f
}

// Under is the path of a field within another.
func Under(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Scalar is the text of a field; ok is false when it is not there or no single value.
func (f Fields) Scalar(name string) (*Node, bool) {
	n := f.Has[name]
	if n == nil {
		return nil, false
	}
	if n.Kind != Scalar {
		f.r.Wrong(n.At, Under(f.Path, name), "a single value belongs here, and this is %s", n.Kind)
		return nil, false
	}
	if strings.TrimSpace(n.Value) == "" {
		f.r.Wrong(n.At, Under(f.Path, name), "it is empty; give it a value or leave it out")
		return nil, false
	}
	return n, true
}

// Text is a field that need not be there.
func (f Fields) Text(name string) Text {
	if n, ok := f.Scalar(name); ok {
		return n.Text()
	}
	return Text{}
}

// Need is text that must be there.
func (f Fields) Need(name, what string) Text {
	f.Miss(name, what)
	return f.Text(name)
}

// Miss tells that a field is not there, unless it is there and empty or the whole mapping is not, which was told.
func (f Fields) Miss(name, what string) {
	if f.At != (Pos{}) && !f.named[name] {
		f.r.Wrong(f.At, f.Path, "the field %q is missing: %s", name, what)
	}
}

// IdentifierPattern is what expressions can name.
var IdentifierPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// NamePattern is that of our names.
var NamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// Name checks a name of ours; an empty one was told or is a default.
func (r *Reader) Name(t Text, path string, longest int) {
	if t.Value != "" && (!NamePattern.MatchString(t.Value) || len(t.Value) > longest) {
		r.Wrong(t.At, path, "%q is no name: use letters, digits, '-' and '_', at most %d, and begin with a letter or digit", t.Value, longest)
	}
}

// Duration is a time of whole milliseconds, at least least; def if it is not there.
func (f Fields) Duration(name string, def, least time.Duration) time.Duration {
	n, ok := f.Scalar(name)
	if !ok {
		return def
	}
	path := Under(f.Path, name)
	d, err := time.ParseDuration(n.Value)
	switch {
	case err != nil:
		if _, plain := strconv.ParseFloat(n.Value, 64); plain == nil {
			f.r.Wrong(n.At, path, "%q has no unit; write it as in 500ms, 1s or 5m", n.Value)
		} else {
			f.r.Wrong(n.At, path, "%q is no duration; write it as in 500ms, 1s or 5m", n.Value)
		}
		return def
	case d < 0:
		f.r.Wrong(n.At, path, "%s is negative; give at least %s", n.Value, least)
	case d < least:
		f.r.Wrong(n.At, path, "%s is too short; give at least %s", n.Value, least)
	case d%time.Millisecond != 0:
		f.r.Wrong(n.At, path, "%s is no whole number of milliseconds", n.Value)
	case d > maxDuration:
		f.r.Wrong(n.At, path, "%s is too long; give at most %s", n.Value, maxDuration)
	}
	return d
}

// maxDuration is a hundred years; sums of a few still fit into a time.Duration.
const maxDuration = 876_600 * time.Hour

// List reads named expressions in the order of the file.
func (f Fields) List(name string) []Field {
	n := f.Has[name]
	path := Under(f.Path, name)
	switch {
	case n == nil:
		return nil
	case n.Kind != Mapping:
		f.r.Wrong(n.At, path, "names with their expressions belong here, and this is %s; write {name: expression}", n.Kind)
		return nil
	case len(n.Keys) == 0:
		f.r.Wrong(n.At, path, "it is empty; name at least one field or leave it out")
	}
	var out []Field
	for i, k := range n.Keys {
		v := n.Items[i]
		if v.Kind != Scalar || strings.TrimSpace(v.Value) == "" {
			hint := ""
			if !IdentifierPattern.MatchString(k.Value) {
				hint = "; within { } an expression with a comma must stand in quotes"
			}
			f.r.Wrong(k.At, Under(path, k.Value), "an expression belongs here, and this is %s%s", v.Kind, hint)
			continue
		}
		out = append(out, Field{Name: k.Value, Expr: v.Text()})
	}
	return out
}
