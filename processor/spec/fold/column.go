package fold

import (
	"fmt"
	"math"

	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/spec/expr"
)

// Call is an aggregate as a specification calls it.
type Call struct {
	Func Func
	// Exact: the numbers are decimals, written as strings.
	Exact bool
	// K of top_k, Q of quantile.
	K int
	Q float64
	// Limit of different values; 0: DefaultLimit. Error of estimates; 0: DefaultError.
	Limit int
	Error float64
}

// Func is the name of an aggregate.
type Func string

// The aggregates.
const (
	Count          Func = "count"
	Sum            Func = "sum"
	Min            Func = "min"
	Max            Func = "max"
	Avg            Func = "avg"
	Distinct       Func = "distinct"
	ApproxDistinct Func = "approx_distinct"
	First          Func = "first"
	Last           Func = "last"
	TopK           Func = "top_k"
	Quantile       Func = "quantile"
)

// Add puts an aggregate behind the others. The error names a setting that cannot be.
func (c *Columns) Add(name string, call Call) error {
	limit, relative := call.Limit, call.Error
	if limit == 0 {
		limit = DefaultLimit
	}
	if relative == 0 {
		relative = DefaultError
	}
	var col column
	switch call.Func {
	case Count:
		col = counter{}
	case Sum:
		col = sum(call.Exact)
	case Min:
		col = least(call.Exact)
	case Max:
		col = largest(call.Exact)
	case Avg:
		col = average(call.Exact)
	case Distinct:
		col = distinct(limit)
	case ApproxDistinct:
		col = approxDistinct(relative)
	case First:
		col = first()
	case Last:
		col = last()
	case TopK:
		if call.K < 1 || call.K > limit {
			return fmt.Errorf("the k of top_k is %d; give 1 to %d", call.K, limit)
		}
		col = topK(call.K, limit)
	case Quantile:
		if !(call.Q >= 0 && call.Q <= 1) {
			return fmt.Errorf("the q of quantile is %v; give 0 to 1: 0.5 is the median", call.Q)
		}
		col = quantile(call.Q, relative)
	default:
		return fmt.Errorf("there is no aggregate %q", call.Func)
	}
	if v, ok := col.(aggregate.Validator); ok {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	c.names, c.columns = append(c.names, name), append(c.columns, col)
	return nil
}

// Forms says how the aggregates are called.
func Forms() []expr.Form {
	return []expr.Form{
		{Name: "count", Usage: "count()"},
		{Name: "sum", Value: true, Usage: "sum(x)"},
		{Name: "min", Value: true, Usage: "min(x)"},
		{Name: "max", Value: true, Usage: "max(x)"},
		{Name: "avg", Value: true, Usage: "avg(x)"},
		{Name: "distinct", Value: true, Most: 1, Usage: "distinct(x)"},
		{Name: "approx_distinct", Value: true, Most: 1, Usage: "approx_distinct(x)"},
		{Name: "first", Value: true, Usage: "first(x)"},
		{Name: "last", Value: true, Usage: "last(x)"},
		{Name: "top_k", Value: true, Least: 1, Most: 2, Usage: "top_k(x, 3)"},
		{Name: "quantile", Value: true, Least: 1, Most: 2, Usage: "quantile(x, 0.99)"},
	}
}

// Names lists the aggregates.
func Names() []string {
	var names []string
	for _, f := range Forms() {
		names = append(names, f.Name)
	}
	return names
}

// SetNumbers takes the constants of the call: k and limit of top_k, q and error of quantile, the limit of
// distinct, the error of approx_distinct.
func (c *Call) SetNumbers(numbers []float64) error {
	whole := func(what string, n float64) (int, error) {
		if n != math.Trunc(n) || n < 1 || n > aggregate.MaxLimit {
			return 0, fmt.Errorf("the %s of %s is %v; give a whole number, 1 to %d", what, c.Func, n, aggregate.MaxLimit)
		}
		return int(n), nil
	}
	var err error
	for i, n := range numbers {
		switch {
		case c.Func == TopK && i == 0:
			c.K, err = whole("k", n)
		case c.Func == TopK, c.Func == Distinct:
			c.Limit, err = whole("limit", n)
		case c.Func == Quantile && i == 0:
			c.Q = n
		default:
			if c.Error = n; n <= 0 {
				err = fmt.Errorf("the error of %s is %v; give a part of 1, as in 0.01", c.Func, n)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Takes reports whether the aggregate can be computed of values of a type, as far as is known beforehand,
// and what it takes.
func (c *Call) Takes(t *expr.Type) (what string, ok bool) {
	switch c.Func {
	case Sum, Min, Max, Avg:
		if c.Exact {
			return "decimals written as strings, and integers", expr.Is(t, expr.TypeString, expr.TypeInt)
		}
		return "numbers; of decimals written as strings, " + string(c.Func) + "(decimal(x))", expr.Is(t, expr.TypeInt, expr.TypeUint, expr.TypeDouble)
	case Quantile:
		return "numbers", !c.Exact && expr.Is(t, expr.TypeInt, expr.TypeUint, expr.TypeDouble)
	case Distinct, ApproxDistinct, First, Last, TopK:
		return "what JSON has; make bytes a string", !c.Exact && !t.IsExactType(expr.TypeBytes)
	case Count:
	}
	return "nothing", false
}

// Result is the type of the result.
func (c *Call) Result(arg *expr.Type) *expr.Type {
	switch c.Func {
	case Count, Distinct, ApproxDistinct:
		return expr.TypeInt
	case Sum, Min, Max:
		switch {
		case c.Exact:
			return expr.TypeString
		case arg.IsExactType(expr.TypeInt), arg.IsExactType(expr.TypeDouble):
			return arg
		}
	case TopK:
		return expr.TypeList
	case Avg, Quantile, First, Last:
	}
	return expr.TypeDyn
}
