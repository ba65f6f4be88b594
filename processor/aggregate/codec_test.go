package aggregate

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/processor/number"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden records have something of everything.
func golden(n int) []reading {
	var records []reading
	for i := range n {
		r := reading{
			at: int64(1_760_000_000_000 + i*7%5), value: int64(i*i - 20), float: float64(float64(i)*0.1) - 1,
			decimal: number.WholeDecimal(int64(i*100 - 250)), text: fmt.Sprintf("v%d", i*i%11),
		}
		r.number = number.OfInt(r.value)
		if i == n-1 {
			r.number = number.OfFloat(0.5)
		}
		records = append(records, r)
	}
	return records
}

// goldenOf are the subjects, whose state lies in snapshots that newer programs must read.
func goldenOf() []subject {
	return append(subjects(), of(ApproxDistinct(0.02, text)), of(Quantiles(0.001, float)))
}

// TestEncodingsAreThoseOfOlderPrograms: names are parts of fingerprints, and encodings lie in
// snapshots. A line that changes here makes state unreadable; give the aggregate a new name instead.
func TestEncodingsAreThoseOfOlderPrograms(t *testing.T) {
	var out strings.Builder
	for _, s := range goldenOf() {
		for _, n := range []int{0, 1, 9} {
			code, err := s.encodeAll(golden(n))
			if err != nil {
				fmt.Fprintf(&out, "%s of %d records: %v\n", s.name(), n, err)
				continue
			}
			fmt.Fprintf(&out, "%s of %d records: %x\n", s.name(), n, code)
		}
	}
	path := filepath.Join("testdata", "encodings.txt")
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != string(want) {
		t.Errorf("encodings changed:\n%s", got)
	}
	for line := range strings.Lines(string(want)) {
		name, code, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " records: ")
		src, err := hex.DecodeString(code)
		if !ok || err != nil {
			continue // an error
		}
		for _, s := range goldenOf() {
			if !strings.HasPrefix(name, s.name()+" of ") {
				continue
			}
			if back, err := s.decode(src); err != nil || !bytes.Equal(back, src) {
				t.Errorf("%s: came back as %x, %v", name, back, err)
			}
		}
	}
}

// TestTheRegistersAreThoseOfOlderPrograms: the estimate is as stable as the encoding.
func TestTheRegistersAreThoseOfOlderPrograms(t *testing.T) {
	var records []reading
	for i := range 3000 {
		records = append(records, reading{text: fmt.Sprint(i)})
	}
	agg := ApproxDistinct(0.1, text)
	acc := fold(t, agg, records)
	path := filepath.Join("testdata", "registers.txt")
	got := fmt.Sprintf("%s %d %x\n", agg.Name(), acc.Count(), agg.Encode(nil, &acc))
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("got %s, want %s, %v", got, want, err)
	}
}

