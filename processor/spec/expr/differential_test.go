package expr

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"

	"github.com/unisink/unisink/processor/stream"
)

// both compiles an expression twice: to closures, and for CEL's interpreter. Ok is false if it is none
// that runs directly.
func both(s *Scope, text string) (direct, interpreted run, ok bool) {
	checked, issues := s.check(text)
	if issues != nil {
		return nil, nil, false
	}
	direct = s.direct(checked.Expr())
	if direct == nil {
		return nil, nil, false
	}
	sub := ast.NewCheckedAST(ast.NewAST(checked.Expr(), checked.SourceInfo()), checked.TypeMap(), checked.ReferenceMap())
	program, err := s.env.PlanProgram(sub, cel.CostLimit(maxCost))
	if err != nil {
		return nil, nil, false
	}
	return direct, s.interpreted(program), true
}

// agree fails the test unless both ways come to the same.
func agree(t *testing.T, s *Scope, text string, direct, interpreted run, in *stream.Record) {
	t.Helper()
	f := s.Frame()
	if f.Load(in) != nil {
		return
	}
	want, wantErr := interpreted(f)
	var shown []byte
	kind := Missing
	if wantErr == nil {
		kind = want.Kind
		shown, _ = want.AppendJSON(nil)
	}
	got, gotErr := direct(f)
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("%s over %s: directly %v, by CEL %v", text, in.Value, gotErr, wantErr)
	}
	if gotErr != nil {
		return
	}
	gotShown, _ := got.AppendJSON(nil)
	sameKind := got.Kind == kind || got.Kind == JSON && kind == Other
	if got.Kind == JSON { // CEL writes the fields in their order
		gotShown, _ = parseJSONText(gotShown)
	}
	if !sameKind || !bytes.Equal(gotShown, shown) {
		t.Fatalf("%s over %s: directly %s %s, by CEL %s %s", text, in.Value, got.Kind, gotShown, kind, shown)
	}
}

func parseJSONText(text []byte) ([]byte, error) { return appendRef(nil, parseJSON(text)) }

// source draws from the bytes of a fuzzer or from chance.
type source interface{ IntN(n int) int }

type drawn struct{ rest []byte }

func (d *drawn) IntN(n int) int {
	if len(d.rest) == 0 {
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return int(b) % n
}

func pick(r source, from ...string) string { return from[r.IntN(len(from))] }

var atoms = []string{
	"rec.a", "rec.b", "rec.c.d", "rec.c", "rec['a']", "rec.c['d']", "rec.l", "key", "timestamp", "topic", "offset", "partition",
	"headers.h", "headers['h']", "1", "0", "-1", "9223372036854775807", "-9223372036854775808", "2.5", "0.0", "1e300", "1.0", "'x'", "''", "'17'", "b'x'", "null", "true",
	"false", "has(rec.a)", "has(rec.b)", "has(rec.c.d)", "has(rec.a.z)", "has(headers.h)", "3u", "9223372036854775807.0",
}

func expression(r source, depth int) string {
	if depth == 0 || r.IntN(5) == 0 {
		return pick(r, atoms...)
	}
	x := func() string { return expression(r, depth-1) }
	switch r.IntN(9) {
	case 0, 1:
		return "(" + x() + pick(r, " + ", " - ", " * ", " / ", " % ") + x() + ")"
	case 2, 3:
		return "(" + x() + pick(r, " == ", " != ", " < ", " <= ", " > ", " >= ") + x() + ")"
	case 4:
		return "(" + x() + pick(r, " && ", " || ") + x() + ")"
	case 5:
		return pick(r, "!", "-") + "(" + x() + ")"
	case 6:
		return "(" + x() + " ? " + x() + " : " + x() + ")"
	case 7:
		return pick(r, "string", "int", "double") + "(" + x() + ")"
	}
	return pick(r, "("+x()+" in [1, 'x', 2.0, null, true])", x()+".startsWith("+x()+")", x()+".contains('x')", x()+".endsWith("+x()+")")
}

func value(r source, depth int) string {
	if depth > 0 && r.IntN(4) == 0 {
		return pick(r, `{"d":`+value(r, depth-1)+`}`, `[`+value(r, depth-1)+`]`, `{"z":`+value(r, depth-1)+`,"d":1}`)
	}
	return pick(r, "0", "1", "-1", "17", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "2.5", "-0.0", "1e3", "1e999",
		`"x"`, `""`, `"17"`, `"2.5"`, `"xyz"`, `"\u00e9"`, "true", "false", "null", "9007199254740993", "9007199254740992.0")
}

func randomRecord(r source) *stream.Record {
	var fields []string
	for _, name := range []string{"a", "b", "c", "l"} {
		if r.IntN(5) > 0 {
			fields = append(fields, fmt.Sprintf("%q:%s", name, value(r, 2)))
		}
	}
	in := &stream.Record{Value: []byte("{" + strings.Join(fields, ",") + "}"), Time: 1700000000000, Topic: "x", Partition: 3, Offset: int64(r.IntN(3))}
	if r.IntN(2) == 0 {
		in.Key, in.Headers = []byte("k\xff"), []stream.Header{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte("x")}}
	}
	if r.IntN(20) == 0 {
		in.Value = nil
	}
	return in
}

