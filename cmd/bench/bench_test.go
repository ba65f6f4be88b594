package bench

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/cmd/bench/worker"
	"github.com/unisink/unisink/processor/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestARecordIsJSONOf100Bytes(t *testing.T) {
	for _, n := range []int{0, 1, 999, 12_345_678, maxRecords - 1} {
		value := appendRecord(nil, n, 1_760_000_000_123)
		var doc struct {
			Key    string `json:"key"`
			Amount int64  `json:"amount"`
			At     int64  `json:"at"`
		}
		if err := json.Unmarshal(value, &doc); err != nil || len(value) != recordBytes {
			t.Fatalf("%d bytes: %s: %v", len(value), value, err)
		}
		id, err := idOf(value)
		if err != nil || id != n {
			t.Errorf("record %d calls itself %d (%v)", n, id, err)
		}
		if want := fmt.Sprintf("k-%04d", keyOf(n)); doc.Key != want || doc.Amount != amountOf(n) || doc.At != 1_760_000_000_123 {
			t.Errorf("record %d says %+v", n, doc)
		}
	}
}

func TestEventTimesAreWholeSecondsOf10000RecordsAndNotInTheFuture(t *testing.T) {
	now := time.Now()
	at := eventTimes(25_000, now)
	if at(0)%1000 != 0 || at(perSecond)-at(0) != 1000 || at(perSecond-1)-at(0) != 999 || at(24_999) > now.UnixMilli() {
		t.Errorf("event times %d, %d, %d, %d", at(0), at(perSecond-1), at(perSecond), at(24_999))
	}
}

func TestTheCheckSeesWhatIsMissingDoubledOrWrong(t *testing.T) {
	const n, first = 25_000, 7_000
	result := func(key int, window int64, change int64) *stream.Record {
		var sum, count int64
		for i := range n {
			if keyOf(i) == key && int64(i/perSecond) == window {
				sum, count = sum+amountOf(i), count+1
			}
		}
		return &stream.Record{Value: fmt.Appendf(nil, `{"key":"k-%04d","window_start":%d,"window_end":0,"sum":%d,"count":%d}`, key, first+window*1000, sum+change, count)}
	}
	s := newSums(n, first)
	if err := s.take(result(5, 1, 0)); err != nil {
		t.Error(err)
	}
	for name, r := range map[string]*stream.Record{
		"doubled": result(5, 1, 0), "wrong": result(6, 1, 1), "of no record": result(6, 9, 0), "no result": {Value: []byte("x")},
	} {
		if err := s.take(r); err == nil {
			t.Errorf("taken although it is %s", name)
		}
	}
	if err := s.whole(); err == nil || !strings.Contains(err.Error(), fmt.Sprint(3*keys-1)) {
		t.Errorf("got %v, want all but one missing", err)
	}

	o := newOnce(3)
	for _, id := range []int{0, 2} {
		if err := o.take(id); err != nil {
			t.Error(err)
		}
	}
	if o.take(2) == nil || o.take(3) == nil || o.whole() == nil {
		t.Error("a doubled, an unknown or a missing record was taken for good")
	}
}

func TestAnEventIsOverWhenNewOutputIsVisibleAndEveryPartitionIsPassed(t *testing.T) {
	e := newEye(2)
	now := time.Now()
	at := func(s float64) time.Time { return now.Add(time.Duration(s * float64(time.Second))) }
	record := func(n int, p int32) *stream.Record {
		return &stream.Record{Value: appendRecord(nil, n, 1_760_000_000_000), Partition: p}
	}
	e.made(0, now.Add(-time.Hour))
	before := e.canary()
	e.canaries[before] = now.Add(-time.Hour)
	e.arm()
	e.event = now
	take := func(r *stream.Record, s float64) {
		t.Helper()
		if err := e.take(r, at(s)); err != nil {
			t.Fatal(err)
		}
	}
	e.made(1, at(0.1))
	after := e.canary()
	e.canaries[after] = at(0.1)
	canaryIn := func(n int, p int32) *stream.Record {
		return &stream.Record{Value: fmt.Appendf(nil, "%s%d", canary, n), Partition: p}
	}
	take(record(0, 0), 0.2)        // made before
	take(canaryIn(before, 0), 0.2) // written before
	take(canaryIn(after, 0), 0.5)
	take(record(1, 1), 0.7)
	if isClosed(e.over()) {
		t.Error("over although a partition is blocked")
	}
	take(canaryIn(after, 1), 0.9)
	if !isClosed(e.over()) {
		t.Error("not over")
	}
	if v, u := e.felt(); v != 700*time.Millisecond || u != 900*time.Millisecond {
		t.Errorf("felt %s and %s, want 700ms and 900ms", v, u)
	}
	if err := e.take(record(1, 1), at(1)); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("got %v, want that record 1 came twice", err)
	}
	e.total(2)
	if !isClosed(e.all) {
		t.Error("all were seen, and it does not say so")
	}
}

func TestDelaysAreCountedBetweenWarmUpAndEnd(t *testing.T) {
	s := newSightings(worker.Pass, time.Second, time.Second, 10)
	now := time.Now()
	for n, made := range []float64{0, 0.5, 1.2, 1.9, 2.4, 3.7} {
		s.made(n, now.Add(time.Duration(made*float64(time.Second))))
		seen := now.Add(time.Duration((made + 0.1) * float64(time.Second)))
		if err := s.take(&stream.Record{Value: appendRecord(nil, n, 1_760_000_000_000)}, seen); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.delays) != 2 || s.delays[0] != 100 || s.delays[1] != 100 {
		t.Errorf("delays %v, want those of records 2 and 3", s.delays)
	}
	if !isClosed(s.done) {
		t.Error("a record that was made well after the end did not end it")
	}
}

func TestAWindowIsDueAtItsEnd(t *testing.T) {
	s := newSightings(worker.Window, 0, time.Hour, 0)
	due, err := s.due(&stream.Record{Value: []byte(`{"key":"k-0001","window_start":1760000001000,"sum":5,"count":1}`)})
	if err != nil || due.UnixMilli() != 1_760_000_002_000 {
		t.Errorf("due at %v (%v)", due, err)
	}
}

func TestEveryMistakeIsNamedAtOnce(t *testing.T) {
	err := PipelineConfig{Jobs: []string{"x"}, Epochs: []time.Duration{time.Millisecond}, Lab: LabConfig{Nodes: 2}}.Validate()
	for _, want := range []string{"0 records", "passes", "2 nodes", `no job "x"`, "too short"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	err = RecoverConfig{Events: []string{"x", EventBroker}, Lab: LabConfig{Nodes: 3, Brokers: []string{"b"}}}.Validate()
	for _, want := range []string{"repeats", "too short", `no event "x"`, "not killed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