func TestDamageIsAnError(t *testing.T) {
	nan := []byte{0x7f, 0xf8, 0, 0, 0, 0, 0, 1}
	one := appendFloat(nil, 1)
	half := appendFloat(nil, 0.5)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, c := range []struct {
		what string
		of   subject
		code []byte
	}{
		{"a number that does not end", of(Count[reading]()), bytes.Repeat([]byte{0xff}, 11)},
		{"NaN in a sum", of(SumFloat(float)), join([]byte{1}, nan)},
		{"a zero in a sum", of(SumFloat(float)), join([]byte{1}, make([]byte, 8))},
		{"a sum in another form", of(SumFloat(float)), join([]byte{2}, one, half)},
		{"a sum past the largest float", of(SumFloat(float)), join([]byte{2}, appendFloat(nil, 0x1.fffffffffffffp1023), appendFloat(nil, 0x1.fffffffffffffp1023))},
		{"more floats than there are bytes", of(SumFloat(float)), []byte{0xff, 0xff, 0xff, 0xff, 0x7f}},
		{"NaN as the least", of(MinFloat(float)), nan},
		{"the other infinity", of(MinFloat(float)), []byte{0xff, 0xf0, 0, 0, 0, 0, 0, 0}},
		{"39 digits behind the point", of(SumDecimal(decimal)), []byte{39 << 1, 0, 1}},
		{"negative zero", of(SumDecimal(decimal)), []byte{1, 0, 0}},
		{"39 digits", of(SumDecimal(decimal)), join([]byte{0}, bytes.Repeat([]byte{0xff}, 9), []byte{1}, make([]byte, 8))},
		{"a kind that there is not", of(SumNumber(num)), []byte{9}},
		{"a mean of no records with a sum", of(AvgNumber(num)), []byte{0, 1, 2}},
		{"a mean of records without a sum", of(AvgNumber(num)), []byte{2, 0}},
		{"a decimal where floats were seen", of(MinNumber(num)), []byte{byte(number.KindFloat), byte(number.KindDecimal), 0, 0, 1}},
		{"no number where floats were seen", of(MinNumber(num)), []byte{byte(number.KindFloat), byte(number.KindNone)}},
		{"integers were seen", of(MinNumber(num)), []byte{byte(number.KindInt), byte(number.KindInt), 2}},
		{"a value twice", of(Distinct(9, text)), []byte{2, 1, 'a', 1, 'a'}},
		{"a value too long", of(Distinct(9, text)), join([]byte{1}, appendValue(nil, make([]byte, MaxValue+1)))},
		{"more values than there are bytes", of(Distinct(9, text)), []byte{0xff, 0xff, 0xff, 0x7f, 1, 'a'}},
		{"more values than any limit", of(Distinct(9, text)), manyValues(MaxLimit + 1)},
		{"a value that never came", of(TopK(9, text)), []byte{1, 1, 'a', 0}},
		{"a count past 63 bits", of(TopK(9, text)), join([]byte{1, 1, 'a'}, bytes.Repeat([]byte{0xff}, 9), []byte{1})},
		{"a ranking upside down", of(Largest(3, value, text)), []byte{2, 2, 0, 4, 0}},
		{"more than k", of(Largest(1, value, text)), []byte{2, 4, 0, 2, 0}},
		{"a moment too long", of(First(at, text)), appendValue([]byte{2}, make([]byte, MaxValue+1))},
		{"hashes that fall", of(ApproxDistinct(0.1, text)), join([]byte{2}, one, half)},
		{"a hash twice", of(ApproxDistinct(0.1, text)), join([]byte{2}, one, one)},
		{"no such form", of(ApproxDistinct(0.1, text)), join([]byte{0x82, 2}, make([]byte, 128))},
		{"a register too large", of(ApproxDistinct(0.1, text)), join([]byte{0x81, 2}, make([]byte, 127), []byte{59})},
		{"bins that fall", of(Quantiles(0.5, float)), join([]byte{2}, half, one, []byte{0xf8, 0x1f, 1, 1, 1})},
		{"an empty bin", of(Quantiles(0.5, float)), join([]byte{1}, one, one, []byte{0xfc, 0x1f, 0})},
		{"a bin below the least", of(Quantiles(0.5, float)), join([]byte{2}, one, one, []byte{0xfa, 0x1f, 1, 2, 1})},
		{"a bin above the largest", of(Quantiles(0.5, float)), join([]byte{1}, one, one, []byte{0xfe, 0x1f, 1})},
		{"no bin of the largest", of(Quantiles(0.5, float)), join([]byte{1}, half, one, []byte{0xf8, 0x1f, 1})},
		{"the least above the largest", of(Quantiles(0.5, float)), join([]byte{1}, one, half, []byte{0xfc, 0x1f, 1})},
		{"counts past 63 bits", of(Quantiles(0.5, float)), join([]byte{2}, half, one, []byte{0xf8, 0x1f}, bytes.Repeat([]byte{0xff}, 8), []byte{0x7f, 4, 2})},
		{"a field that ends early", of(rows()), []byte{1, 2, 1, 0, 5, 0}},
		{"a field too few", of(rows()), []byte{1, 2, 1, 0}},
		{"a damaged field", of(rows()), []byte{1, 2, 1, 9, 1, 0}},
	} {
		if back, err := c.of.decode(c.code); err == nil {
			t.Errorf("%s: %x became %x", c.what, c.code, back)
		}
	}
}

// manyValues is the encoding of n values.
func manyValues(n int) []byte {
	code := binary.AppendUvarint(nil, uint64(n))
	for i := range n {
		code = append(code, 3, byte(i), byte(i>>8), byte(i>>16))
	}
	return code
}

func TestTheLargestLimitIsReachedAndReadBack(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a set to the limit in one goroutine; takes seconds under the race detector")
	}
	agg := Distinct(MaxLimit, text)
	var acc Set
	if err := agg.Decode(manyValues(MaxLimit), &acc); err != nil || acc.Len() != MaxLimit {
		t.Fatalf("%d values, %v", acc.Len(), err)
	}
	if err := agg.Add(&acc, &reading{text: "another"}); !errors.Is(err, ErrTooMany) {
		t.Errorf("got %v, want ErrTooMany", err)
	}
	if err := agg.Add(&acc, &reading{text: "\x01\x00\x00"}); err != nil {
		t.Error(err)
	}
}

// FuzzDecode: whatever comes is an error, or an accumulator that survives a snapshot. The first byte chooses the
// aggregate.
func FuzzDecode(f *testing.F) {
	all := goldenOf()
	for i, s := range all {
		for _, n := range []int{0, 2, 9} {
			if code, err := s.encodeAll(golden(n)); err == nil {
				f.Add(byte(i), code)
			}
		}
	}
	f.Fuzz(func(t *testing.T, which byte, src []byte) {
		s := all[int(which)%len(all)]
		code, err := s.decode(src)
		if err != nil {
			return
		}
		if again, err := s.decode(code); err != nil || !bytes.Equal(again, code) {
			t.Errorf("%s: %x came back as %x, %v", s.name(), code, again, err)
		}
	})
}

// TestDamagedBytesNeverPanic: a byte of an encoding changed.
func TestDamagedBytesNeverPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(goldenOf()).Draw(t, "aggregate")
		code, err := s.encodeAll(golden(5))
		if err != nil || len(code) == 0 {
			return
		}
		code[rapid.IntRange(0, len(code)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		if back, err := s.decode(code); err == nil {
			if again, err := s.decode(back); err != nil || !bytes.Equal(again, back) {
				t.Fatalf("%s: %x came back as %x, %v", s.name(), back, again, err)
			}
		}
	})
}
