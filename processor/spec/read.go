package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reader takes nodes apart and gathers what is wrong with them.
type reader struct {
	file     string
	mistakes Mistakes
}

func (r *reader) wrong(at Pos, path, format string, args ...any) {
	r.mistakes = append(r.mistakes, Mistake{File: r.file, At: at, Path: path, Text: fmt.Sprintf(format, args...)})
}

// fields are those of a mapping that are known. Its place is unknown if it is none, which was told.
type fields struct {
	r    *reader
	path string
	at   Pos
	has  map[string]*node
	// named are the fields that are there, empty ones too.
	named map[string]bool
}

// fields takes a mapping apart. What it has besides the known fields is told as a mistake, or handed to
// extra if that is given and takes it.
func (r *reader) fields(n *node, path string, known []string, extra func(key, value *node) bool) fields {
	f := fields{r: r, path: path, has: map[string]*node{}, named: map[string]bool{}}
	if n == nil {
		return f
	}
	if n.kind != mapping {
		r.wrong(n.at, path, "a mapping belongs here, and this is %s; it has the fields %s", n.kind, strings.Join(known, ", "))
		return f
	}
	f.at = n.at
	for i, k := range n.keys {
		f.named[k.value] = true
		switch v := n.items[i]; {
		case slices.Contains(known, k.value) && v.kind == null:
			r.wrong(k.at, under(path, k.value), "it is empty; give it a value or leave it out")
		case slices.Contains(known, k.value):
			f.has[k.value] = v
		case extra != nil && extra(k, v):
		default:
			r.wrong(k.at, path, "unknown field %q%s", k.value, meant(k.value, known))
		}
	}
	return f
}

func under(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// scalar is the text of a field; ok is false when it is not there or no single value.
func (f fields) scalar(name string) (*node, bool) {
	n := f.has[name]
	if n == nil {
		return nil, false
	}
	if n.kind != scalar {
		f.r.wrong(n.at, under(f.path, name), "a single value belongs here, and this is %s", n.kind)
		return nil, false
	}
	if strings.TrimSpace(n.value) == "" {
		f.r.wrong(n.at, under(f.path, name), "it is empty; give it a value or leave it out")
		return nil, false
	}
	return n, true
}

func (f fields) text(name string) Text {
	if n, ok := f.scalar(name); ok {
		return n.text()
	}
	return Text{}
}

// need is text that must be there.
func (f fields) need(name, what string) Text {
	f.miss(name, what)
	return f.text(name)
}

// miss tells that a field is not there, unless it is there and empty or the whole mapping is not, which was told.
func (f fields) miss(name, what string) {
	if f.at != (Pos{}) && !f.named[name] {
		f.r.wrong(f.at, f.path, "the field %q is missing: %s", name, what)
	}
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// name checks a name of ours; an empty one was told or is a default.
func (r *reader) name(t Text, path string, longest int) {
	if t.Value != "" && (!namePattern.MatchString(t.Value) || len(t.Value) > longest) {
		r.wrong(t.At, path, "%q is no name: use letters, digits, '-' and '_', at most %d, and begin with a letter or digit", t.Value, longest)
	}
}

// duration is a time of whole milliseconds, at least least; def if it is not there.
func (f fields) duration(name string, def, least time.Duration) time.Duration {
	n, ok := f.scalar(name)
	if !ok {
		return def
	}
	path := under(f.path, name)
	d, err := time.ParseDuration(n.value)
	switch {
	case err != nil:
		if _, plain := strconv.ParseFloat(n.value, 64); plain == nil {
			f.r.wrong(n.at, path, "%q has no unit; write it as in 500ms, 1s or 5m", n.value)
		} else {
			f.r.wrong(n.at, path, "%q is no duration; write it as in 500ms, 1s or 5m", n.value)
		}
		return def
	case d < 0:
		f.r.wrong(n.at, path, "%s is negative; give at least %s", n.value, least)
	case d < least:
		f.r.wrong(n.at, path, "%s is too short; give at least %s", n.value, least)
	case d%time.Millisecond != 0:
		f.r.wrong(n.at, path, "%s is no whole number of milliseconds", n.value)
	case d > maxDuration:
		f.r.wrong(n.at, path, "%s is too long; give at most %s", n.value, maxDuration)
	}
	return d
}

// maxDuration is a hundred years; sums of a few still fit into a time.Duration.
const maxDuration = 876_600 * time.Hour

// list reads named expressions in the order of the file.
func (f fields) list(name string) []Field {
	n := f.has[name]
	path := under(f.path, name)
	switch {
	case n == nil:
		return nil
	case n.kind != mapping:
		f.r.wrong(n.at, path, "names with their expressions belong here, and this is %s; write {name: expression}", n.kind)
		return nil
	case len(n.keys) == 0:
		f.r.wrong(n.at, path, "it is empty; name at least one field or leave it out")
	}
	var out []Field
	for i, k := range n.keys {
		v := n.items[i]
		if v.kind != scalar || strings.TrimSpace(v.value) == "" {
			hint := ""
			if !identifierPattern.MatchString(k.value) {
				hint = "; within { } an expression with a comma must stand in quotes"
			}
			f.r.wrong(k.at, under(path, k.value), "an expression belongs here, and this is %s%s", v.kind, hint)
			continue
		}
		out = append(out, Field{Name: k.value, Expr: v.text()})
	}
	return out
}
