package postgres

import (
	"strings"
	"testing"
)

func TestTheServersContextTellsThePlace(t *testing.T) {
	for _, c := range []struct {
		where, column string
		line          int
	}{
		{`COPY totals, line 17, column amount: "x"`, "amount", 17},
		{`COPY totals, line 17, column "odd, line 3: name": "x"`, `"odd, line 3: name"`, 17},
		{`COPY totals, line 2: "1	bad"`, "", 2},
		{"SQL function \"f\" during inlining\nCOPY t, line 3, column c: \"\"", "c", 3},
		{"", "", 0},
		{"while inserting", "", 0},
		{`COPY totals, line 99999999999999999999: "1"`, "", 0},
	} {
		line, column := copied(c.where)
		if line != c.line || column != c.column {
			t.Errorf("%q: line %d, column %q", c.where, line, column)
		}
	}
}

func FuzzCopied(f *testing.F) {
	f.Add(`COPY totals, line 17, column amount: "x"`)
	f.Fuzz(func(t *testing.T, where string) {
		if line, _ := copied(where); line < 0 || line > 0 && !strings.Contains(where, "line") {
			t.Errorf("line %d of %q", line, where)
		}
	})
}

func TestNamesOfTablesAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"t": `"t"`, "s.t": `"s"."t"`, `"a.b"."c""d"`: `"a.b"."c""d"`, `s."T"`: `"s"."T"`, `"x".y`: `"x"."y"`,
		strings.Repeat("x", 63): `"` + strings.Repeat("x", 63) + `"`,
	} {
		got, err := splitName(text)
		if err != nil || got.Sanitize() != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "is empty", ".t": "is empty", "s.": "no name of a table", "a.b.c": "no name of a table", `"a`: "nothing closes", `"a"b`: "no name of a table",
		"é" + strings.Repeat("x", 62): "has 64 bytes, and PostgreSQL takes 63", "a\x00": "holds what a name cannot", "s.\xff": "holds what a name cannot",
	} {
		if got, err := splitName(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, error %v, want %q", text, got, err, want)
		}
	}
}

func FuzzSplitName(f *testing.F) {
	for _, s := range []string{"t", `"a.b".c`, `"a""b"`, "..", `"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := splitName(s)
		if err != nil {
			return
		}
		again, err := splitName(name.Sanitize())
		if err != nil || again.Sanitize() != name.Sanitize() {
			t.Errorf("%q is %q, and again %q, %v", s, name, again, err)
		}
	})
}

// In rows ids are 32 bits wide, and start anew after 4,294,967,295: era after era.
func TestVersionsOfRowsAreJudgedBySnapshots(t *testing.T) {
	for _, c := range []struct {
		first, now string
		id         uint32
		wrote      bool
	}{
		{"100:110:103,105", "200:200:", 99, true},
		{"100:110:103,105", "200:200:", 103, false},
		{"100:110:103,105", "200:200:", 104, true},
		{"100:110:103,105", "200:200:", 110, false},
		{"100:110:103,105", "200:200:", 199, false},
		{"100:110:", "110:110:", 4294967295, true},                             // of no era before the first
		{"4294967390:4294967400:", "4294967500:4294967500:", 100, true},        // era + 100, below era + 104
		{"4294967390:4294967400:", "4294967500:4294967500:", 150, false},       // era + 150
		{"4294967390:4294967400:", "4294967500:4294967500:", 4294967000, true}, // of the era before
		{"4294967000:4294967000:", "4294967500:4294967500:", 4294967100, false},
		{"100:110:", "200:200:", 2, true}, // frozen
	} {
		first, err := readSnapshot(c.first)
		if err != nil {
			t.Fatal(err)
		}
		now, err := readSnapshot(c.now)
		if err != nil {
			t.Fatal(err)
		}
		if got := first.wrote(c.id, now); got != c.wrote {
			t.Errorf("%d at %s, seen at %s: written %v", c.id, c.first, c.now, got)
		}
	}
	for _, bad := range []string{"", "1:2", "1:x:", "1:2:x", "1:2:3:4"} {
		if s, err := readSnapshot(bad); err == nil {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}
