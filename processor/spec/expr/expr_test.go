package expr

import (
	"strings"
	"testing"

	"github.com/unisink/unisink/processor/stream"
)

func compile(t testing.TB, s *Scope, text string) *Expr {
	t.Helper()
	e, issues := s.Compile(text)
	if issues != nil {
		t.Fatalf("%s: %v", text, issues)
	}
	return e
}

func records(t testing.TB, format string) *Scope {
	t.Helper()
	s, err := Records(format)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWhatRunsDirect: these make up what most specifications say, and must not need CEL.
func TestWhatRunsDirect(t *testing.T) {
	s := records(t, "json")
	for text, want := range map[string]bool{
		"rec.cents > 0": true, "rec.a.b == 'x' && !has(rec.c)": true, "rec['odd name'] != null": true, "rec.a + '/' + rec.b": true,
		"rec.n * 2 + 1": true, "string(key)": true, "headers.h == b'1'": true, "rec.c in ['DE', 'AT']": true, "has(rec.x) ? rec.x : 0": true,
		"int(rec.at) / 1000": true, "rec.s.startsWith('a')": true,
		"size(rec)": false, "rec.l.all(x, x > 0)": false, "rec.?x.orValue(0)": false, "timestamp(rec.at)": false, "rec[string(key)]": false,
	} {
		if e := compile(t, s, text); e.Direct != want {
			t.Errorf("%s: direct is %v", text, e.Direct)
		}
	}
}

func TestOnlyTheFieldsThatAreUsedAreRead(t *testing.T) {
	s := records(t, "json")
	compile(t, s, "rec.a > 0 && has(rec.b.c)")
	compile(t, s, "rec.?d.orValue(rec['e f']) == 1 || rec.l.exists(x, x == rec.g)")
	if got, want := strings.Join(s.Reads(), " "), "rec.a rec.b rec.b.c rec.d rec.e f rec.g rec.l"; strings.ReplaceAll(got, "rec.b rec.b.c", "rec.b.c") != strings.ReplaceAll(want, "rec.b rec.b.c", "rec.b.c") || s.Whole() {
		t.Errorf("read are %s (all: %v), want %s", got, s.Whole(), want)
	}
	compile(t, s, "size(rec) > 3")
	if !s.Whole() {
		t.Error("nobody says that all is read")
	}
}

// TestAnExpressionCannotRunForEver: past its cost it is an error of the record.
func TestAnExpressionCannotRunForEver(t *testing.T) {
	s := records(t, "json")
	e := compile(t, s, "rec.l.all(x, rec.l.all(y, x + y >= 0))")
	f := s.Frame()
	if err := f.Load(&stream.Record{Value: []byte(`{"l":[1` + strings.Repeat(",1", 5000) + `]}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Eval(f); err == nil || !strings.Contains(err.Error(), "cost") {
		t.Errorf("error %v", err)
	}
}

func TestWhatARecordIs(t *testing.T) {
	for _, c := range []struct{ format, value, text, want, fails string }{
		{"json", `{"a":1}`, "rec.b", "", "the record has no field rec.b"},
		{"json", `{"a":9223372036854775808}`, "rec.a", "", "rec.a: the integer does not fit into 64 bits"},
		{"json", `{"a":9223372036854775808,"b":1}`, "has(rec.a) && rec.b == 1", "true", ""},
		{"json", `{"a":1.0}`, "rec.a", "1.0", ""},
		{"json", `{"a":1e3}`, "rec.a", "1000.0", ""},
		{"json", `{"a":1e999}`, "rec.a", "", "rec.a: the number does not fit into a double"},
		{"json", "{\"a\":\"\xff\"}", "rec.a", "", "rec.a: the text is not UTF-8"},
		{"json", `{"a":"\ud83d\ude00\n"}`, "rec.a", `"😀\n"`, ""},
		{"json", `{"a":{"b": [1, {"c" : null}]}}`, "rec.a", `{"b":[1,{"c":null}]}`, ""},
		{"json", `{"a":{"b":{"c":5}}}`, "rec.a.b.c", "5", ""},
		{"json", `{"a":5}`, "rec.a.b", "", "the record has no field rec.a.b"},
		{"json", `{"a":null}`, "rec.a == null", "true", ""},
		{"json", `{"a":1,"a":2}`, "rec.a", "2", ""},
		{"json", "", "has(rec.a)", "false", ""},
		{"json", `{"a":[3,1]}`, "rec.a[1]", "1", ""},
		{"json", `{"x":1}`, "rec", `{"x":1}`, ""},
		{"json", `{"x":1,"y":[2]}`, "rec.map(k, k).size()", "2", ""},
		{"bytes", "\xff\x00", "rec", `"/wA="`, ""},
		{"bytes", "abc", "size(rec)", "3", ""},
		{"string", "a\"b", "rec + '!'", `"a\"b!"`, ""},
		{"string", "\xff", "rec", "", "rec: the text is not UTF-8"},
		{"string", "\xff", "rec.size()", "", "the text is not UTF-8"},
		{"json", "{}", "0.0 / 0.0", `"NaN"`, ""},
		{"json", "{}", "timestamp(1)", `"1970-01-01T00:00:01Z"`, ""},
		{"json", "{}", "duration('90s') + duration('500ms')", `"90.5s"`, ""},
		{"json", "{}", "{'b': 1, 'a': [true, 2u]}", `{"a":[true,2],"b":1}`, ""},
		{"json", "{}", "offset + int(partition) + timestamp", "17", ""},
	} {
		t.Run(c.text+" "+c.value, func(t *testing.T) {
			s := records(t, c.format)
			e := compile(t, s, c.text)
			f := s.Frame()
			in := &stream.Record{Value: []byte(c.value), Offset: 10, Partition: 5, Time: 2}
			if c.value == "" {
				in.Value = nil
			}
			if err := f.Load(in); err != nil {
				t.Fatal(err)
			}
			v, err := e.Eval(f)
			if err != nil {
				if c.fails == "" || err.Error() != c.fails {
					t.Errorf("error %q, want %q", err, c.fails)
				}
				return
			}
			if got, err := v.AppendJSON(nil); err != nil || string(got) != c.want || c.fails != "" {
				t.Errorf("%s, %v; want %s", got, err, c.want+c.fails)
			}
		})
	}
}

// BenchmarkEval: one op is a record of 100 bytes and one expression over it.
func BenchmarkEval(b *testing.B) {
	in := &stream.Record{Value: []byte(`{"id":"o-00000017","customer":"c-0042","amount":1299,"at":1760000000123,"note":"two items, no hurry"}`)}
	for name, text := range map[string]string{"direct": "rec.amount > 0 && rec.customer != ''", "cel": "rec.amount > 0 && size(rec.customer) > 0"} {
		b.Run(name, func(b *testing.B) {
			s := records(b, "json")
			e := compile(b, s, text)
			if e.Direct != (name == "direct") {
				b.Fatal("it runs the other way")
			}
			f := s.Frame()
			b.ReportAllocs()
			for b.Loop() {
				if err := f.Load(in); err != nil {
					b.Fatal(err)
				}
				if _, err := e.Eval(f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Errors reach logs and the causes that the group keeps; what a record holds does not.
func TestNothingOfTheRecordIsShown(t *testing.T) {
	s := records(t, "json")
	value := `{"a":"4711 0815","n":9223372036854775807,"d":4711.5,"k":"47110815","m":{"x":1}}`
	for _, text := range []string{
		"rec.a > 0", "rec.n + 1 > 0", "rec.n * 2 > 0", "-(-rec.n - 1) > 0", "int(rec.a) > 0", "double(rec.a) > 0.0", "!rec.a", "rec.a && true", "rec.d ? 1 : 2",
		"timestamp(rec.a) > timestamp(0)", "duration(rec.a) > duration('1s')", "rec[rec.k] == 1", "rec.m[rec.k] == 1", "rec.a + 1", "[1][rec.n] == 1", "rec.d.x", "uint(rec.a) > 0u",
	} {
		e := compile(t, s, text)
		f := s.Frame()
		if err := f.Load(&stream.Record{Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Eval(f); err == nil {
			t.Errorf("%s is no error", text)
		} else if m := err.Error(); strings.Contains(m, "4711") || strings.Contains(m, "0815") || strings.Contains(m, "9223372") {
			t.Errorf("%s shows the record: %v", text, err)
		}
	}
}
