package fold

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"
)

func rat(text string) *big.Rat {
	r, ok := ratOf(text)
	if !ok {
		panic(text)
	}
	return r
}

func TestAnAggregateIsJudgedByItsRule(t *testing.T) {
	num := func(s string) any { return json.Number(s) }
	list := func(v ...any) []any { return v }
	pair := func(v any, n string) any { return map[string]any{"value": v, "count": json.Number(n)} }
	for _, c := range []struct {
		name   string
		fold   Fold
		values []any
		right  []any
		wrong  []any
	}{
		{"count", Fold{Kind: Count}, list(nil, nil), list(num("2"), int64(2)), list(num("1"), num("3"), "x", nil)},
		{"sum of integers", Fold{Kind: Sum}, list(int64(2), int64(-5)), list(num("-3"), num("-3.0")), list(num("-2"), num("-3.0000001"), nil)},
		{"sum of large integers", Fold{Kind: Sum}, list(int64(1<<53), int64(1)), list(num("9007199254740993")), list(num("9007199254740992"))},
		{"sum of decimals", Fold{Kind: Sum}, list(rat("0.1"), rat("0.20")), list("0.3", "0.30", num("0.3")), list("0.31", "0.30000000000000004", "x")},
		{"sum of integers and decimals", Fold{Kind: Sum}, list(rat("0.1"), int64(2)), list("2.1"), list("2")},
		{"sum of floats", Fold{Kind: Sum}, list(0.1, 0.2, int64(1)), list(num("1.3"), num("1.3000000000000003")), list(num("1.3001"), num("1.2"))},
		{"sum of floats that cancel", Fold{Kind: Sum}, list(1e16, 1.0, -1e16), list(num("1"), num("0")), list(num("100"))},
		{"avg of integers", Fold{Kind: Avg}, list(int64(1), int64(2), int64(2)), list(num("1.6666666666666667")), list(num("1.667"), num("2"))},
		{"avg of decimals", Fold{Kind: Avg}, list(rat("1"), rat("2"), rat("2")), list("1.666667", "1.66666666666666666667"), list("1.6667", "1.666666", "1.68", "x")},
		{"min", Fold{Kind: Min}, list(int64(3), int64(-1), 2.5), list(num("-1")), list(num("2.5"), num("3"))},
		{"max", Fold{Kind: Max}, list(int64(3), int64(-1), 2.5), list(num("3")), list(num("2.5"))},
		{"min of floats", Fold{Kind: Min}, list(0.1, 0.3), list(num("0.1"), num("1e-1")), list(num("0.3"), "0.1", nil)},
		{"top of floats", Fold{Kind: TopK, K: 1}, list(0.1, 0.1, 2.0), list(list(num("0.1"))), list(list(num("2")))},
		{"max of decimals", Fold{Kind: Max}, list(rat("3.10"), rat("3.09")), list("3.1", "3.10"), list("3.09")},
		{"sum of what is left out", Fold{Kind: Sum, Partial: true}, list(Absent{}, Absent{}), list(nil), list(num("0"))},
		{"count of what is not left out", Fold{Kind: Count, Partial: true}, list(Absent{}, nil), list(num("1")), list(num("2"))},
		{"distinct", Fold{Kind: Distinct}, list("a", "b", "a", int64(1), 1.0), list(num("3")), list(num("2"), num("4"))},
		{"first", Fold{Kind: First}, list("a", "b"), list("a"), list("b", nil)},
		{"last", Fold{Kind: Last}, list("a", "b"), list("b"), list("a")},
		{"top", Fold{Kind: TopK, K: 2}, list("a", "b", "b", "c"), list(list("b", "a"), list("b", "c"), list(pair("b", "2"), pair("a", "1"))), list(list("a", "b"), list("b"), list("b", "d"), list("b", "b"), list("b", "a", "c"), list(pair("b", "1"), pair("a", "1")), "b")},
		{"median", Fold{Kind: Quantile, Q: 0.5, Error: 0.01}, list(int64(100), int64(300), int64(200), int64(400)), list(num("200"), num("198.5")), list(num("201"), num("197"), num("300"), num("-200"), nil)},
		{"least", Fold{Kind: Quantile, Q: 0, Error: 0.01}, list(-5.0, 7.0), list(num("-5"), num("-4.96")), list(num("-5.1"), num("-4.9"), num("5"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole, halves := New([]Fold{c.fold}), [2]Total{New([]Fold{c.fold}), New([]Fold{c.fold})}
			for i, v := range c.values {
				if err := c.fold.Accepts(v); err != nil {
					t.Fatal(err)
				}
				p := &Piece{At: int64(i), Seq: int64(i), Values: []any{v}}
				whole.Add(p)
				halves[i%2].Add(p)
			}
			halves[1].Merge(&halves[0])
			for _, sum := range []Total{whole, halves[1]} {
				for _, is := range c.right {
					if why := sum.Differs(0, is); why != "" {
						t.Errorf("%v: %s", is, why)
					}
				}
				for _, is := range c.wrong {
					if sum.Differs(0, is) == "" {
						t.Errorf("%v is right", is)
					}
				}
			}
		})
	}
}

func TestAnEstimateIsJudgedWithinItsError(t *testing.T) {
	s := Fold{Kind: ApproxDistinct, Error: 0.02}.empty()
	for i := range int64(1000) {
		s.add(nil, i)
	}
	for is, right := range map[int64]bool{1000: true, 1100: true, 900: true, 1125: false, 870: false} {
		if (s.differs(is) == "") != right {
			t.Errorf("%d of 1000 is right: %v", is, !right)
		}
	}
	few := Fold{Kind: ApproxDistinct, Error: 0.02}.empty()
	few.add(nil, "a")
	if few.differs(int64(1)) != "" || few.differs(int64(2)) == "" {
		t.Error("of few values an estimate is exact")
	}
}

// The first of two splits' records of one time is not known; which of one split is.
func TestOfRecordsOfOneTimeAnySplitsMayBeTheFirst(t *testing.T) {
	first := Fold{Kind: First}.empty()
	for i, p := range []Piece{{Split: 0, At: 5, Seq: 1}, {Split: 1, At: 5, Seq: 1}, {Split: 0, At: 5, Seq: 2}, {Split: 1, At: 6, Seq: 2}} {
		first.add(&p, string(rune('a'+i)))
	}
	for is, right := range map[string]bool{"a": true, "b": true, "c": false, "d": false} {
		if (first.differs(is) == "") != right {
			t.Errorf("%s is right: %v", is, !right)
		}
	}
	if _, known := first.value(); known {
		t.Error("it has one value")
	}
}

func TestAValueThatAnAggregateCannotTakeIsTold(t *testing.T) {
	for _, c := range []struct {
		kind Aggregate
		v    any
	}{
		{Sum, nil},
		{Sum, "1"},
		{Sum, true},
		{Sum, math.NaN()},
		{Min, "x"},
		{Avg, math.Inf(1)},
		{Min, nil},
		{Max, []byte("x")},
		{Distinct, nil},
		{First, nil},
		{TopK, math.NaN()},
		{Quantile, "x"},
		{"median", int64(1)},
	} {
		if err := (Fold{Kind: c.kind}).Accepts(c.v); err == nil {
			t.Errorf("%s takes %v", c.kind, c.v)
		}
	}
}

func TestNumbersThatWouldTakeGigabytesAreNone(t *testing.T) {
	for _, text := range []string{"1e999999999", "1e-999999999", "0x10", "1/3", "1_000", "", "e", "1e", "NaN"} {
		if r, ok := ratOf(text); ok {
			t.Errorf("%s is %v", text, r)
		}
	}
}

func FuzzFormJSON(f *testing.F) {
	for _, s := range []string{`{"b":1.0,"a":[1,null,"x"]}`, `1e5`, `{"a":1}{"b":2}`, ``, `{"a":`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		// What says the same looks the same: numbers rewritten, members in another order.
		var v any
		if json.Unmarshal(doc, &v) != nil {
			FormJSON(doc)
			return
		}
		once := FormJSON(doc)
		spaced := append(append([]byte(" "), doc...), ' ')
		if string(FormJSON(spaced)) != string(once) {
			t.Errorf("%q becomes %q, and with spaces %q", doc, once, FormJSON(spaced))
		}
	})
}
