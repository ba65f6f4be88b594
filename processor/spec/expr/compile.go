package expr

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/parser"

	"github.com/unisink/unisink/internal/veil"
)

// Issue is something wrong with an expression.
type Issue struct {
	// Offset in characters; -1: the whole expression.
	Offset int
	Text   string
	// Unknown is the name that means nothing, if that is what is wrong; Field: a field of a mapped record.
	Unknown string
	Field   bool
	// Func is the function that cannot be used so, if that is what is wrong.
	Func string
}

// Expr is a compiled expression.
type Expr struct {
	// Text is the expression in one way of writing it: two that differ in spaces only are the same.
	Text string
	Type *Type
	// Direct: it runs without CEL's interpreter.
	Direct bool
	run    run
}

// Eval evaluates the expression over what was loaded. The value is good until the frame's next record.
func (e *Expr) Eval(f *Frame) (*Value, error) { return e.run(f) }

// Compile checks an expression and makes it ready. Frames made before do not know it.
func (s *Scope) Compile(text string) (*Expr, []Issue) {
	checked, issues := s.check(text)
	if issues != nil {
		return nil, issues
	}
	e, err := s.expr(checked, checked.Expr())
	if err != nil {
		return nil, []Issue{{Offset: -1, Text: err.Error()}}
	}
	return e, nil
}

// check parses and checks a text.
func (s *Scope) check(text string) (*ast.AST, []Issue) { return checkIn(s.env, text) }

func checkIn(env *cel.Env, text string) (*ast.AST, []Issue) {
	checked, bad := env.Compile(text)
	if bad == nil || bad.Err() == nil {
		return checked.NativeRep(), nil
	}
	var out []Issue
	for _, e := range bad.Errors() {
		i := issue(e.Message)
		i.Offset = offset(text, e.Location.Line(), e.Location.Column())
		if i.Unknown != "" && nearby(out, i) {
			continue
		}
		out = append(out, i)
		if strings.HasPrefix(e.Message, "Syntax error") {
			break // what follows comes of the first
		}
	}
	return nil, out
}

func nearby(list []Issue, i Issue) bool {
	return slices.ContainsFunc(list, func(j Issue) bool { return j.Unknown == i.Unknown && j.Offset == i.Offset })
}

// offset turns CEL's line (from 1) and column (from 0) into characters from the beginning.
func offset(text string, line, column int) int {
	n := 0
	for l := range strings.Lines(text) {
		if line--; line <= 0 {
			break
		}
		n += len([]rune(l))
	}
	return n + max(column, 0)
}

var (
	undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)'`)
	noField    = regexp.MustCompile(`^undefined field '([^']*)'`)
	noOverload = regexp.MustCompile(`^found no matching overload for '([^']*)' applied to '(.*)'`)
	expecting  = regexp.MustCompile(` expecting \{.*`)
)

// issue says in our words what CEL found. (Its errors are texts; where they are others than we know, they are
// passed on as they are.)
func issue(message string) Issue {
	message = strings.ReplaceAll(message, recordType, "the mapped record")
	if m := undeclared.FindStringSubmatch(message); m != nil {
		return Issue{Text: fmt.Sprintf("unknown name %q", m[1]), Unknown: m[1]}
	}
	if m := noField.FindStringSubmatch(message); m != nil {
		return Issue{Text: fmt.Sprintf("the mapped record has no field %q", m[1]), Unknown: m[1], Field: true}
	}
	if m := noOverload.FindStringSubmatch(message); m != nil {
		name := m[1]
		if name == operators.Conditional {
			return Issue{Text: fmt.Sprintf("the condition of ?: and its two sides are (%s); the first must be a boolean, and sides of different types need dyn(...) around one", m[2])}
		}
		if shown, ok := operators.FindReverse(name); ok && shown != "" {
			name = shown
		}
		return Issue{Text: fmt.Sprintf("%q cannot be used with %s", name, m[2]), Func: m[1]}
	}
	message = strings.TrimPrefix(message, "Syntax error: ")
	return Issue{Text: "not an expression: " + expecting.ReplaceAllString(message, "")}
}

// Names lists what an expression may name here; functions are left out.
func (s *Scope) Names() []string { return s.names }

// Fields lists the fields of a mapped record.
func (s *Scope) Fields() []string {
	if s.rec != recMapped {
		return nil
	}
	out := make([]string, len(s.columns))
	for i, c := range s.columns {
		out[i] = c.Name
	}
	return out
}

// expr makes a part of a checked text ready.
func (s *Scope) expr(checked *ast.AST, part ast.Expr) (*Expr, error) {
	text, err := parser.Unparse(part, checked.SourceInfo())
	if err != nil {
		return nil, err
	}
	e := &Expr{Text: text, Type: checked.GetType(part.ID())}
	slots := len(s.slots)
	if e.run = s.direct(part); e.run != nil {
		e.Direct = true
		return e, nil
	}
	s.slots = s.slots[:slots] // what was gathered before the attempt failed
	sub := ast.NewCheckedAST(ast.NewAST(part, checked.SourceInfo()), checked.TypeMap(), checked.ReferenceMap())
	program, err := s.env.PlanProgram(sub, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost))
	if err != nil {
		return nil, err
	}
	s.prefetch(part)
	e.run = s.interpreted(program)
	return e, nil
}

// prefetch makes slots of the fields that an expression of CEL's names, so that the record need not be read as
// a whole. A rec that stands elsewhere than before the name of a field does need it.
func (s *Scope) prefetch(part ast.Expr) {
	if s.rec != recJSON {
		return
	}
	alone := 0
	ast.PostOrderVisit(part, ast.NewExprVisitor(func(e ast.Expr) {
		switch {
		case isRec(e):
			alone++
		case e.Kind() == ast.SelectKind && isRec(e.AsSelect().Operand()):
			alone--
			s.slot(slot{kind: slotField, path: []string{e.AsSelect().FieldName()}})
		case e.Kind() == ast.CallKind && len(e.AsCall().Args()) == 2 && isRec(e.AsCall().Args()[0]):
			name, ok := literalText(e.AsCall().Args()[1])
			if f := e.AsCall().FunctionName(); ok && (f == operators.Index || f == operators.OptSelect || f == operators.OptIndex) {
				alone--
				s.slot(slot{kind: slotField, path: []string{name}})
			}
		}
	}))
	s.whole = s.whole || alone > 0
}

func isRec(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == "rec" }

func literalText(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}

func (s *Scope) interpreted(program cel.Program) run {
	t := s.temp()
	return func(f *Frame) (*Value, error) {
		var r ref.Val
		r, _, err := program.Eval((*activation)(f))
		if err != nil {
			return nil, veiled(err)
		}
		f.temps[t].setRef(r)
		return &f.temps[t], nil
	}
}

// veiled is an error of CEL without the texts that it quotes and the keys that it names, which are a record's.
func veiled(err error) error {
	text := veil.Quoted(err.Error())
	for _, of := range []string{"no such key", "index out of bounds"} {
		if i := strings.Index(text, of); i >= 0 {
			text = text[:i+len(of)]
		}
	}
	return veil.Error(err, text)
}
