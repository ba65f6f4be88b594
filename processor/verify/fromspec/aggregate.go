package fromspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"

	"github.com/unisink/unisink/processor/verify"
	"github.com/unisink/unisink/processor/verify/fold"
)

// aggregate is one aggregate of a window: what it is and what it takes of a record.
type aggregate struct {
	name string
	fold verify.Fold
	// args are none, or the value.
	args []*expr
	// exact: numbers are decimals, written as text or integers.
	exact bool
}

// What aggregates do by default.
const (
	defaultError = 0.01
	defaultLimit = 100_000
	// maxKept is how long a value may be that is kept, as JSON.
	maxKept = 4 << 10
)

// decimalFunc marks numbers as decimals: sum(decimal(rec.price)).
const decimalFunc = "decimal"

// aggregate reads a call like top_k(rec.product, 3).
func (p *Program) aggregate(f Field) (aggregate, error) {
	a := aggregate{name: f.Name}
	refuse := func(format string, args ...any) (aggregate, error) {
		return a, fmt.Errorf("aggregate %s: %s: %s", f.Name, f.Expr, fmt.Sprintf(format, args...))
	}
	parsed, bad := p.mapped.env.Parse(f.Expr)
	if bad != nil && bad.Err() != nil {
		return refuse("%v", bad.Err())
	}
	root := parsed.NativeRep().Expr()
	if root.Kind() != ast.CallKind || root.AsCall().IsMemberFunction() {
		return refuse("it is no call of an aggregate")
	}
	call := root.AsCall()
	a.fold.Kind = verify.Aggregate(call.FunctionName())
	args := call.Args()
	if a.fold.Kind == verify.Count {
		if len(args) > 0 {
			return refuse("it counts records, and takes nothing")
		}
		return a, nil
	}
	if len(args) == 0 {
		return refuse("it says not of what")
	}
	value := args[0]
	if value.Kind() == ast.CallKind && value.AsCall().FunctionName() == decimalFunc && len(value.AsCall().Args()) == 1 {
		a.exact, value = true, value.AsCall().Args()[0]
	}
	e, err := p.part(f, parsed, value)
	if err != nil {
		return a, err
	}
	a.args, a.fold.Partial = []*expr{e}, true
	if err := a.settings(args[1:]); err != nil {
		return refuse("%v", err)
	}
	return a, nil
}

// part makes an expression of a part of one.
func (p *Program) part(f Field, whole *cel.Ast, part ast.Expr) (*expr, error) {
	text, err := cel.ExprToString(part, whole.NativeRep().SourceInfo())
	if err != nil {
		return nil, fmt.Errorf("aggregate %s: %w", f.Name, err)
	}
	return p.mapped.compile("aggregate "+f.Name, text)
}

// settings reads what stands behind the value: k, q, a limit, an error.
func (a *aggregate) settings(args []ast.Expr) error {
	numbers := make([]float64, len(args))
	for i, x := range args {
		if x.Kind() != ast.LiteralKind {
			return fmt.Errorf("setting %d is no number", i+1)
		}
		switch v := x.AsLiteral().(type) {
		case types.Int:
			numbers[i] = float64(v)
		case types.Double:
			numbers[i] = float64(v)
		default:
			return fmt.Errorf("setting %d is no number", i+1)
		}
	}
	at := func(i int, otherwise float64) float64 {
		if i < len(numbers) {
			return numbers[i]
		}
		return otherwise
	}
	switch a.fold.Kind {
	case verify.Distinct:
		a.fold.Limit = int(at(0, defaultLimit))
	case verify.ApproxDistinct:
		a.fold.Error = at(0, defaultError)
	case verify.TopK:
		a.fold.K, a.fold.Limit = int(at(0, 0)), int(at(1, defaultLimit))
	case verify.Quantile:
		a.fold.Q, a.fold.Error = at(0, -1), at(1, defaultError)
	case verify.Count, verify.Sum, verify.Min, verify.Max, verify.Avg, verify.First, verify.Last:
		if len(args) > 0 {
			return fmt.Errorf("it has no settings")
		}
	}
	return nil
}

// value is what the aggregate takes of a record.
func (a *aggregate) value(vars map[string]any) (any, error) {
	if len(a.args) == 0 {
		return nil, nil //nolint:nilnil // it counts records
	}
	v, err := a.args[0].eval(vars)
	if err != nil {
		return nil, fmt.Errorf("aggregate %s: %w", a.name, err)
	}
	if o, ok := v.(*types.Optional); ok {
		if !o.HasValue() {
			return verify.Absent{}, nil
		}
		v = o.GetValue()
	}
	// What does not fit is found out when the record reaches its window, and not before.
	x, err := plain(v)
	if err != nil {
		return verify.Refused{Why: fmt.Sprintf("aggregate %s: %v", a.name, err)}, nil
	}
	switch a.fold.Kind {
	case verify.Sum, verify.Min, verify.Max, verify.Avg, verify.Quantile:
		x, err = a.number(x)
	case verify.Distinct, verify.ApproxDistinct, verify.First, verify.Last, verify.TopK:
		err = a.keepable(x)
	case verify.Count:
	}
	if err != nil {
		return verify.Refused{Why: fmt.Sprintf("aggregate %s: %v", a.name, err)}, nil
	}
	return x, nil
}

func (a *aggregate) number(x any) (any, error) {
	if big, ok := x.(*big.Rat); ok && !big.Num().IsInt64() {
		return nil, fmt.Errorf("%s does not fit into an integer of 64 bits", big.RatString())
	} else if ok {
		x = big.Num().Int64()
	}
	if !a.exact {
		return x, nil
	}
	switch x := x.(type) {
	case int64:
		return new(big.Rat).SetInt64(x), nil
	case string:
		return decimal(x)
	}
	return nil, fmt.Errorf("%v is no decimal", x)
}

const decimalDigits = 38

// decimal reads digits with a point, or with an exponent: no more than 38 of them, and no more than that behind
// the point.
func decimal(text string) (*big.Rat, error) {
	digits, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(text, "-")), "e")
	whole, behind, point := strings.Cut(digits, ".")
	ok := whole != "" && strings.Trim(whole+behind, "0123456789") == "" && (!point || behind != "")
	n := 0
	if exponent != "" {
		if _, err := fmt.Sscan(exponent, &n); err != nil {
			ok = false
		}
	}
	r, number := fold.Decimal(text)
	if !ok || !number {
		return nil, fmt.Errorf("%q is no decimal", text)
	}
	scale := max(0, len(behind)-n)
	if scale > decimalDigits || len(strings.TrimLeft(whole+behind, "0"))+max(0, n-len(behind)) > decimalDigits {
		return nil, fmt.Errorf("%q has more than %d digits", text, decimalDigits)
	}
	return r, nil
}

// keepable says why a value cannot be kept. Estimates keep none.
func (a *aggregate) keepable(x any) error {
	switch x.(type) {
	case nil:
		return errors.New("null is no value to keep")
	case []byte:
		return errors.New("bytes are no value of JSON")
	}
	if a.fold.Kind == verify.ApproxDistinct {
		return nil
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(x); err != nil {
		return err
	}
	if n := text.Len() - 1; n > maxKept { // without the line's end
		return fmt.Errorf("a value of %d bytes is too long to keep", n)
	}
	return nil
}
