package aggregate

import (
	"errors"
	"strings"
	"testing"
)

// stats has accumulators of every way to be put back.
type stats struct {
	count  int64
	sum    int64
	float  FloatSum
	set    Set
	tally  Tally
	first  Moment
	number NumberSum
	texts  []string
	texts2 []string
}

// texts is an aggregate as a user may write one: memory behind pointers, no Check. It takes no text of two bytes.
type texts struct{}

var errTwo = errors.New("two bytes")

func (texts) Name() string       { return "texts" }
func (texts) Init(acc *[]string) { *acc = nil }
func (texts) Merge(acc, other *[]string) error {
	*acc = append((*acc)[:len(*acc):len(*acc)], *other...)
	return nil
}

func (texts) Add(acc *[]string, r *reading) error {
	if len(r.text) == 2 {
		return errTwo
	}
	*acc = append(*acc, r.text)
	return nil
}

func (texts) Encode(dst []byte, acc *[]string) []byte {
	for _, s := range *acc {
		dst = appendValue(dst, []byte(s))
	}
	return dst
}

func (texts) Decode(src []byte, acc *[]string) error {
	*acc = nil
	r := reader{rest: src}
	for len(r.rest) > 0 {
		*acc = append(*acc, string(r.value()))
	}
	return r.end()
}

func even(r *reading) bool { return r.at%2 == 0 }

// allFields is with every kind of aggregate, those that fail often at both ends.
func allFields(limit int) Of[reading, stats] {
	return Fields(
		Field("texts", Of[reading, []string](texts{}), func(s *stats) *[]string { return &s.texts }),
		Field("sum", Sum(value), func(s *stats) *int64 { return &s.sum }),
		Field("set", Distinct(limit, text), func(s *stats) *Set { return &s.set }),
		Field("count", Where(even, Count[reading]()), func(s *stats) *int64 { return &s.count }),
		Field("first", First(at, text), func(s *stats) *Moment { return &s.first }),
		Field("tally", Where(even, TopK(limit, text)), func(s *stats) *Tally { return &s.tally }),
		Field("texts2", Where(even, Of[reading, []string](texts{})), func(s *stats) *[]string { return &s.texts2 }),
		Field("number", SumNumber(num), func(s *stats) *NumberSum { return &s.number }),
		Field("float", SumFloat(float), func(s *stats) *FloatSum { return &s.float }),
	)
}

func rows() Of[reading, Row] {
	return Fields(
		Field("count", Count[reading](), Cell[int64](0)),
		Field("sum", SumNumber(num), Cell[NumberSum](1)),
		Field("set", Distinct(3, text), Cell[Set](2)),
	)
}

func TestFieldsHaveAllOrNoneOfARecord(t *testing.T) {
	agg := allFields(3)
	var s stats
	agg.Init(&s)
	good := reading{text: "a", value: 1, float: 1, number: intNumber(1)}
	for i, bad := range []struct {
		change func(r *reading)
		err    error
		name   string
	}{
		{func(r *reading) { r.value = 1<<63 - 1 }, ErrOverflow, "sum: "},
		{func(r *reading) { r.text = "bc" }, errTwo, "texts"},
		{func(r *reading) { r.text = strings.Repeat("x", MaxValue+1) }, ErrTooLong, ": "},
		{func(r *reading) { r.float = nan() }, ErrNotFinite, "float: "},
	} {
		if err := agg.Add(&s, &good); err != nil {
			t.Fatal(err)
		}
		before := agg.Encode(nil, &s)
		rec := good
		bad.change(&rec)
		err := agg.Add(&s, &rec)
		if !errors.Is(err, bad.err) || !strings.Contains(err.Error(), bad.name) {
			t.Errorf("%d: got %v, want %v of %q", i, err, bad.err, bad.name)
		}
		if after := agg.Encode(nil, &s); string(after) != string(before) {
			t.Errorf("%d: %x of %x", i, after, before)
		}
	}
	if s.count != 4 || s.sum != 4 || s.set.Len() != 1 || s.float.Value() != 4 || len(s.texts) != 4 {
		t.Errorf("got %+v", s)
	}
}

func TestRowsHoldWhatFieldsSay(t *testing.T) {
	agg := rows()
	row := fold(t, agg, []reading{{text: "a", number: intNumber(2)}, {text: "b", number: intNumber(3)}})
	if *row.At(0).(*int64) != 2 || row.At(1).(*NumberSum).Value().String() != "5" || row.At(2).(*Set).Len() != 2 {
		t.Errorf("got %v", row)
	}
	if want := `fields("count"=count,"sum"=sum_number,"set"=distinct)`; agg.Name() != want {
		t.Errorf("named %s, want %s", agg.Name(), want)
	}
}

func TestMistakesInFieldsAreAllNamed(t *testing.T) {
	agg := Fields(
		Field("a", Distinct(0, text), Cell[Set](0)),
		Field("a", Where(even, Quantiles(7, float)), Cell[Distribution](1)),
		Field("b", Count[reading](), Cell[int64](2)),
	)
	err := agg.(Validator).Validate()
	for _, want := range []string{"a: the limit of distinct is 0", `two fields are named "a"`, "a: the relative error of quantiles is 7"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := Fields[reading, Row]().(Validator).Validate(); err == nil {
		t.Error("no fields were taken")
	}
	if err := allFields(3).(Validator).Validate(); err != nil {
		t.Error(err)
	}
}

// TestACheckThatLiesStopsTheProcess: what it took was added to others already.
func TestACheckThatLiesStopsTheProcess(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the record is in some fields and not in others")
		}
	}()
	agg := Fields(
		Field("set", Distinct(3, text), func(s *stats) *Set { return &s.set }),
		Field("texts", Of[reading, []string](liar{}), func(s *stats) *[]string { return &s.texts }),
	)
	var s stats
	agg.Init(&s)
	_ = agg.Add(&s, &reading{text: "bc"})
}

type liar struct{ texts }

func (liar) Check(*[]string, *reading) error { return nil }
