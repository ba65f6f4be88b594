package expr

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// run evaluates an expression or a part of one. What it returns is in the frame, or a constant.
type run func(f *Frame) (*Value, error)

// direct turns a checked expression into closures; nil if something in it is left to CEL. The closures do
// what CEL's interpreter does with values whose types it learns when it runs.
func (s *Scope) direct(e ast.Expr) run {
	switch e.Kind() {
	case ast.LiteralKind:
		return literal(e)
	case ast.IdentKind:
		return s.ident(e.AsIdent())
	case ast.SelectKind:
		return s.selection(e)
	case ast.CallKind:
		return s.call(e.AsCall())
	case ast.ListKind, ast.MapKind, ast.StructKind, ast.ComprehensionKind, ast.UnspecifiedExprKind:
	}
	return nil
}

func (s *Scope) temp() int {
	s.temps++
	return s.temps - 1
}

func literal(e ast.Expr) run {
	v := new(Value)
	if v.setRef(e.AsLiteral()); v.Kind == Other {
		return nil
	}
	return func(*Frame) (*Value, error) { return v, nil }
}

func (s *Scope) ident(name string) run {
	if s.rec == recNone {
		if i := s.column(name); i >= 0 {
			return whole(i, name)
		}
		return nil
	}
	if name == "rec" && (s.rec == recBytes || s.rec == recString) {
		return whole(s.slot(slot{kind: slotValue}), name)
	}
	if kind, ok := sourceNames[name]; ok {
		return whole(s.slot(slot{kind: kind}), name)
	}
	return nil
}

// whole reads a slot that always has a value, though it may be a broken one.
func whole(i int, name string) run {
	return func(f *Frame) (*Value, error) {
		v := &f.slots[i]
		if v.Kind >= Broken {
			return nil, fmt.Errorf("%s: %w", name, v.ref.(*types.Err))
		}
		return v, nil
	}
}

// path takes apart rec.a.b and rec["a"].b; ok is false for anything else.
func path(e ast.Expr) (names []string, ok bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return nil, e.AsIdent() == "rec"
	case ast.SelectKind:
		sel := e.AsSelect()
		names, ok = path(sel.Operand())
		return append(names, sel.FieldName()), ok && !sel.IsTestOnly()
	case ast.CallKind:
		c := e.AsCall()
		if c.FunctionName() != operators.Index || len(c.Args()) != 2 || c.Args()[1].Kind() != ast.LiteralKind {
			return nil, false
		}
		name, text := c.Args()[1].AsLiteral().(types.String)
		names, ok = path(c.Args()[0])
		return append(names, string(name)), ok && text
	case ast.LiteralKind, ast.ListKind, ast.MapKind, ast.StructKind, ast.ComprehensionKind, ast.UnspecifiedExprKind:
	}
	return nil, false
}

func (s *Scope) selection(e ast.Expr) run {
	sel := e.AsSelect()
	if sel.Operand().Kind() == ast.IdentKind && sel.Operand().AsIdent() == "headers" && s.rec != recNone {
		return s.header(sel.FieldName(), sel.IsTestOnly())
	}
	if !sel.IsTestOnly() {
		names, ok := path(e)
		if !ok {
			return nil
		}
		return s.field(names)
	}
	names, ok := path(sel.Operand())
	if !ok {
		return nil
	}
	return s.has(append(names, sel.FieldName()))
}

// field reads a field; one that is missing is an error.
func (s *Scope) field(names []string) run {
	switch {
	case s.rec == recMapped && len(names) == 1:
		if i := s.column(names[0]); i >= 0 {
			return whole(i, "rec."+names[0])
		}
		return nil
	case s.rec != recJSON:
		return nil
	}
	i, name := s.slot(slot{kind: slotField, path: names}), "rec."+strings.Join(names, ".")
	missing := fmt.Errorf("the record has no field %s", name)
	return func(f *Frame) (*Value, error) {
		v := &f.slots[i]
		switch v.Kind {
		case Missing:
			return nil, missing
		case Broken:
			return nil, fmt.Errorf("%s: %w", name, v.ref.(*types.Err))
		case Null, Bool, Int, Uint, Double, String, Bytes, JSON, Other:
		}
		return v, nil
	}
}

var yes, no = truth(true), truth(false)

func truth(b bool) *Value {
	v := new(Value)
	v.SetBool(b)
	return v
}

func boolean(b bool) *Value {
	if b {
		return yes
	}
	return no
}

// has tells whether a field is there, usable or not. That what it is in is missing is an error, and that it
// is a list too.
func (s *Scope) has(names []string) run {
	if s.rec != recJSON {
		return nil
	}
	i := s.slot(slot{kind: slotField, path: names})
	there := func(f *Frame) (*Value, error) { return boolean(f.slots[i].Kind != Missing), nil }
	if len(names) == 1 {
		return there
	}
	parent := s.field(names[:len(names)-1])
	return func(f *Frame) (*Value, error) {
		p, err := parent(f)
		if err != nil {
			return nil, err
		}
		if p.Kind == JSON && p.Data[0] == '[' {
			return nil, fmt.Errorf("rec.%s is a list, which has no fields", strings.Join(names[:len(names)-1], "."))
		}
		return there(f)
	}
}

