package jsonfield_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"unicode/utf8"

	"github.com/unisink/unisink/processor/jsonfield"
)

func TestFieldsAreFoundWhereverTheyStand(t *testing.T) {
	r := jsonfield.For("id", "amount", "paid", "gone")
	out := make([]jsonfield.Value, 4)
	doc := []byte(` { "x" : [1,{"id":9}], "amount":-17,"paid":true, "\u0069d":"a\"\u00e9\ud83d\ude00" , "n":null} `)
	if err := r.Read(doc, out); err != nil {
		t.Fatal(err)
	}
	var buf []byte
	id, err := out[0].Text(&buf)
	if err != nil || string(id) != "a\"é😀" {
		t.Errorf("id %q, %v", id, err)
	}
	if n, err := out[1].Int(); err != nil || n != -17 {
		t.Errorf("amount %d, %v", n, err)
	}
	if b, err := out[2].Bool(); err != nil || !b {
		t.Errorf("paid %v, %v", b, err)
	}
	if out[3].Kind != jsonfield.Missing {
		t.Errorf("gone is %s", out[3].Kind)
	}
	if _, err := out[3].Int(); !errors.Is(err, jsonfield.ErrType) {
		t.Errorf("a missing field as integer: %v", err)
	}
}

func TestIntegersAtTheEdges(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
		"12345678": 12345678, "-123456789": -123456789, "1760000000123": 1760000000123, "1234567812345678": 1234567812345678,
	} {
		got, err := jsonfield.Value{Kind: jsonfield.Number, Raw: []byte(text)}.Int()
		if err != nil || got != want {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"9223372036854775808", "-9223372036854775809", "1.0", "1e3", "99999999999999999999999", "10000000000000000000", "18446744073709551616", "12345678.5", "123456781234567e1", "1234567e"} {
		if got, err := (jsonfield.Value{Kind: jsonfield.Number, Raw: []byte(text)}).Int(); !errors.Is(err, jsonfield.ErrType) {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
}

// TestNamesOfAnyBytesAreMatched: a name that looks like a part of a document matches a field of that name alone.
func TestNamesOfAnyBytesAreMatched(t *testing.T) {
	for _, c := range []struct {
		name, doc string
		want      jsonfield.Kind
	}{
		{`a":1,"b`, `{"a":1,"b":"x"}`, jsonfield.Missing},
		{`a":1,"b`, `{"a\":1,\"b":"x"}`, jsonfield.String},
		{`\u0061`, `{"\u0061":1}`, jsonfield.Missing},
		{"\n", `{"\n":1}`, jsonfield.Number},
		{"\n", "{\"\\n\" :1}", jsonfield.Number},
		{"", `{"":1}`, jsonfield.Number},
		{"é", `{"é":1}`, jsonfield.Number},
		{"aa", `{"a":1}`, jsonfield.Missing},
		{"a", `{"aa":1}`, jsonfield.Missing},
	} {
		out := make([]jsonfield.Value, 1)
		if err := jsonfield.For(c.name).Read([]byte(c.doc), out); err != nil || out[0].Kind != c.want {
			t.Errorf("%q in %s is %s, %v", c.name, c.doc, out[0].Kind, err)
		}
	}
}

// FuzzAgainstEncodingJSON: the same documents are valid, and the fields mean the same.
func FuzzAgainstEncodingJSON(f *testing.F) {
	for _, doc := range []string{
		`{}`, `{"a":1}`, `{"a":"x","b":[1,2,{"a":3}],"c":null}`, `{"a":1,"a":2}`, `[1]`, `{"a":01}`, `{"a":-}`, `{"a":1.}`,
		`{"a":"\ud800"}`, `{"a":"\ud83d\ude00\u0000"}`, `{"\u0061":true}`, `{"a" :1,"b": "0123456789\"abcdefgh\\"}`, `{"a":1`, `{"a":`, `{"a"`, `{"a":"01234567`, `{"a":12345678`, `{"ab":1,"a":123456789012.5e+12}`, "{\"a\":\"\x01\"}", `{"a":1e-7,"b":tru}`, ` {"c":{}} x`,
	} {
		f.Add([]byte(doc))
	}
	names := []string{"a", "b", "c"}
	r := jsonfield.For(names...)
	f.Fuzz(func(t *testing.T, doc []byte) {
		out := make([]jsonfield.Value, len(names))
		err := r.Read(doc, out)
		var fields map[string]json.RawMessage
		object := bytes.HasPrefix(bytes.TrimLeft(doc, " \t\r\n"), []byte("{"))
		valid := object && json.Unmarshal(doc, &fields) == nil
		if valid != (err == nil) {
			t.Fatalf("encoding/json says valid=%v, we say %v: %q", valid, err, doc)
		}
		if !valid || !utf8.Valid(doc) {
			return
		}
		for i, n := range names {
			same(t, n, fields[n], out[i])
		}
	})
}

func same(t *testing.T, name string, want json.RawMessage, got jsonfield.Value) {
	t.Helper()
	var v any
	if want == nil {
		if got.Kind != jsonfield.Missing {
			t.Fatalf("field %s is %s, want missing", name, got.Kind)
		}
		return
	}
	if err := json.Unmarshal(want, &v); err != nil && got.Kind != jsonfield.Number {
		t.Fatal(err)
	}
	if s, ok := v.(string); ok {
		text, err := got.Text(nil)
		if err != nil || string(text) != s {
			t.Fatalf("field %s is %q, %v; want %q", name, text, err, s)
		}
		return
	}
	if !bytes.Equal(bytes.TrimSpace(want), got.Raw) {
		t.Fatalf("field %s is %q, want %q", name, got.Raw, want)
	}
	var n int64
	i, err := got.Int()
	if want := json.Unmarshal(want, &n) == nil && got.Kind == jsonfield.Number; want != (err == nil) || want && i != n {
		t.Fatalf("field %s as integer is %d, %v; want %d", name, i, err, n)
	}
}

func BenchmarkRead(b *testing.B) {
	for name, doc := range map[string]string{
		"order": `{"id":"o-00000017","customer":"c-0042","amount":1299,"at":1760000000123,"note":"two items, no hurry"}`,
		"spaced": `{
  "id": "o-00000017",
  "customer": "c-0042",
  "amount": 1299,
  "at": 1760000000123
}`,
		"wide": `{"trace":"4bf92f3577b34da6a3ce929d0e0e4736","agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)",` +
			`"customer":"c-0042","items":[{"sku":"A-1","n":1,"price":12.5},{"sku":"B-2","n":2,"price":7}],"amount":1299,"at":1760000000123,"tags":["new","eu",null,true]}`,
	} {
		b.Run(name, func(b *testing.B) {
			doc := []byte(doc)
			r := jsonfield.For("customer", "amount", "at")
			out := make([]jsonfield.Value, 3)
			b.ReportAllocs()
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				if err := r.Read(doc, out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkInt(b *testing.B) {
	for _, text := range []string{"7", "1299", "1760000000123", "-9223372036854775808"} {
		b.Run(text, func(b *testing.B) {
			v := jsonfield.Value{Kind: jsonfield.Number, Raw: []byte(text)}
			for b.Loop() {
				if _, err := v.Int(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func Example() {
	fields := jsonfield.For("customer", "amount")
	out := make([]jsonfield.Value, 2)
	if err := fields.Read([]byte(`{"amount":12,"customer":"ada","items":[1,2]}`), out); err != nil {
		fmt.Println(err)
		return
	}
	customer, _ := out[0].Text(nil)
	amount, _ := out[1].Int()
	fmt.Println(string(customer), amount)
	// Output: ada 12
}
