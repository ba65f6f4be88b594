package fromspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
	"github.com/unisink/unisink/processor/verify/fold"
)

// Sink is what a specification says about what a sink holds.
type Sink struct {
	Name string
	// Format of its values: json, bytes or string.
	Format string
	// Key and Value are expressions, Fields too; empty: the default.
	Key, Value string
	Fields     []Field
	Keeps      Keeps
}

// Keeps says what of a record a sink keeps beside its value. Stamps: one without a time is given that at which
// it is written.
type Keeps struct{ Key, Headers, Time, Stamps bool }

// ErrAnonymous says that the results of a sink do not say of which key and window they are.
var ErrAnonymous = errors.New("its results do not say of which key and window they are, so they can't be compared")

// The names of a result that are no aggregates.
const (
	nameKey    = "key"
	nameStart  = "window_start"
	nameEnd    = "window_end"
	nameUpdate = "update"
)

// target reads and compares the results of one sink.
type target struct {
	p     *Program
	keeps bool  // the sink keeps keys
	key   *expr // nil: the key as it is
	byKey bool  // the record's key is that of the result
	// plain are the fields that hold a key, a bound or an aggregate as it is, by that name.
	plain map[string]string
	// defaults: fields are those that a result has by default, where an update that is none is left out.
	defaults bool
	computed []namedExpr
	needs    []int
}

// Target describes a sink of results. The error is ErrAnonymous, or says which expression does not compile.
func (p *Program) Target(s Sink, reader verify.OutputReader) (verify.Target, error) {
	t := &target{p: p, keeps: s.Keeps.Key, plain: map[string]string{}}
	if s.Value != "" || s.Format == formatBytes || s.Format == formatString {
		return verify.Target{}, ErrAnonymous
	}
	var err error
	if t.key, err = p.results.compile("key", s.Key); err != nil {
		return verify.Target{}, err
	}
	t.byKey = t.keeps && (t.key == nil || t.key.ident() == nameKey)
	if t.defaults = len(s.Fields) == 0; t.defaults {
		for _, name := range append([]string{nameKey, nameStart, nameEnd, nameUpdate}, p.names()...) {
			t.plain[name] = name
		}
	}
	for _, f := range s.Fields {
		e, err := p.results.compile("fields."+f.Name, f.Expr)
		if err != nil {
			return verify.Target{}, err
		}
		if name := e.ident(); name != "" && t.plain[name] == "" {
			t.plain[name] = f.Name
		} else {
			t.computed = append(t.computed, namedExpr{f.Name, e})
		}
	}
	if t.plain[nameKey] == "" && !t.byKey || t.plain[nameStart] == "" && t.plain[nameEnd] == "" {
		return verify.Target{}, ErrAnonymous
	}
	for i, name := range p.names() {
		if t.key.names(name) || slices.ContainsFunc(t.computed, func(f namedExpr) bool { return f.names(name) }) {
			t.needs = append(t.needs, i)
		}
	}
	return verify.Target{Name: s.Name, Reader: reader, Find: t.find}, nil
}

func (p *Program) names() []string {
	out := make([]string, len(p.aggregates))
	for i, a := range p.aggregates {
		out[i] = a.name
	}
	return out
}

// find reads a result.
func (t *target) find(o *verify.Output) (verify.Found, error) {
	f := verify.Found{Key: string(o.Key), NoStart: true, NoEnd: true, NoUpdate: true, Values: map[int]any{}, Needs: t.needs}
	fields, err := fold.Object(o.Value)
	if err != nil {
		return f, err
	}
	for name, in := range t.plain {
		v, there := fields[in]
		if !there && !(t.defaults && name == nameUpdate) {
			return f, fmt.Errorf("the field %q is not there", in)
		}
		if err := t.take(&f, name, v); err != nil {
			return f, fmt.Errorf("the field %q: %w", in, err)
		}
	}
	if n := len(t.plain); t.defaults && (len(fields) > n || len(fields) == n && fields[nameUpdate] == nil) {
		return f, errors.New("it has a field that results have not")
	}
	key := string(o.Key)
	f.Derived = func(of string, start, end int64, values []any) string {
		return t.compare(&f, fields, key, of, start, end, values)
	}
	return f, nil
}

// take takes a field that is part of a result as it is.
func (t *target) take(f *verify.Found, name string, v any) (err error) {
	switch name {
	case nameKey:
		text, ok := v.(string)
		if !ok {
			return errors.New("the key is no text")
		}
		f.Key = text
	case nameStart:
		f.NoStart = false
		f.Start, err = integer(v)
	case nameEnd:
		f.NoEnd = false
		f.End, err = integer(v)
	case nameUpdate:
		f.NoUpdate = false
		f.Update = v == true
	default:
		f.Values[slices.Index(t.p.names(), name)] = v
	}
	return err
}

func integer(v any) (int64, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, errors.New("it is no integer")
	}
	return n.Int64()
}

// compare computes what is computed of a result, and returns how it differs.
func (t *target) compare(f *verify.Found, fields map[string]any, recordKey, key string, start, end int64, values []any) string {
	vars := map[string]any{
		nameKey: types.String(key), nameStart: types.Int(start), nameEnd: types.Int(end), nameUpdate: types.Bool(f.Update),
	}
	for i, name := range t.p.names() {
		if v, ok := lift(values[i]); ok {
			vars[name] = v
		}
	}
	if t.keeps {
		if why := t.compareKey(vars, recordKey, key); why != "" {
			return why
		}
	}
	for _, c := range t.computed {
		v, err := c.eval(vars)
		if err != nil {
			return fmt.Sprintf("%s can't be computed: %s", c.name, err)
		}
		is, there := fields[c.name]
		if o, optional := v.(*types.Optional); optional && !o.HasValue() {
			if there {
				return fmt.Sprintf("%s is there, and must not be", c.name)
			}
			continue
		}
		must, err := toJSON(v)
		if err != nil {
			return fmt.Sprintf("%s can't be computed: %s", c.name, err)
		}
		if !there || !alike(is, must) {
			return fmt.Sprintf("%s is %s, and must be %s", c.name, shown(is), shown(must))
		}
	}
	return ""
}