// header reads a header; of several with one name the last.
func (s *Scope) header(name string, test bool) run {
	t := s.temp()
	return func(f *Frame) (*Value, error) {
		for i := len(f.in.Headers) - 1; i >= 0; i-- {
			if h := &f.in.Headers[i]; h.Key == name {
				if test {
					return yes, nil
				}
				f.temps[t].SetData(Bytes, h.Value)
				return &f.temps[t], nil
			}
		}
		if test {
			return no, nil
		}
		return nil, fmt.Errorf("the record has no header %q", name)
	}
}

func (s *Scope) call(c ast.CallExpr) run {
	if c.FunctionName() == operators.Index {
		return s.index(c)
	}
	var args []ast.Expr
	if c.IsMemberFunction() {
		args = append(args, c.Target())
	}
	args = append(args, c.Args()...)
	op, ok := operations[operation{c.FunctionName(), len(args), c.IsMemberFunction()}]
	switch {
	case c.FunctionName() == operators.In && len(args) == 2:
		return s.in(args[0], args[1])
	case c.FunctionName() == operators.LogicalAnd, c.FunctionName() == operators.LogicalOr:
		return s.logic(args, c.FunctionName() == operators.LogicalOr)
	case !ok && (c.FunctionName() != operators.Conditional || len(args) != 3):
		return nil
	}
	runs := make([]run, len(args))
	for i, a := range args {
		if runs[i] = s.direct(a); runs[i] == nil {
			return nil
		}
	}
	if !ok {
		return conditional(runs[0], runs[1], runs[2])
	}
	t := s.temp()
	if op.one != nil {
		a := runs[0]
		return func(f *Frame) (*Value, error) {
			x, err := a(f)
			if err != nil {
				return nil, err
			}
			return op.one(x, &f.temps[t])
		}
	}
	a, b := runs[0], runs[1]
	return func(f *Frame) (*Value, error) {
		x, err := a(f)
		if err != nil {
			return nil, err
		}
		y, err := b(f)
		if err != nil {
			return nil, err
		}
		return op.two(x, y, &f.temps[t])
	}
}

// index is rec["a"] and headers["a"].
func (s *Scope) index(c ast.CallExpr) run {
	of, by := c.Args()[0], c.Args()[1]
	if by.Kind() != ast.LiteralKind {
		return nil
	}
	name, text := by.AsLiteral().(types.String)
	if !text {
		return nil
	}
	if of.Kind() == ast.IdentKind && of.AsIdent() == "headers" && s.rec != recNone {
		return s.header(string(name), false)
	}
	if names, ok := path(of); ok {
		return s.field(append(names, string(name)))
	}
	return nil
}

var errNotBool = errors.New("no boolean where one is needed")

// logic is && and ||: an error counts only if the other terms do not settle the matter.
func (s *Scope) logic(args []ast.Expr, settles bool) run {
	terms := make([]run, len(args))
	for i, a := range args {
		if terms[i] = s.direct(a); terms[i] == nil {
			return nil
		}
	}
	return func(f *Frame) (*Value, error) {
		var first error
		for _, t := range terms {
			v, err := t(f)
			switch {
			case err != nil:
			case v.Kind != Bool:
				err = fmt.Errorf("%s: %w", v.Describe(), errNotBool)
			case v.Bool() == settles:
				return boolean(settles), nil
			}
			if first == nil {
				first = err
			}
		}
		if first != nil {
			return nil, first
		}
		return boolean(!settles), nil
	}
}

func conditional(cond, then, other run) run {
	return func(f *Frame) (*Value, error) {
		v, err := cond(f)
		switch {
		case err != nil:
			return nil, err
		case v.Kind != Bool:
			return nil, fmt.Errorf("%s: %w", v.Describe(), errNotBool)
		case v.Bool():
			return then(f)
		}
		return other(f)
	}
}

// in is membership in a list of constants.
func (s *Scope) in(of, list ast.Expr) run {
	if list.Kind() != ast.ListKind || len(list.AsList().OptionalIndices()) > 0 {
		return nil
	}
	x := s.direct(of)
	var members []*Value
	for _, e := range list.AsList().Elements() {
		if e.Kind() != ast.LiteralKind {
			return nil
		}
		v := new(Value)
		if v.setRef(e.AsLiteral()); v.Kind == Other {
			return nil
		}
		members = append(members, v)
	}
	if x == nil {
		return nil
	}
	return func(f *Frame) (*Value, error) {
		v, err := x(f)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			same, err := equal(v, m)
			if err != nil {
				return nil, err
			}
			if same {
				return yes, nil
			}
		}
		return no, nil
	}
}
