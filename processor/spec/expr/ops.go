package expr

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// operation is a function of CEL as it is called.
type operation struct {
	name   string
	args   int
	member bool
}

// native does an operation; out is its own place for the result.
type native struct {
	one func(x, out *Value) (*Value, error)
	two func(x, y, out *Value) (*Value, error)
}

var operations = map[operation]native{
	{operators.Add, 2, false}:      {two: add},
	{operators.Subtract, 2, false}: {two: arithmetic("-", subtractInts, func(a, b float64) float64 { return a - b }, subtractRefs)},
	{operators.Multiply, 2, false}: {two: arithmetic("*", multiplyInts, func(a, b float64) float64 { return a * b }, multiplyRefs)},
	{operators.Divide, 2, false}:   {two: arithmetic("/", divideInts, func(a, b float64) float64 { return a / b }, divideRefs)},
	{operators.Modulo, 2, false}:   {two: arithmetic("%", moduloInts, nil, moduloRefs)},
	{operators.Negate, 1, false}:   {one: negate},

	{operators.LogicalNot, 1, false}: {one: not},

	{operators.Equals, 2, false}:        {two: equals(true)},
	{operators.NotEquals, 2, false}:     {two: equals(false)},
	{operators.Less, 2, false}:          {two: ordered("<", func(c int) bool { return c < 0 })},
	{operators.LessEquals, 2, false}:    {two: ordered("<=", func(c int) bool { return c <= 0 })},
	{operators.Greater, 2, false}:       {two: ordered(">", func(c int) bool { return c > 0 })},
	{operators.GreaterEquals, 2, false}: {two: ordered(">=", func(c int) bool { return c >= 0 })},

	{overloads.StartsWith, 2, true}: {two: textual("startsWith", bytes.HasPrefix)},
	{overloads.EndsWith, 2, true}:   {two: textual("endsWith", bytes.HasSuffix)},
	{overloads.Contains, 2, true}:   {two: textual("contains", bytes.Contains)},

	{overloads.TypeConvertString, 1, false}: {one: toString},
	{overloads.TypeConvertInt, 1, false}:    {one: toInt},
	{overloads.TypeConvertDouble, 1, false}: {one: toDouble},
	{overloads.TypeConvertDyn, 1, false}:    {one: func(x, _ *Value) (*Value, error) { return x, nil }},
}

var (
	errOverflow = errors.New("integer overflow")
	errZero     = errors.New("division by zero")
)

func validText(b []byte) bool { return utf8.Valid(b) }

func mismatch(op string, x, y *Value) error {
	return fmt.Errorf("%s and %s cannot be used with %q", x.Describe(), y.Describe(), op)
}

// slow does an operation on values that only CEL knows.
func slow(op string, x, y, out *Value, f func(x, y ref.Val) ref.Val) (*Value, error) {
	if x.Kind < JSON && y.Kind < JSON && x.Kind != Uint {
		return nil, mismatch(op, x, y)
	}
	r := f(x.toRef(), y.toRef())
	if r == nil || types.IsUnknownOrError(r) {
		return nil, mismatch(op, x, y)
	}
	out.Data = nil // what it had may be another's
	out.setRef(r)
	return out, nil
}

func addRefs(x, y ref.Val) ref.Val {
	if a, ok := x.(traits.Adder); ok {
		return a.Add(y)
	}
	return nil
}

func subtractRefs(x, y ref.Val) ref.Val {
	if a, ok := x.(traits.Subtractor); ok {
		return a.Subtract(y)
	}
	return nil
}

func multiplyRefs(x, y ref.Val) ref.Val {
	if a, ok := x.(traits.Multiplier); ok {
		return a.Multiply(y)
	}
	return nil
}

func divideRefs(x, y ref.Val) ref.Val {
	if a, ok := x.(traits.Divider); ok {
		return a.Divide(y)
	}
	return nil
}

func moduloRefs(x, y ref.Val) ref.Val {
	if a, ok := x.(traits.Modder); ok {
		return a.Modulo(y)
	}
	return nil
}

func add(x, y, out *Value) (*Value, error) {
	if x.Kind == y.Kind {
		switch x.Kind {
		case Int:
			a, b := x.Int(), y.Int()
			s := a + b
			if (s > a) != (b > 0) && b != 0 {
				return nil, fmt.Errorf("+: %w", errOverflow)
			}
			out.SetInt(s)
			return out, nil
		case Double:
			out.SetDouble(x.Double() + y.Double())
			return out, nil
		case String, Bytes:
			out.SetData(x.Kind, append(append(out.Data[:0], x.Data...), y.Data...))
			return out, nil
		case Missing, Null, Bool, Uint, JSON, Other, Broken:
		}
	}
	return slow("+", x, y, out, addRefs)
}

