package fromspec

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
)

// Spec is what a specification says about its records and window, expressions as they are written.
type Spec struct {
	// Format of the source's values: json, bytes or string.
	Format string
	// EventTime, Where and Key are expressions; empty: the record's timestamp, all records, no key.
	EventTime, Where, Key string
	Map                   []Field
	Window                verify.Window
	Aggregates            []Field
	Disorder              time.Duration
	// Idle: silent splits hold nothing back after a while.
	Idle  bool
	OnBad verify.OnBad
	// Also are further expressions over records of the source, which sinks have: a JSON record that is no
	// object is bad where any expression looks into it.
	Also []string
}

// Field is a name and its expression.
type Field struct{ Name, Expr string }

// Program is a specification whose expressions are ready.
type Program struct {
	spec             Spec
	source           *scope
	mapped           *scope // of what Map has made; the source's scope without Map
	eventTime, where *expr
	key              *expr
	also             []*expr
	fields           []namedExpr
	aggregates       []aggregate
	reads            bool // some expression over the source looks into its JSON
	results          *scope
}

type namedExpr struct {
	name string
	*expr
}

// scope is an environment of expressions.
type scope struct{ env *cel.Env }

// expr is one expression.
type expr struct {
	program cel.Program
	tree    *ast.AST
	text    string
}

const (
	formatBytes  = "bytes"
	formatString = "string"
	// maxCost is what one evaluation may cost; beyond it is an error, in the pipeline as here.
	maxCost = 100_000
)

// sourceNames are what expressions over a record of the source may name.
func sourceNames(format string) []cel.EnvOption {
	rec := cel.DynType
	switch format {
	case formatBytes:
		rec = cel.BytesType
	case formatString:
		rec = cel.StringType
	}
	return []cel.EnvOption{
		cel.Variable("rec", rec), cel.Variable("key", cel.BytesType), cel.Variable("headers", cel.MapType(cel.StringType, cel.BytesType)),
		cel.Variable("timestamp", cel.IntType), cel.Variable("topic", cel.StringType),
		cel.Variable("partition", cel.IntType), cel.Variable("offset", cel.IntType),
	}
}

func newScope(names ...cel.EnvOption) (*scope, error) {
	env, err := cel.NewEnv(append(names,
		cel.OptionalTypes(), ext.Strings(), ext.Encoders(), ext.Math(), cel.CrossTypeNumericComparisons(true),
	)...)
	return &scope{env}, err
}

// compile makes an expression ready; an empty one is nil.
func (s *scope) compile(what, text string) (*expr, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // there is no expression, and nothing wrong with it
	}
	checked, bad := s.env.Compile(text)
	if bad != nil && bad.Err() != nil {
		return nil, fmt.Errorf("%s: %w", what, bad.Err())
	}
	return s.ready(what, text, checked)
}

func (s *scope) ready(what, text string, checked *cel.Ast) (*expr, error) {
	p, err := s.env.Program(checked, cel.CostLimit(maxCost))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return &expr{program: p, tree: checked.NativeRep(), text: text}, nil
}

// names reports whether the expression names something.
func (e *expr) names(name string) bool {
	if e == nil {
		return false
	}
	found := false
	ast.PreOrderVisit(e.tree.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		found = found || x.Kind() == ast.IdentKind && x.AsIdent() == name
	}))
	return found
}

// ident is the name that the whole expression is, or "".
func (e *expr) ident() string {
	if e != nil && e.tree.Expr().Kind() == ast.IdentKind {
		return e.tree.Expr().AsIdent()
	}
	return ""
}

func (e *expr) eval(vars map[string]any) (ref.Val, error) {
	v, _, err := e.program.Eval(vars)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.text, err)
	}
	return v, nil
}

