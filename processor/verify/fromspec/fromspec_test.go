package fromspec

import (
	"strings"
	"testing"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
)

func TestDecimalsAreReadAsWritten(t *testing.T) {
	for text, ok := range map[string]bool{
		"12": true, "-12.50": true, "1.25e-3": true, "0.1": true, strings.Repeat("9", 38): true, "1e3": true,
		"": false, ".5": false, "5.": false, "+1": false, "1,5": false, "0x1": false, "NaN": false, "1e": false,
		strings.Repeat("9", 39): false, "1e-39": false, "1e999999999": false,
	} {
		if _, err := decimal(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzDecimal(f *testing.F) {
	for _, s := range []string{"12.5", "-1e-3", "1e400", ".", "e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := decimal(text); err == nil && r == nil {
			t.Errorf("%q is nothing", text)
		}
	})
}

func TestEveryExpressionThatDoesNotCompileIsNamed(t *testing.T) {
	_, err := New(Spec{
		Where: "rec.x >", Key: "nobody", Aggregates: []Field{{"a", "rec.x"}, {"b", "sum()"}, {"c", "count(rec.x)"}, {"d", "sum(rec.x, 3)"}, {"e", "top_k(rec.x, rec.y)"}},
	})
	if err == nil {
		t.Fatal("it compiles")
	}
	for _, want := range []string{"where:", "key:", "aggregate a:", "aggregate b:", "aggregate c:", "aggregate d:", "aggregate e:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

func TestARecordIsReadAsThePipelineDoes(t *testing.T) {
	p, err := New(Spec{
		Format: "json", EventTime: "rec.at", Where: "rec.x > 0", Key: "rec.k", Window: verify.Window{Kind: verify.Tumbling},
		Aggregates: []Field{{"sum", "sum(rec.x)"}, {"exact", "sum(decimal(rec.p))"}, {"some", "max(rec.?y)"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		value      string
		bad        bool
		keep, time bool
		refused    int // index of the value that an aggregate cannot take, -1: none
	}{
		"good":                        {`{"at":5,"x":1,"k":"a","p":"1.5"}`, false, true, true, -1},
		"filtered":                    {`{"at":5,"x":0}`, false, false, true, -1},
		"filtered, no time":           {`{"x":0}`, false, false, false, -1},
		"no time":                     {`{"x":1,"k":"a","p":"1"}`, true, false, false, -1},
		"a tombstone":                 {``, true, false, false, -1},
		"no object":                   {`[1]`, true, false, false, -1},
		"no key":                      {`{"at":5,"x":1,"p":"1"}`, true, false, false, -1},
		"an integer too large unused": {`{"at":5,"x":1,"k":"a","p":"1","z":99999999999999999999}`, false, true, true, -1},
		"no decimal":                  {`{"at":5,"x":1,"k":"a","p":"x"}`, false, true, true, 1},
		"a double is no decimal":      {`{"at":5,"x":1,"k":"a","p":1.5}`, false, true, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := stream.Record{Value: []byte(c.value)}
			if c.value == "" {
				r.Value = nil
			}
			seen, err := p.read(&r)
			if (err != nil) != c.bad || !c.bad && (seen.Keep != c.keep || seen.Timed != c.time) {
				t.Fatalf("%+v, %v", seen, err)
			}
			for i, v := range seen.Values {
				if _, refused := v.(verify.Refused); !c.bad && refused != (i == c.refused) {
					t.Errorf("value %d is %v", i, v)
				}
			}
			if len(seen.Values) == 3 && seen.Values[2] != (verify.Absent{}) {
				t.Errorf("what is absent is %v", seen.Values[2])
			}
		})
	}
}
