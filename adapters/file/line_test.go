package file_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/processor/stream"
)

// publish writes records as the sink does and returns the directory and the lines.
func publish(t *testing.T, lines file.Lines, in ...stream.Record) (dir string, text []string, err error) {
	t.Helper()
	ctx := context.Background()
	dir = t.TempDir()
	s, err := file.NewSink(file.SinkConfig{Dir: dir, Lines: lines})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Open(ctx, opening(1)); err != nil {
		t.Fatal(err)
	}
	b, err := s.Begin(ctx, branchName(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.(interface {
		Write(ctx context.Context, records []stream.Record) error
	}).Write(ctx, in); err != nil {
		return dir, nil, err
	}
	v, err := b.Prepare(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, v.Handle); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	all, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return dir, strings.Split(strings.TrimSuffix(string(all), "\n"), "\n"), nil
}

func TestALineHoldsTheWholeRecordWhateverItsBytesAre(t *testing.T) {
	in := []stream.Record{
		{
			Key: []byte("c-01"), Value: []byte("{\n \"cents\":"), Time: 1700000000000,
			Headers: []stream.Header{{Key: "trace", Value: []byte("<t1>")}, {Key: "trace", Value: nil}},
		},
		{Key: nil, Value: nil},
		{Key: []byte{}, Value: []byte{0xff, 0, '\n'}, Headers: []stream.Header{{Key: "\xfe", Value: []byte{}}}, Time: -1},
	}
	dir, text, err := publish(t, file.LineRecord, in...)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"key":"c-01","value":"{\n \"cents\":","timestamp":1700000000000,"headers":[{"key":"trace","value":"<t1>"},{"key":"trace","value":null}]}`,
		`{"key":null,"value":null,"timestamp":0,"headers":[]}`,
		`{"key":"","value":{"base64":"/wAK"},"timestamp":-1,"headers":[{"key":{"base64":"/g=="},"value":""}]}`,
	}
	if d := cmp.Diff(want, text); d != "" {
		t.Error(d)
	}
	s, err := file.NewSource(file.SourceConfig{Dir: dir, Lines: file.LineRecord})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b, err := s.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Records {
		b.Records[i].Topic, b.Records[i].Offset = "", 0
	}
	if d := cmp.Diff(in, b.Records); d != "" {
		t.Errorf("read back: %s", d)
	}
}

func TestAValueWithALineBreakIsRefusedAndSaysWhatHelps(t *testing.T) {
	_, _, err := publish(t, file.LineValue, stream.Record{Value: []byte("a\nb")})
	if err == nil || !strings.Contains(err.Error(), "write whole records instead of values") {
		t.Errorf("error %v", err)
	}
}

func TestEveryRecordIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bytes := rapid.SliceOfN(rapid.Byte(), 0, 20)
		in := stream.Record{Key: bytes.Draw(rt, "key"), Value: []byte(rapid.String().Draw(rt, "value")), Time: rapid.Int64().Draw(rt, "time")}
		for range rapid.IntRange(0, 3).Draw(rt, "headers") {
			in.Headers = append(in.Headers, stream.Header{Key: string(bytes.Draw(rt, "header")), Value: bytes.Draw(rt, "header value")})
		}
		_, text, err := publish(t, file.LineRecord, in)
		if err != nil {
			rt.Fatal(err)
		}
		out, err := file.ParseRecord([]byte(text[0]))
		if err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(in, out); d != "" {
			rt.Fatal(d)
		}
	})
}

func TestALineThatIsNoRecordIsTold(t *testing.T) {
	for _, line := range []string{
		``, `7`, `{"key":7}`, `{"key":"a","more":1}`, `{"key":{"base64":"%"}}`, `{"key":{"base32":"a"}}`, `{"key":{}}`, `{"key":"a"} {"key":"b"}`, `{"timestamp":"x"}`,
	} {
		if r, err := file.ParseRecord([]byte(line)); err == nil {
			t.Errorf("%s is read as %+v", line, r)
		}
	}
	if _, err := file.NewSink(file.SinkConfig{Dir: "x", Lines: "words"}); err == nil || !strings.Contains(err.Error(), `lines "words": a line is the value or the record`) {
		t.Errorf("error %v", err)
	}
	if _, err := file.NewSource(file.SourceConfig{Dir: "x", Lines: "words"}); err == nil {
		t.Error("a source took lines of words")
	}
}

func TestARecordThatIsNoLineIsNamedWithoutItsContent(t *testing.T) {
	for want, r := range map[string]stream.Record{
		"result 0 of this call, with a key of 4 bytes (SHA-256 begins with ": {Key: []byte("4711"), Value: []byte("0815\n0815")},
		"the record from in[0]@7": {Topic: "in", Offset: 7, Key: []byte("4711"), Value: []byte("0815\n0815")},
	} {
		_, _, err := publish(t, file.LineValue, r)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "4711") || strings.Contains(err.Error(), "0815") {
			t.Errorf("error %v, want %q and nothing of the record", err, want)
		}
	}
}