// New makes a program. The error names every expression that does not compile.
func New(s Spec) (*Program, error) {
	p := &Program{spec: s}
	var errs []error
	var err error
	if p.source, err = newScope(sourceNames(s.Format)...); err != nil {
		return nil, err
	}
	p.mapped = p.source
	compile := func(in *scope, what, text string) *expr {
		e, err := in.compile(what, text)
		errs = append(errs, err)
		return e
	}
	p.eventTime = compile(p.source, "event_time", s.EventTime)
	p.where = compile(p.source, "where", s.Where)
	for _, text := range s.Also {
		p.also = append(p.also, compile(p.source, "a sink", text))
	}
	for _, f := range s.Map {
		p.fields = append(p.fields, namedExpr{f.Name, compile(p.source, "map."+f.Name, f.Expr)})
	}
	if len(s.Map) > 0 {
		if p.mapped, err = newScope(sourceNames("")...); err != nil {
			return nil, err
		}
	}
	p.key = compile(p.mapped, "key", s.Key)
	results := []cel.EnvOption{
		cel.Variable("key", cel.StringType), cel.Variable("window_start", cel.IntType), cel.Variable("window_end", cel.IntType), cel.Variable("update", cel.BoolType),
	}
	for _, f := range s.Aggregates {
		a, err := p.aggregate(f)
		errs = append(errs, err)
		p.aggregates = append(p.aggregates, a)
		results = append(results, cel.Variable(f.Name, cel.DynType))
	}
	if p.results, err = newScope(results...); err != nil {
		return nil, err
	}
	p.reads = p.looksInside()
	return p, errors.Join(errs...)
}

// looksInside: a JSON record is only looked into, and only then found broken, where an expression does.
func (p *Program) looksInside() bool {
	list := append([]*expr{p.eventTime, p.where}, p.also...)
	for _, f := range p.fields {
		list = append(list, f.expr)
	}
	if len(p.fields) == 0 {
		list = append(list, p.key)
		for _, a := range p.aggregates {
			list = append(list, a.args...)
		}
	}
	return slices.ContainsFunc(list, func(e *expr) bool { return e.names("rec") })
}

// Plan describes the pipeline to package verify.
func (p *Program) Plan() verify.Plan {
	out := verify.Plan{Window: p.spec.Window, Disorder: p.spec.Disorder, Idle: p.spec.Idle, OnBad: p.spec.OnBad, Read: p.read}
	for _, a := range p.aggregates {
		out.Folds = append(out.Folds, a.fold)
	}
	return out
}

// read takes a record as far as its window.
func (p *Program) read(r *stream.Record) (seen verify.Seen, err error) {
	vars, err := p.vars(r)
	if err != nil {
		return verify.Seen{}, err
	}
	// What is filtered out and has no event time moves nothing, and is not bad.
	if seen.Keep, err = p.keeps(vars); err != nil {
		return verify.Seen{}, err
	}
	seen.At, err = p.at(r, vars)
	seen.Timed = err == nil
	switch {
	case !seen.Keep:
		return seen, nil
	case err != nil:
		return verify.Seen{}, err
	}
	if vars, err = p.remap(vars); err != nil {
		return seen, err
	}
	if p.key != nil {
		v, err := p.key.eval(vars)
		if err != nil {
			return seen, err
		}
		if seen.Key, err = keyText(v); err != nil {
			return seen, fmt.Errorf("key: %w", err)
		}
	}
	for i := range p.aggregates {
		v, err := p.aggregates[i].value(vars)
		if err != nil {
			return seen, err
		}
		seen.Values = append(seen.Values, v)
	}
	return seen, nil
}

func (p *Program) keeps(vars map[string]any) (bool, error) {
	if p.where == nil {
		return true, nil
	}
	v, err := p.where.eval(vars)
	if err != nil {
		return false, err
	}
	holds, ok := v.(types.Bool)
	if !ok {
		return false, fmt.Errorf("where: a %s is neither true nor false", v.Type().TypeName())
	}
	return bool(holds), nil
}

// at is the event time.
func (p *Program) at(r *stream.Record, vars map[string]any) (int64, error) {
	if p.eventTime == nil {
		return r.Time, nil
	}
	v, err := p.eventTime.eval(vars)
	if err != nil {
		return 0, err
	}
	switch x := v.(type) {
	case types.Int:
		return int64(x), nil
	case types.Timestamp:
		return x.UnixMilli(), nil
	}
	return 0, fmt.Errorf("event_time: a %s is no time", v.Type().TypeName())
}

// remap makes the new record of Map.
func (p *Program) remap(vars map[string]any) (map[string]any, error) {
	if len(p.fields) == 0 {
		return vars, nil
	}
	made := make(map[ref.Val]ref.Val, len(p.fields))
	for _, f := range p.fields {
		v, err := f.eval(vars)
		if err != nil {
			return nil, fmt.Errorf("map.%s: %w", f.name, err)
		}
		made[types.String(f.name)] = v
	}
	out := make(map[string]any, len(vars))
	for k, v := range vars {
		out[k] = v
	}
	out["rec"] = types.NewRefValMap(types.DefaultTypeAdapter, made)
	return out, nil
}