func arithmetic(op string, ints func(a, b int64) (int64, error), doubles func(a, b float64) float64, refs func(x, y ref.Val) ref.Val) func(x, y, out *Value) (*Value, error) {
	return func(x, y, out *Value) (*Value, error) {
		switch {
		case x.Kind == Int && y.Kind == Int:
			n, err := ints(x.Int(), y.Int())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", op, err)
			}
			out.SetInt(n)
			return out, nil
		case x.Kind == Double && y.Kind == Double && doubles != nil:
			out.SetDouble(doubles(x.Double(), y.Double()))
			return out, nil
		}
		return slow(op, x, y, out, refs)
	}
}

func subtractInts(a, b int64) (int64, error) {
	d := a - b
	if (d < a) != (b > 0) && b != 0 {
		return 0, errOverflow
	}
	return d, nil
}

func multiplyInts(a, b int64) (int64, error) {
	if a == 0 || b == 0 {
		return 0, nil
	}
	p := a * b
	if a == -1 && b == math.MinInt64 || b == -1 && a == math.MinInt64 || p/b != a {
		return 0, errOverflow
	}
	return p, nil
}

func divideInts(a, b int64) (int64, error) {
	switch {
	case b == 0:
		return 0, errZero
	case a == math.MinInt64 && b == -1:
		return 0, errOverflow
	}
	return a / b, nil
}

func moduloInts(a, b int64) (int64, error) {
	switch {
	case b == 0:
		return 0, errZero
	case a == math.MinInt64 && b == -1:
		return 0, errOverflow
	}
	return a % b, nil
}

func negate(x, out *Value) (*Value, error) {
	switch {
	case x.Kind == Int && x.Int() == math.MinInt64:
		return nil, fmt.Errorf("-: %w", errOverflow)
	case x.Kind == Int:
		out.SetInt(-x.Int())
		return out, nil
	case x.Kind == Double:
		out.SetDouble(-x.Double())
		return out, nil
	case x.Kind == Other:
		if n, ok := x.ref.(traits.Negater); ok {
			if r := n.Negate(); !types.IsUnknownOrError(r) {
				out.setRef(r)
				return out, nil
			}
		}
	}
	return nil, fmt.Errorf("%s cannot be negated", x.Describe())
}

func not(x, _ *Value) (*Value, error) {
	if x.Kind != Bool {
		return nil, fmt.Errorf("%s: %w", x.Describe(), errNotBool)
	}
	return boolean(!x.Bool()), nil
}

func equals(want bool) func(x, y, out *Value) (*Value, error) {
	return func(x, y, _ *Value) (*Value, error) {
		same, err := equal(x, y)
		if err != nil {
			return nil, err
		}
		return boolean(same == want), nil
	}
}

// equal compares values of any kinds; those of different kinds differ, but for numbers.
func equal(x, y *Value) (bool, error) {
	if x.Kind >= JSON || y.Kind >= JSON || x.Kind == Uint || y.Kind == Uint {
		r := types.Equal(x.toRef(), y.toRef())
		b, ok := r.(types.Bool)
		if !ok {
			return false, mismatch("==", x, y)
		}
		return bool(b), nil
	}
	switch {
	case x.Kind == Int && y.Kind == Double:
		return !math.IsNaN(y.Double()) && compareIntDouble(x.Int(), y.Double()) == 0, nil
	case x.Kind == Double && y.Kind == Int:
		return !math.IsNaN(x.Double()) && compareIntDouble(y.Int(), x.Double()) == 0, nil
	case x.Kind != y.Kind:
		return false, nil
	}
	switch x.Kind {
	case Bool, Int:
		return x.num == y.num, nil
	case Double:
		return x.Double() == y.Double(), nil
	case String, Bytes:
		return bytes.Equal(x.Data, y.Data), nil
	case Missing, Null, Uint, JSON, Other, Broken:
	}
	return true, nil
}

// compareIntDouble is CEL's way: within the range of integers the integer is rounded to a double.
func compareIntDouble(i int64, d float64) int {
	switch {
	case d < math.MinInt64:
		return 1
	case d > math.MaxInt64:
		return -1
	}
	return cmp.Compare(float64(i), d)
}