// TestDirectIsWhatCELSays: expressions and records at random, and whether there is an error and which
// value come out the same.
func TestDirectIsWhatCELSays(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	compared := 0
	s, err := Records("json")
	if err != nil {
		t.Fatal(err)
	}
	for range 1500 {
		s.slots, s.temps = nil, 0
		text := expression(r, 3)
		direct, interpreted, ok := both(s, text)
		if !ok {
			continue
		}
		for range 20 {
			agree(t, s, text, direct, interpreted, randomRecord(r))
			compared++
		}
		if testing.Short() && compared > 3000 {
			break
		}
	}
	if compared < 3000 {
		t.Errorf("only %d pairs were compared", compared)
	}
}

// TestDirectAtTheEdges: every pair of values that is hard, with every operator.
func TestDirectAtTheEdges(t *testing.T) {
	s, err := Records("json")
	if err != nil {
		t.Fatal(err)
	}
	values := []string{
		"9223372036854775807", "-9223372036854775808", "9223372036854775807.0", "-9223372036854775808.0", "9223372036854774784.0", "9007199254740993",
		"9007199254740992.0", "0", "-0.0", "-1", "1", "0.5", "(0.0/0.0)", "(1.0/0.0)", "'1'", "b'1'", "true", "null", "1u", "18446744073709551615u", "rec.l", "rec.m",
	}
	every, tried, compared := 1, 0, 0
	if testing.Short() {
		every = 5 // in one goroutine; 5 and the number of operators have no divisor in common, so each has its turn
	}
	for _, x := range values {
		for _, y := range values {
			for _, op := range []string{"+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">="} {
				if tried++; tried%every != 0 {
					continue
				}
				s.slots, s.temps = nil, 0
				text := fmt.Sprintf("dyn(%s) %s dyn(%s)", x, op, y)
				direct, interpreted, ok := both(s, text)
				if !ok {
					continue
				}
				compared++
				agree(t, s, text, direct, interpreted, &stream.Record{Value: []byte(`{"l":[1],"m":{"a":1}}`)})
			}
		}
	}
	if compared < 3000/every {
		t.Errorf("only %d were compared", compared)
	}
}

// FuzzDirect: the same, led by the fuzzer.
func FuzzDirect(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, []byte{1, 2, 3})
	f.Add([]byte{4, 1, 1, 0, 2, 0, 9, 31, 3, 3}, []byte{9, 8, 7, 6, 5, 4, 3, 2})
	s, err := Records("json")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, form, doc []byte) {
		text := expression(&drawn{form}, 4)
		s.slots, s.temps = nil, 0
		direct, interpreted, ok := both(s, text)
		if !ok {
			return
		}
		r := &drawn{doc}
		for range 3 {
			agree(t, s, text, direct, interpreted, randomRecord(r))
		}
	})
}
