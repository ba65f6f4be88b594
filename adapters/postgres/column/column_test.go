package column_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/unisink/unisink/adapters/postgres/column"
	"github.com/unisink/unisink/processor/stream"
)

// The types, by their OIDs and modifiers in PostgreSQL.
var (
	int2        = column.TypeOf(21, -1, "smallint")
	int4        = column.TypeOf(23, -1, "integer")
	int8        = column.TypeOf(20, -1, "bigint")
	float4      = column.TypeOf(700, -1, "real")
	float8      = column.TypeOf(701, -1, "double precision")
	numeric     = column.TypeOf(1700, -1, "numeric")
	money       = column.TypeOf(1700, 10<<16|2+4, "numeric(10,2)")
	thousands   = column.TypeOf(1700, 3<<16|(-3&0x7ff)+4, "numeric(3,-3)")
	boolean     = column.TypeOf(16, -1, "boolean")
	text        = column.TypeOf(25, -1, "text")
	varchar     = column.TypeOf(1043, 3+4, "character varying(3)")
	bytea       = column.TypeOf(17, -1, "bytea")
	timestamptz = column.TypeOf(1184, -1, "timestamp with time zone")
	timestamp   = column.TypeOf(1114, -1, "timestamp without time zone")
	millis      = column.TypeOf(1184, 3, "timestamp(3) with time zone")
	wholeSecond = column.TypeOf(1114, 0, "timestamp(0) without time zone")
	clock       = column.TypeOf(1083, -1, "time without time zone")
	clockTenths = column.TypeOf(1266, 1, "time(1) with time zone")
	interval    = column.TypeOf(1186, -1, "interval")
	intervalSec = column.TypeOf(1186, 0x7fff<<16|2, "interval(2)")
	name        = column.TypeOf(19, -1, "name")
	oneByte     = column.TypeOf(18, -1, `"char"`)
	date        = column.TypeOf(1082, -1, "date")
	jsonText    = column.TypeOf(114, -1, "json")
	jsonb       = column.TypeOf(3802, -1, "jsonb")
	uuid        = column.TypeOf(2950, -1, "uuid")
)

// row is what a record becomes in columns of one type.
func row(t *testing.T, r stream.Record, cols ...column.Column) (column.Row, error) {
	t.Helper()
	w := column.NewWriter(cols, false)
	if err := w.Open(&r); err != nil {
		return nil, err
	}
	return w.Fill(&r, column.Epoch{Generation: 7, N: 12}, false)
}

