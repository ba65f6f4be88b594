package expr

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
)

// Form says how an aggregate is called: name(x, numbers...), or name() if it takes no value.
type Form struct {
	Name string
	// Value: it is computed of a value, its first argument.
	Value bool
	// Numbers are constants behind it: so many must be there, and so many may.
	Least, Most int
	// Usage for people: "top_k(x, 3)".
	Usage string
}

// Call is an aggregate that was called.
type Call struct {
	Form Form
	// Arg is what it is computed of; nil: nothing.
	Arg *Expr
	// Exact: the argument was put in decimal(...).
	Exact bool
	// Numbers are the constants.
	Numbers []float64
	// Text is the call in one way of writing it.
	Text string
	// ArgOffset is where the argument stands, in characters.
	ArgOffset int
}

// decimalName marks numbers that are written as strings.
const decimalName = "decimal"

// WithCalls adds the environment in which aggregates are called.
func (s *Scope) WithCalls(forms []Form) error {
	var opts []cel.EnvOption
	one := func(name string, params ...*cel.Type) {
		opts = append(opts, cel.Function(name, cel.Overload(fmt.Sprintf("unisink_%s_%d", name, len(params)), params, cel.DynType)))
	}
	one(decimalName, cel.DynType)
	for _, f := range forms {
		var params []*cel.Type
		if f.Value {
			params = append(params, cel.DynType)
		}
		for n := 0; n <= f.Most; n++ {
			if n >= f.Least {
				one(f.Name, params...)
			}
			params = append(params[:len(params):len(params)], cel.DynType)
		}
	}
	env, err := s.env.Extend(opts...)
	if err != nil {
		return fmt.Errorf("the environment of aggregates: %w", err)
	}
	s.calls, s.forms = env, forms
	return nil
}

// Call compiles a call of an aggregate.
func (s *Scope) Call(text string) (*Call, []Issue) {
	checked, issues := checkIn(s.calls, text)
	for i := range issues {
		for _, f := range s.forms {
			if f.Name == issues[i].Func {
				issues[i].Text += "; write " + f.Usage
			}
		}
	}
	if issues != nil {
		return nil, issues
	}
	e := checked.Expr()
	if e.Kind() == ast.CallKind && !e.AsCall().IsMemberFunction() {
		for _, f := range s.forms {
			if f.Name == e.AsCall().FunctionName() {
				return s.called(checked, f, e.AsCall().Args())
			}
		}
	}
	usage := make([]string, len(s.forms))
	for i, f := range s.forms {
		usage[i] = f.Usage
	}
	return nil, []Issue{{Offset: 0, Text: "one aggregate stands here, alone: " + strings.Join(usage, ", ") + "; compute with aggregates in the fields of a sink"}}
}

func (s *Scope) called(checked *ast.AST, f Form, args []ast.Expr) (*Call, []Issue) {
	c := &Call{Form: f}
	names := []string{}
	if f.Value {
		arg := args[0]
		args = args[1:]
		c.ArgOffset = place(checked, arg)
		if arg.Kind() == ast.CallKind && arg.AsCall().FunctionName() == decimalName && !arg.AsCall().IsMemberFunction() {
			c.Exact = true
			arg = arg.AsCall().Args()[0]
		}
		if name, at := s.nested(arg); name != "" {
			return nil, []Issue{{Offset: place(checked, at), Text: fmt.Sprintf("%s cannot stand within %s", name, f.Name)}}
		}
		e, err := s.expr(checked, arg)
		if err != nil {
			return nil, []Issue{{Offset: c.ArgOffset, Text: err.Error()}}
		}
		c.Arg = e
		shown := e.Text
		if c.Exact {
			shown = decimalName + "(" + shown + ")"
		}
		names = append(names, shown)
	}
	for _, a := range args {
		n, ok := constant(a)
		if !ok {
			return nil, []Issue{{Offset: place(checked, a), Text: fmt.Sprintf("a number stands here, as in %s", f.Usage)}}
		}
		c.Numbers = append(c.Numbers, n)
		names = append(names, fmt.Sprint(n))
	}
	c.Text = f.Name + "(" + strings.Join(names, ", ") + ")"
	return c, nil
}

// nested finds an aggregate or decimal within an argument.
func (s *Scope) nested(e ast.Expr) (name string, at ast.Expr) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().IsMemberFunction() {
			return
		}
		called := e.AsCall().FunctionName()
		if called == decimalName {
			name, at = called, e
		}
		for _, f := range s.forms {
			if f.Name == called {
				name, at = called, e
			}
		}
	}))
	return name, at
}

// place is where a part of an expression begins, in characters.
func place(checked *ast.AST, e ast.Expr) int {
	if r, ok := checked.SourceInfo().GetOffsetRange(e.ID()); ok {
		return int(r.Start)
	}
	return -1
}

func constant(e ast.Expr) (float64, bool) {
	if e.Kind() != ast.LiteralKind {
		return 0, false
	}
	switch v := e.AsLiteral().(type) {
	case types.Int:
		return float64(v), true
	case types.Double:
		return float64(v), true
	}
	return 0, false
}
