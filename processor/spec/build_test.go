package spec_test

import (
	"strings"
	"testing"

	"github.com/unisink/unisink/processor/stream"
)

const window = `
pipeline: p
source: {mem: {}, event_time: rec.at}
where: rec.cents > 0
key: rec.customer
window:
  tumbling: 1s
  aggregate: {n: count(), cents: sum(rec.cents)}
sinks: [{name: out, mem: {}}]
`

func order(customer string, cents, at string) string {
	return `{"customer":"` + customer + `","cents":` + cents + `,"at":` + at + `}`
}

func TestAWindowOfOrders(t *testing.T) {
	w := newWorld()
	w.value(7, order("ada", "5", "0"), order("bob", "2", "10"), order("ada", "7", "999"), order("ada", "-1", "999"), order("ada", "1", "1000"))
	expect(t, w.must(t, window),
		`ada {"key":"ada","window_start":0,"window_end":1000,"n":2,"cents":12}`,
		`bob {"key":"bob","window_start":0,"window_end":1000,"n":1,"cents":2}`,
		`ada {"key":"ada","window_start":1000,"window_end":2000,"n":1,"cents":1}`)
}

func TestEveryAggregate(t *testing.T) {
	w := newWorld()
	for _, v := range []string{
		`{"x":1,"p":"1.10","s":"a"}`, `{"x":2.5,"p":"2.20","s":"b"}`, `{"x":4,"p":"0.70","s":"a"}`, `{"x":2.5,"p":"3","s":"c\"\n"}`,
	} {
		w.value(7, v)
	}
	expect(t, w.must(t, `
pipeline: p
source: {mem: {}}
key: "'all'"
window:
  tumbling: 1s
  aggregate:
    n: count()
    sum: sum(rec.x)
    min: min(rec.x)
    max: max(rec.x)
    avg: avg(rec.x)
    price: sum(decimal(rec.p))
    mean: avg(decimal(rec.p))
    different: distinct(rec.s)
    about: approx_distinct(rec.s)
    first: first(rec.s)
    last: last(rec.s)
    top: top_k(rec.s, 1)
    median: quantile(rec.x, 0.5)
    none: sum(rec.?gone)
sinks: [{name: out, mem: {}}]
`), `all {"key":"all","window_start":0,"window_end":1000,"n":4,"sum":10.0,"min":1,"max":4,"avg":2.5,"price":"7.00","mean":"1.75000000",`+
		`"different":3,"about":3,"first":"a","last":"c\"\n","top":[{"value":"a","count":2}],"median":2.5,"none":null}`)
}

func TestFieldsOfASinkAreComputedFromTheResult(t *testing.T) {
	w := newWorld()
	w.value(7, order("ada", "5", "0"), order("ada", "6", "10"))
	text := strings.Replace(window, "{name: out, mem: {}}", `{name: out, mem: {}, key: "key + '!'", fields: {who: key, mean: double(cents) / double(n), big: cents > 10, since: timestamp(window_start / 1000), gone: optional.none()}}, {name: raw, mem: {}, format: string, value: "key == 'ada' ? dyn(null) : string(cents)"}`, 1)
	expect(t, w.must(t, text), `ada! {"who":"ada","mean":5.5,"big":true,"since":"1970-01-01T00:00:00Z"}`)
	expect(t, w.lines("raw"), "ada nil")
}

func TestPassThroughKeepsWhatARecordIs(t *testing.T) {
	w := newWorld()
	headers := []stream.Header{{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}}
	w.source.Append("0", stream.Record{Key: []byte("k"), Value: []byte("not JSON"), Headers: headers, Time: 17},
		stream.Record{Time: 18}, stream.Record{Key: []byte{}, Value: []byte{}, Time: 19})
	got := w.must(t, `
pipeline: p
source: {mem: {}}
sinks: [{name: out, mem: {}}]
`)
	expect(t, got, "k not JSON h=1 h=", "nil nil", " ")
	for i, c := range w.sinks["out"].Committed() {
		if c.Record.Time != int64(17+i) {
			t.Errorf("record %d has the time %d", i, c.Record.Time)
		}
	}
}

func TestMappedRecords(t *testing.T) {
	w := newWorld()
	w.source.Append("0", stream.Record{Key: []byte("k"), Value: []byte(`{"a":{"b":[1, {"c":2}]},"x":3}`), Headers: []stream.Header{{Key: "h", Value: []byte("v")}}})
	expect(t, w.must(t, `
pipeline: p
source: {mem: {}}
map: {inner: rec.a.b, twice: rec.x * 2, from: string(headers.h) + '@' + topic, all: "{'z': 1, 'a': rec.x}"}
key: "rec.twice"
sinks:
  - {name: out, mem: {}}
  - {name: two, mem: {}, key: key, value: "{'t': rec.twice + 1, 'rec': rec}"}
`), `6 {"inner":[1,{"c":2}],"twice":6,"from":"v@source","all":{"a":3,"z":1}} h=v`)
	expect(t, w.lines("two"), `k {"rec":{"inner":[1,{"c":2}],"twice":6,"from":"v@source","all":{"a":3,"z":1}},"t":7} h=v`)
}

func TestLateAndDeadLetters(t *testing.T) {
	w := newWorld()
	w.source.Batch = 1
	w.value(7, order("ada", "5", "0"), order("ada", "1", "5000"), order("bob", "2", "10"), `{"customer":"x"}`, `[1]`, order("eve", `"3"`, "5001"))
	text := strings.Replace(window, "sinks: [", "on_error: {dead_letter: bad}\nlate: late\nsinks: [{name: bad, mem: {}}, {name: late, mem: {}, fields: {who: rec.customer, at: rec.at}, key: rec.customer}, ", 1)
	expect(t, w.must(t, text),
		`ada {"key":"ada","window_start":0,"window_end":1000,"n":1,"cents":5}`,
		`ada {"key":"ada","window_start":5000,"window_end":6000,"n":1,"cents":1}`)
	expect(t, w.lines("late"), `bob {"who":"bob","at":10} unisink-origin=source/0/2`)
	expect(t, w.lines("bad"),
		`nil {"customer":"x"} unisink-reason=decode: where: the record has no field rec.cents unisink-origin=source/0/3`,
		`nil [1] unisink-reason=decode: not a JSON object, at byte 0 unisink-origin=source/0/4`,
		`nil {"customer":"eve","cents":"3","at":5001} unisink-reason=decode: where: a string and an integer cannot be used with ">" unisink-origin=source/0/5`)
}

// TestNoBadRecordIsTakenHalf: a record that one aggregate refuses reaches none.
func TestNoBadRecordIsTakenHalf(t *testing.T) {
	w := newWorld()
	w.value(7, order("ada", "9223372036854775807", "0"), order("ada", "1", "1"), order("ada", "9223372036854775808", "2"), order("ada", "0.5", "3"))
	text := strings.Replace(strings.Replace(window, "sinks:", "on_error: skip\nsinks:", 1), "sum(rec.cents)", "sum(rec.cents), m: 'quantile(rec.cents, 1)'", 1)
	expect(t, w.must(t, text), `ada {"key":"ada","window_start":0,"window_end":1000,"n":2,"cents":9223372036854776000.0,"m":9223372036854776000.0}`)
}