// Errors reach logs and the causes that the group keeps: they name column, type and place, never what stood there.
func TestNothingOfARefusedValueIsShown(t *testing.T) {
	for _, typ := range []column.Type{int2, int4, int8, float4, float8, numeric, money, boolean, varchar, bytea, timestamptz, timestamp, millis, clock, date, jsonb, uuid, oneByte} {
		for _, secret := range []string{`4711.0815`, `"4711 0815 now"`, `{"4711":"0815\u0000"}`, `["4711","0815\u0000"]`, `4711`} {
			_, err := row(t, stream.Record{Value: []byte(`{"f":` + secret + `}`)}, column.Column{Name: "col", From: column.From{Part: column.Field, Name: "f"}, Type: typ})
			if err != nil && (strings.Contains(err.Error(), "4711") || strings.Contains(err.Error(), "0815")) {
				t.Errorf("%s shows %s: %v", typ.Name, secret, err)
			}
		}
	}
	for text, want := range map[string]string{`{"f":@}`: "it is no JSON at byte 6", `4711`: "cannot unmarshal number"} {
		_, err := row(t, stream.Record{Value: []byte(text)}, column.Column{Name: "col", From: column.From{Part: column.Field, Name: "f"}, Type: varchar})
		if err == nil || strings.ContainsAny(err.Error(), "@7") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestAValueFitsOrIsRefusedByName(t *testing.T) {
	for _, c := range []struct {
		typ  column.Type
		json string
		want string // what PostgreSQL reads; "!" and a part of the sentence: refused; "<null>"
	}{
		{int2, `32767`, "32767"},
		{int2, `32768`, "!is no whole number of 16 bits"},
		{int4, `-2147483648`, "-2147483648"},
		{int4, `1.0`, "1"},
		{int4, `12e2`, "1200"},
		{int4, `1.5`, "!is no whole number of 32 bits"},
		{int4, `"17"`, "17"},
		{int4, `"x"`, "!is no number"},
		{int4, `true`, "!is a boolean"},
		{int4, `{}`, "!is an object"},
		{int4, `null`, "<null>"},
		{int8, `9223372036854775807`, "9223372036854775807"},
		{int8, `9223372036854775808`, "!64 bits"},
		{int8, `-9223372036854775808`, "-9223372036854775808"},
		{int8, `-1000000000000000000`, "-1000000000000000000"},
		{int8, `1e99999999`, "!is no number"},
		{int8, `0e99999999`, "0"},
		{float8, `0.1`, "0.1"},
		{float8, `1e400`, "!out of the range"},
		{float8, `1e-400`, "!out of the range"},
		{float8, `"NaN"`, "NaN"},
		{float8, `"inf"`, "!is no number"},
		{float8, `"0x10"`, "!is no number"},
		{float4, `3.4e38`, "3.4e+38"},
		{float4, `3.5e38`, "!out of the range"},
		{numeric, `1234567890123456789012345678901234567890.00000000000000000001`, "1234567890123456789012345678901234567890.00000000000000000001"},
		{numeric, `"12345678901234567890.5"`, "12345678901234567890.5"},
		{numeric, `1e-3`, "0.001"},
		{numeric, `-1.5E+3`, "-1500"},
		{numeric, `1e131073`, "!more digits"},
		{numeric, `"NaN"`, "NaN"},
		{money, `12345678.9`, "12345678.9"},
		{money, `12345678.90`, "12345678.9"},
		{money, `0.001`, "!would be rounded to 2 digits"},
		{money, `123456789`, "!more than 8 digits before the point"},
		{money, `"NaN"`, "!is no number"},
		{money, `0.00000`, "0"},
		{thousands, `999000`, "999000"},
		{thousands, `1500`, "!would be rounded"},
		{boolean, `true`, "true"},
		{boolean, `"true"`, "!is a string, and neither true nor false"},
		{boolean, `1`, "!is a number"},
		{text, `"a\tb\n\\"`, "a\tb\n\\"},
		{text, `"\u00e4\ud83d\ude00"`, "ä😀"},
		{text, `"\ufffd"`, "\uFFFD"},
		{text, `"\ud83d"`, "!half a character"},
		{text, `"\ude00"`, "!half a character"},
		{text, `"\ud83d\ud83d\ude00"`, "!half a character"},
		{text, `"\ud83dx"`, "!half a character"},
		{text, `"\\ufffd \ud83d"`, "!half a character"},
		{text, `"\\\ud83d\\"`, "!half a character"},
		{text, `"\\ud83d"`, `\ud83d`},
		{text, `"\n\uFFFD\\\u00e4\""`, "\n\uFFFD\\ä\""},
		{text, `"a\u0000"`, "!NUL"},
		{text, `5`, "!is a number, and must be text in a string"},
		{text, `[1]`, "!is a list"},
		{varchar, `"äöü"`, "äöü"},
		{varchar, `"äöüx"`, "!has 4 characters, and the column takes 3"},
		{bytea, `"AQI="`, `\x0102`},
		{bytea, `"AQI"`, "!is no base64"},
		{bytea, `1`, "!is a number"},
		{timestamptz, `1700000000123`, "2023-11-14 22:13:20.123Z"},
		{timestamptz, `"2023-11-14T23:13:20.123456+01:00"`, "2023-11-14 22:13:20.123456Z"},
		{timestamptz, `"2023-11-14 23:13:20Z"`, "2023-11-14 23:13:20Z"},
		{timestamptz, `"2023-11-14T23:13:20"`, "!is no time like"},
		{timestamptz, `"now"`, "!is no time like"},
		{timestamptz, `1.5`, "!is no time: a number is Unix milliseconds"},
		{timestamptz, `999999999999999`, "!outside of the years"},
		{timestamp, `"2023-11-14T23:13:20"`, "2023-11-14 23:13:20"},
		{timestamp, `"2023-11-14T23:13:20+01:00"`, "2023-11-14 22:13:20"},
		{timestamptz, `"2023-11-14T23:13:20.1234560000001Z"`, "!would be rounded to 6 digits of a second"},
		{timestamptz, `"2023-11-14T23:13:20.123456000+01:00"`, "2023-11-14 22:13:20.123456Z"},
		{timestamptz, `"2023-11-14T23:13:20.1234567Z"`, "!would be rounded to 6 digits of a second"},
		{timestamp, `"2023-11-14T23:13:20,123456789"`, "!would be rounded to 6 digits of a second"},
		{millis, `1700000000123`, "2023-11-14 22:13:20.123Z"},
		{millis, `"2023-11-14T23:13:20.1231Z"`, "!would be rounded to 3 digits of a second"},
		{wholeSecond, `1700000000000`, "2023-11-14 22:13:20"},
		{wholeSecond, `1700000000100`, "!would be rounded to 0 digits of a second"},
		{clock, `"12:00:00.123456"`, "12:00:00.123456"},
		{clock, `"12:00:00.1234567"`, "!would be rounded to 6 digits of a second"},
		{clock, `"now"`, "!is no time of day"},
		{clockTenths, `"12:00:00.12+01"`, "!would be rounded to 1 digits of a second"},
		{interval, `"1 day 2.5 seconds"`, "1 day 2.5 seconds"},
		{interval, `"PT0.0000001S"`, "!would be rounded to 6 digits of a second"},
		{intervalSec, `"1.5 days 0.001 s"`, "!would be rounded to 2 digits of a second"},
		{name, `"` + strings.Repeat("n", 63) + `"`, strings.Repeat("n", 63)},
		{name, `"` + strings.Repeat("n", 62) + `ä"`, "!has 64 bytes, and the column takes 63"},
		{oneByte, `"ab"`, "!has 2 bytes, and the column takes 1"},
		{date, `"2024-02-29"`, "2024-02-29"},
		{date, `"2023-02-29"`, "!is no date"},
		{date, `20240229`, "!is no date"},
		{jsonText, `{"a":[1, null]}`, `{"a":[1, null]}`},
		{jsonText, `null`, `<null>`},
		{jsonb, `"\\u0000"`, `"\\u0000"`},
		{jsonb, `"\u0000"`, "!holds a NUL"},
		{jsonb, `"\\\u0000"`, "!holds a NUL"},
		{uuid, `"6f1c2a4e-0000-4000-8000-000000000000"`, "6f1c2a4e-0000-4000-8000-000000000000"},
		{uuid, `7`, "!is a number"},
	} {
		t.Run(c.typ.Name+" "+c.json, func(t *testing.T) {
			got, err := row(t, stream.Record{Value: []byte(`{"f":` + c.json + `}`)}, column.Column{Name: "col", From: column.From{Part: column.Field, Name: "f"}, Type: c.typ})
			check(t, got, err, c.want)
		})
	}
}

// check compares the first column of a row.
func check(t *testing.T, got column.Row, err error, want string) {
	t.Helper()
	if why, refused := strings.CutPrefix(want, "!"); refused {
		var m *column.Misfit
		if !errors.As(err, &m) || m.Column != "col" || !strings.Contains(err.Error(), why) {
			t.Errorf("error %v, want a misfit of col with %q", err, why)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	is := "<null>"
	if got[0] != nil {
		is = string(got[0])
	}
	if is != want {
		t.Errorf("%q, want %q", is, want)
	}
}

func TestPartsOfARecordStandInColumns(t *testing.T) {
	r := stream.Record{
		Key: []byte("k1"), Value: []byte(`{"a":1}`), Time: 1_700_000_000_000,
		Headers: []stream.Header{{Key: "h", Value: []byte("old")}, {Key: "h", Value: []byte("new")}, {Key: "raw", Value: []byte{0xff}}, {Key: "none"}},
	}
	for _, c := range []struct {
		from string
		typ  column.Type
		want string
	}{
		{"key()", text, "k1"},
		{"key()", bytea, `\x6b31`},
		{"key()", int4, "!the key is no number"},
		{"value()", jsonb, `{"a":1}`},
		{"value()", text, `{"a":1}`},
		{"value()", bytea, `\x7b2261223a317d`},
		{"time()", timestamptz, "2023-11-14 22:13:20Z"},
		{"time()", int8, "1700000000000"},
		{"header(h)", text, "new"},
		{"header(nobody)", text, "<null>"},
		{"header(none)", text, "<null>"},
		{"header(raw)", text, "!the header \"raw\" is no UTF-8; a column of type bytea takes any bytes"},
		{"headers()", jsonb, `[{"key":"h","value":"old"},{"key":"h","value":"new"},{"key":"raw","value":{"base64":"/w=="}},{"key":"none","value":null}]`},
		{"a", int4, "1"},
		{"absent", int4, "<null>"},
		{"absent", jsonb, "<null>"},
	} {
		t.Run(c.from+" "+c.typ.Name, func(t *testing.T) {
			from, err := column.ParseFrom(c.from)
			if err != nil {
				t.Fatal(err)
			}
			if from.String() != c.from {
				t.Errorf("it prints as %q", from)
			}
			got, err := row(t, r, column.Column{Name: "col", From: from, Type: c.typ})
			check(t, got, err, c.want)
		})
	}
	got, err := row(t, r, column.Column{Name: "g", From: column.From{Part: column.Generation}, Type: int8}, column.Column{Name: "n", From: column.From{Part: column.N}, Type: int8})
	if err != nil || string(got[0]) != "7" || string(got[1]) != "12" {
		t.Errorf("the epoch is %q, %v", got, err)
	}
}

func TestWhatIsNoPartOfARecordIsRefused(t *testing.T) {
	for _, text := range []string{"", "keys()", "header()", "key(x)", "count(x)"} {
		if from, err := column.ParseFrom(text); err == nil {
			t.Errorf("%q is read as %v", text, from)
		}
	}
}

func TestARecordThatIsNoRowIsRefused(t *testing.T) {
	cols := []column.Column{
		{Name: "id", From: column.From{Part: column.Field, Name: "id"}, Type: int4, NotNull: true, Key: true},
		{Name: "v", From: column.From{Part: column.Field, Name: "v"}, Type: text},
	}
	for value, want := range map[string]string{
		`{"id":1,"v":"x","gone":true}`: "",
		`{"id":1,"w":"x"}`:             `the value has a field "w", for which no column is written`,
		`{"v":"x"}`:                    `column "id" may not be null, and the field "id" is not there or null`,
		`[1]`:                          "the value is no JSON object",
		`null`:                         "the value is no JSON object with fields: it is null",
		`{"id":1`:                      "the value is no JSON object",
		"{\"id\":1,\"v\":\"\xff\"}":    "no UTF-8",
	} {
		w := column.NewWriter(cols, true, "gone")
		r := stream.Record{Value: []byte(value)}
		err := w.Open(&r)
		if err == nil {
			_, err = w.Fill(&r, column.Epoch{}, false)
		}
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", value, err, want)
		}
	}
}

func TestARowThatGoesNeedsItsKeyAlone(t *testing.T) {
	w := column.NewWriter([]column.Column{
		{Name: "v", From: column.From{Part: column.Field, Name: "v"}, Type: text, NotNull: true},
		{Name: "id", From: column.From{Part: column.Key}, Type: int4, NotNull: true, Key: true},
	}, false, "gone")
	r := stream.Record{Key: []byte("17"), Value: []byte(`{"gone":true}`)}
	if err := w.Open(&r); err != nil {
		t.Fatal(err)
	}
	if gone, err := w.True("gone"); err != nil || !gone {
		t.Errorf("gone is %v, %v", gone, err)
	}
	got, err := w.Fill(&r, column.Epoch{}, true)
	if err != nil || len(got) != 1 || string(got[0]) != "17" {
		t.Errorf("%q, %v", got, err)
	}
	r.Value = []byte(`{"gone":1}`)
	if err := w.Open(&r); err != nil {
		t.Fatal(err)
	}
	if _, err := w.True("gone"); err == nil {
		t.Error("1 was taken for true or false")
	}
}

// A number is written as it was, or refused: whatever its form, the column holds exactly it.
func FuzzNumeric(f *testing.F) {
	for _, s := range []string{"0", "-0.0", "1e5", "1.50", "123e-7", "9999999999999999999999", "00.1", "-12.345e2", "1e-16390"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := stream.Record{Key: []byte(s)}
		got, err := row(t, r, column.Column{Name: "col", From: column.From{Part: column.Key}, Type: numeric})
		if err != nil {
			return
		}
		if special := bytes.Contains([]byte("NaN Infinity -Infinity"), got[0]); special && string(got[0]) == s {
			return
		}
		if len(got[0]) > 100 || string(got[0]) == "0" {
			return // so large an exponent takes the check too long, and zero has any
		}
		want, ok := new(big.Rat).SetString(strings.TrimPrefix(s, "+"))
		is, ok2 := new(big.Rat).SetString(string(got[0]))
		if !ok || !ok2 || want.Cmp(is) != 0 || strings.ContainsAny(string(got[0]), "eE_") {
			t.Errorf("%q became %q", s, got[0])
		}
	})
}

// The columns of a row do not touch each other, however much stands in them.
func TestColumnsAreApart(t *testing.T) {
	var cols []column.Column
	value := "{"
	for i := range 40 {
		name := fmt.Sprintf("f%d", i)
		cols = append(cols, column.Column{Name: name, From: column.From{Part: column.Field, Name: name}, Type: text})
		if i%3 > 0 {
			value += fmt.Sprintf("%q:%q,", name, strings.Repeat(name, i*10))
		}
	}
	got, err := row(t, stream.Record{Value: []byte(strings.TrimSuffix(value, ",") + "}")}, cols...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if want := strings.Repeat(fmt.Sprintf("f%d", i), i*10); i%3 > 0 && string(got[i]) != want || i%3 == 0 && got[i] != nil {
			t.Errorf("column %d is %.30q, want %.30q", i, got[i], want)
		}
	}
}