func (t *target) compareKey(vars map[string]any, is, key string) string {
	must := key
	if t.key != nil {
		v, err := t.key.eval(vars)
		if err == nil {
			must, err = keyText(v)
		}
		if err != nil {
			return "its key can't be computed: " + err.Error()
		}
	}
	if is != must {
		return fmt.Sprintf("its key is %q, and must be %q", is, must)
	}
	return ""
}

// alike compares JSON values; doubles may differ by what rounding makes of them.
func alike(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		if !ok {
			return false
		}
		r, ok1 := new(big.Rat).SetString(string(x))
		s, ok2 := new(big.Rat).SetString(string(y))
		if ok1 && ok2 && r.Cmp(s) == 0 {
			return true
		}
		f, err1 := x.Float64()
		g, err2 := y.Float64()
		whole := func(n json.Number) bool { _, err := strconv.ParseInt(string(n), 10, 64); return err == nil }
		return err1 == nil && err2 == nil && !(whole(x) && whole(y)) && math.Abs(f-g) <= 1e-9*math.Max(math.Abs(f), math.Abs(g))
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, alike)
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if w, there := y[k]; !there || !alike(v, w) {
				return false
			}
		}
		return true
	}
	return a == b
}

func shown(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// Role says what records a sink of records holds.
type Role uint8

// The roles.
const (
	Passed Role = iota + 1
	Late
	Dead
)

// Copies describes a sink of records.
func (p *Program) Copies(s Sink, role Role, reader verify.OutputReader) (verify.Copies, error) {
	c := verify.Copies{Name: s.Name, Reader: reader, Key: s.Keeps.Key, Headers: s.Keeps.Headers, Time: s.Keeps.Time, Stamps: s.Keeps.Stamps}
	scope, mapped := p.source, false
	if role == Passed {
		scope, mapped = p.mapped, len(p.fields) > 0
	}
	if role == Dead { // as they were
		c.Form = s.Keeps.form(nil)
		return c, nil
	}
	m := &maker{p: p, mapped: mapped, format: s.Format}
	key, err := scope.compile("key", s.Key)
	if err != nil {
		return c, err
	}
	if m.key = key; key == nil && role == Passed {
		m.key = p.key
	}
	if m.value, err = scope.compile("value", s.Value); err != nil {
		return c, err
	}
	for _, f := range s.Fields {
		e, err := scope.compile("fields."+f.Name, f.Expr)
		if err != nil {
			return c, err
		}
		m.fields = append(m.fields, namedExpr{f.Name, e})
	}
	made := m.value != nil || len(m.fields) > 0 || mapped
	if made || m.key != nil {
		c.Want = m.make
	}
	if made && s.Format != formatBytes && s.Format != formatString {
		c.Form = fold.FormJSON
	}
	c.Form = s.Keeps.form(c.Form)
	return c, nil
}

// form is that of a line of a file, where only values are kept: a tombstone is null there.
func (k Keeps) form(of func([]byte) []byte) func([]byte) []byte {
	if k.Key || k.Headers {
		return of
	}
	return func(value []byte) []byte {
		switch {
		case value == nil:
			return []byte("null")
		case of != nil:
			return of(value)
		}
		return value
	}
}

// maker computes what a sink must hold of a record.
type maker struct {
	p          *Program
	mapped     bool
	format     string
	key, value *expr
	fields     []namedExpr
}

func (m *maker) make(r *stream.Record) (stream.Record, error) {
	out := *r
	vars, err := m.p.vars(r)
	if err == nil && m.mapped {
		vars, err = m.p.remap(vars)
	}
	if err != nil {
		return out, err
	}
	if m.key != nil {
		v, err := m.key.eval(vars)
		if err != nil {
			return out, err
		}
		text, err := keyText(v)
		if err != nil {
			return out, err
		}
		out.Key = []byte(text)
	}
	switch {
	case m.value != nil:
		v, err := m.value.eval(vars)
		if err != nil {
			return out, err
		}
		out.Value, err = m.encode(v)
		return out, err
	case len(m.fields) > 0:
		made := make(map[ref.Val]ref.Val, len(m.fields))
		for _, f := range m.fields {
			v, err := f.eval(vars)
			if err != nil {
				return out, err
			}
			made[types.String(f.name)] = v
		}
		out.Value, err = m.encode(types.NewRefValMap(types.DefaultTypeAdapter, made))
	case m.mapped:
		out.Value, err = m.encode(vars["rec"].(ref.Val))
	}
	return out, err
}

// encode writes a value in the sink's format. Null is a tombstone, unless it is JSON.
func (m *maker) encode(v ref.Val) ([]byte, error) {
	switch m.format {
	case formatBytes, formatString:
		if o, optional := v.(*types.Optional); optional {
			if !o.HasValue() {
				return nil, nil
			}
			v = o.GetValue()
		}
		switch x := v.(type) {
		case types.Null:
			return nil, nil
		case types.String:
			return []byte(x), nil
		case types.Bytes:
			return slices.Clone([]byte(x)), nil
		}
		return nil, fmt.Errorf("a %s is neither text nor bytes", v.Type().TypeName())
	}
	x, err := toJSON(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(x)
}