func ordered(op string, holds func(c int) bool) func(x, y, out *Value) (*Value, error) {
	return func(x, y, _ *Value) (*Value, error) {
		if x.nan() || y.nan() && x.ordered() {
			return no, nil // NaN is neither less nor more than anything
		}
		c, err := compare(op, x, y)
		if err != nil {
			return nil, err
		}
		return boolean(holds(c)), nil
	}
}

func (v *Value) nan() bool { return v.Kind == Double && math.IsNaN(v.Double()) }

// ordered reports whether there are larger and smaller ones of its kind.
func (v *Value) ordered() bool {
	if v.Kind == Other {
		_, ok := v.ref.(traits.Comparer)
		return ok
	}
	return v.Kind > Null && v.Kind <= Bytes
}

// compare orders two values; neither is NaN.
func compare(op string, x, y *Value) (int, error) {
	switch {
	case x.Kind == Int && y.Kind == Int:
		return cmp.Compare(x.Int(), y.Int()), nil
	case x.Kind == String && y.Kind == String, x.Kind == Bytes && y.Kind == Bytes:
		return bytes.Compare(x.Data, y.Data), nil
	case x.Kind == Double && y.Kind == Double:
		return cmp.Compare(x.Double(), y.Double()), nil
	case x.Kind == Int && y.Kind == Double:
		return compareIntDouble(x.Int(), y.Double()), nil
	case x.Kind == Double && y.Kind == Int:
		return -compareIntDouble(y.Int(), x.Double()), nil
	case x.Kind == Bool && y.Kind == Bool:
		return cmp.Compare(x.num, y.num), nil
	}
	if a, ok := x.toRef().(traits.Comparer); ok {
		if c, ok := a.Compare(y.toRef()).(types.Int); ok {
			return int(c), nil
		}
	}
	return 0, mismatch(op, x, y)
}

func textual(op string, holds func(s, part []byte) bool) func(x, y, out *Value) (*Value, error) {
	return func(x, y, _ *Value) (*Value, error) {
		if x.Kind != String || y.Kind != String {
			return nil, mismatch(op, x, y)
		}
		return boolean(holds(x.Data, y.Data)), nil
	}
}

func toString(x, out *Value) (*Value, error) {
	b := out.Data[:0]
	switch x.Kind {
	case String:
		return x, nil
	case Bytes:
		if !validText(x.Data) {
			return nil, errUTF8
		}
		b = append(b, x.Data...)
	case Int:
		b = strconv.AppendInt(b, x.Int(), 10)
	case Bool:
		b = strconv.AppendBool(b, x.Bool())
	case Other, Double, Uint:
		r, ok := x.toRef().ConvertToType(types.StringType).(types.String)
		if !ok {
			return nil, fmt.Errorf("%s cannot be made a string", x.Describe())
		}
		b = append(b, r...)
	case Missing, Null, JSON, Broken:
		return nil, fmt.Errorf("%s cannot be made a string", x.Describe())
	}
	out.SetData(String, b)
	return out, nil
}

func toInt(x, out *Value) (*Value, error) {
	switch x.Kind {
	case Int:
		return x, nil
	case String:
		n, err := strconv.ParseInt(string(x.Data), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is no integer of 64 bits", x.Describe())
		}
		out.SetInt(n)
		return out, nil
	case Double, Uint, Other:
		if n, ok := x.toRef().ConvertToType(types.IntType).(types.Int); ok {
			out.SetInt(int64(n))
			return out, nil
		}
	case Missing, Null, Bool, Bytes, JSON, Broken:
	}
	return nil, fmt.Errorf("%s cannot be made an integer", x.Describe())
}

func toDouble(x, out *Value) (*Value, error) {
	switch x.Kind {
	case Double:
		return x, nil
	case Int:
		out.SetDouble(float64(x.Int()))
		return out, nil
	case String:
		d, err := strconv.ParseFloat(string(x.Data), 64)
		if err != nil {
			return nil, fmt.Errorf("%s is no double", x.Describe())
		}
		out.SetDouble(d)
		return out, nil
	case Uint:
		out.SetDouble(float64(x.num))
		return out, nil
	case Missing, Null, Bool, Bytes, JSON, Other, Broken:
	}
	return nil, fmt.Errorf("%s cannot be made a double", x.Describe())
}
