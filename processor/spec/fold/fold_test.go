package fold

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/spec/expr"
)

// all are all aggregates over one value.
func all(t testing.TB, calls ...Call) *Columns {
	t.Helper()
	if calls == nil {
		for _, f := range Forms() {
			calls = append(calls, Call{Func: Func(f.Name), K: 2, Q: 0.5})
		}
	}
	c := &Columns{}
	for i, call := range calls {
		if err := c.Add(fmt.Sprintf("c%d", i), call); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// rig is a composite of many columns.
type rig struct {
	*Composite[CellsN]
	frame *expr.Frame
	args  []expr.Value
}

func newRig(t testing.TB, c *Columns) *rig {
	t.Helper()
	n := c.Len()
	columns := make([]expr.Column, n)
	for i := range columns {
		columns[i] = expr.Column{Name: c.names[i], Type: expr.TypeDyn}
	}
	s, err := expr.Results(columns)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{
		Composite: compose(c, func(a *CellsN) []cell { return *a }, func(a *CellsN) { *a = make(CellsN, n) }),
		frame:     s.Frame(), args: make([]expr.Value, n),
	}
}

func (r *rig) add(acc *CellsN, at int64, v expr.Value) error {
	for i := range r.args {
		r.args[i] = v
	}
	return r.Add(acc, &Row{At: at, Args: r.args})
}

// check asks as sliding windows do, through the interface that they look for.
func (r *rig) check(acc *CellsN, v expr.Value) error {
	for i := range r.args {
		r.args[i] = v
	}
	var c aggregate.Checker[Row, CellsN] = r.Composite
	return c.Check(acc, &Row{Args: r.args})
}

func (r *rig) show(t testing.TB, acc *CellsN) string {
	t.Helper()
	if err := r.Values(acc, r.frame, 0); err != nil {
		t.Fatal(err)
	}
	text, err := r.frame.AppendColumns(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func randomNumber(r *rand.Rand) (v expr.Value) {
	switch r.IntN(6) {
	case 0:
		v.SetDouble(float64(r.IntN(9)) / 4)
	case 1:
		v.SetDouble(float64(r.IntN(9)))
	case 2:
		v.SetInt(math.MaxInt64 - int64(r.IntN(3)))
	default:
		v.SetInt(int64(r.IntN(9)) - 4)
	}
	return v
}

// TestAnAccumulatorComesBackFromASnapshot: written and read again at any place, and merged from parts, it
// goes on as if nothing had been; and a record that is refused leaves no trace.
func TestAnAccumulatorComesBackFromASnapshot(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	r := newRig(t, all(t))
	for range 300 {
		var plain, again, first, second CellsN
		for _, acc := range []*CellsN{&plain, &again, &first, &second} {
			r.Init(acc)
		}
		parts := true
		n := rnd.IntN(12)
		for i := range n {
			v := randomNumber(rnd)
			before := r.Encode(nil, &plain)
			asked := r.check(&plain, v)
			if !bytes.Equal(before, r.Encode(nil, &plain)) {
				t.Fatalf("to be asked for %s has left a trace", v.Describe())
			}
			err := r.add(&plain, int64(i), v)
			if (asked == nil) != (err == nil) {
				t.Fatalf("%s: asked %v, added %v", v.Describe(), asked, err)
			}
			if err != nil && !bytes.Equal(before, r.Encode(nil, &plain)) {
				t.Fatalf("%s was refused (%v) and has left a trace", v.Describe(), err)
			}
			if other := r.add(&again, int64(i), v); (other == nil) != (err == nil) {
				t.Fatalf("%s: %v, and after a snapshot %v", v.Describe(), err, other)
			}
			part := &first
			if i >= n/2 {
				part = &second
			}
			parts = parts && err == nil && r.add(part, int64(i), v) == nil
			if rnd.IntN(3) == 0 {
				var restored CellsN
				if err := r.Decode(r.Encode(nil, &again), &restored); err != nil {
					t.Fatal(err)
				}
				again = restored
			}
		}
		want := r.show(t, &plain)
		if got := r.show(t, &again); got != want {
			t.Fatalf("after snapshots %s, without %s", got, want)
		}
		if got, want := r.Encode(nil, &again), r.Encode(nil, &plain); !bytes.Equal(got, want) {
			t.Fatalf("what is written differs after snapshots: %q, %q", got, want)
		}
		if parts {
			if err := r.Merge(&first, &second); err != nil {
				t.Fatal(err)
			}
			if got := r.show(t, &first); got != want {
				t.Fatalf("merged %s, at once %s", got, want)
			}
		}
	}
}

// TestIntegersAreWhatTheAggregatesSay: the way that integers take by themselves ends where the aggregate's does.
func TestIntegersAreWhatTheAggregatesSay(t *testing.T) {
	calls := []Call{{Func: Sum}, {Func: Min}, {Func: Max}, {Func: Avg}, {Func: Count}}
	for _, values := range [][]int64{{}, {5}, {-3, 7, 7}, {math.MaxInt64}, {math.MinInt64, math.MaxInt64}, {0, 0}} {
		r := newRig(t, all(t, calls...))
		var quick, slow CellsN
		r.Init(&quick)
		r.Init(&slow)
		for i, n := range values {
			var v expr.Value
			v.SetInt(n)
			if err := r.Decode(r.Encode(nil, &slow), &slow); err != nil { // now in the aggregates' own hands
				t.Fatal(err)
			}
			if a, b := r.add(&quick, int64(i), v), r.add(&slow, int64(i), v); a != nil || b != nil {
				t.Fatal(a, b)
			}
		}
		if a, b := r.show(t, &quick), r.show(t, &slow); a != b {
			t.Errorf("%v: %s and %s", values, a, b)
		}
		if a, b := r.Encode(nil, &quick), r.Encode(nil, &slow); !bytes.Equal(a, b) {
			t.Errorf("%v: %q and %q", values, a, b)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	var i, huge, f, nan, text, null, raw expr.Value
	i.SetInt(1)
	huge.SetInt(math.MaxInt64)
	f.SetDouble(1.5)
	nan.SetDouble(math.NaN())
	text.SetData(expr.String, []byte("12.50"))
	raw.SetData(expr.Bytes, []byte("x"))
	null.SetNull()
	for _, c := range []struct {
		call   Call
		values []expr.Value
		is     error // of the last value; nil: any
		ok     bool
	}{
		{Call{Func: Sum}, []expr.Value{huge, i}, aggregate.ErrOverflow, false},
		{Call{Func: Avg}, []expr.Value{huge, i}, aggregate.ErrOverflow, false},
		{Call{Func: Sum}, []expr.Value{huge, f}, nil, true},
		{Call{Func: Sum}, []expr.Value{i, nan}, aggregate.ErrNotFinite, false},
		{Call{Func: Max}, []expr.Value{nan}, aggregate.ErrNotFinite, false},
		{Call{Func: First}, []expr.Value{nan}, aggregate.ErrNotFinite, false},
		{Call{Func: Quantile, Q: 0.5}, []expr.Value{nan}, aggregate.ErrNotFinite, false},
		{Call{Func: Sum}, []expr.Value{text}, nil, false},
		{Call{Func: Sum}, []expr.Value{null}, nil, false},
		{Call{Func: Last}, []expr.Value{null}, nil, false},
		{Call{Func: Distinct}, []expr.Value{raw}, nil, false},
		{Call{Func: Sum, Exact: true}, []expr.Value{text, i, text}, nil, true},
		{Call{Func: Sum, Exact: true}, []expr.Value{text, f}, nil, false},
		{Call{Func: Distinct, Limit: 1}, []expr.Value{text, text}, nil, true},
		{Call{Func: Distinct, Limit: 1}, []expr.Value{text, i}, aggregate.ErrTooMany, false},
		{Call{Func: Count}, []expr.Value{nan, null, raw}, nil, true},
	} {
		r := newRig(t, all(t, c.call))
		var acc CellsN
		r.Init(&acc)
		var err error
		for n, v := range c.values {
			if err = r.add(&acc, int64(n), v); err != nil && n < len(c.values)-1 {
				t.Fatalf("%v: %v", c.call, err)
			}
		}
		if (err == nil) != c.ok || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%v: the last value: %v", c.call, err)
		}
	}
}

// TestNumbersThatAreEqualAreOneValue: 1 and 1.0 are, as they are to ==.
func TestNumbersThatAreEqualAreOneValue(t *testing.T) {
	r := newRig(t, all(t, Call{Func: Distinct}, Call{Func: TopK, K: 1}, Call{Func: Last}))
	var acc CellsN
	r.Init(&acc)
	var one, same expr.Value
	one.SetInt(1)
	same.SetDouble(1)
	for i, v := range []expr.Value{one, same} {
		if err := r.add(&acc, int64(i), v); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := r.show(t, &acc), `{"c0":1,"c1":[{"value":1,"count":2}],"c2":1.0}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSettingsThatCannotBe(t *testing.T) {
	for _, c := range []Call{
		{Func: "median"},
		{Func: TopK},
		{Func: TopK, K: 5, Limit: 4},
		{Func: Quantile, Q: 1.1},
		{Func: Quantile, Q: math.NaN()},
		{Func: ApproxDistinct, Error: 0.9},
		{Func: Quantile, Error: 0.9},
		{Func: Distinct, Limit: aggregate.MaxLimit + 1},
	} {
		if err := new(Columns).Add("x", c); err == nil {
			t.Errorf("%v is taken", c)
		}
	}
}

// TestDamageIsNamed: what was not written by Encode is refused, and never a panic.
func TestDamageIsNamed(t *testing.T) {
	r := newRig(t, all(t))
	var acc, out CellsN
	r.Init(&acc)
	var v expr.Value
	v.SetInt(5)
	if err := r.add(&acc, 1, v); err != nil {
		t.Fatal(err)
	}
	good := r.Encode(nil, &acc)
	for n := range good {
		if err := r.Decode(good[:n], &out); err == nil {
			t.Errorf("the first %d of %d bytes are taken", n, len(good))
		}
	}
	if err := r.Decode(append(good, 0), &out); err == nil {
		t.Error("a byte too many is taken")
	}
}
