package adapters_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/cmd/adapters"
	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/internal/secrets"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/stream"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var (
	_ processor.Source = (*kafka.Source)(nil)
	_ processor.Sink   = (*file.Sink)(nil)
)

func all() []adapters.Adapter {
	return []adapters.Adapter{adapters.Kafka(), adapters.Postgres(), adapters.File()}
}

func env() spec.Env {
	password := secrets.Marker("spec-password")
	known := map[string]string{"BROKERS": "a:1,b:2", "PASSWORD": password, "BYTES": "x", "DSN": "postgres://u:" + password + "@h/d", "DSN2": "postgres://u:" + password + "@h/other"}
	return spec.Env{Logger: slog.New(slog.DiscardHandler), Lookup: func(name string) (string, bool) {
		v, ok := known[name]
		return v, ok
	}}
}

func parse(t *testing.T, text string) *spec.Document {
	t.Helper()
	doc, err := spec.Parse("p.yaml", []byte(text), env())
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// build makes every source and sink of a document.
func build(doc *spec.Document) error {
	var errs []error
	for _, a := range adapters.Specs(all(), doc) {
		for _, u := range adapters.Uses(doc, a.Kind) {
			var err error
			if u.Source {
				_, err = a.Source(env(), u.Name, u.Settings)
			} else {
				_, err = a.Sink(env(), u.Name, u.Settings)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

const everything = `pipeline: p
source:
  name: in
  kafka:
    brokers: "${BROKERS}"
    topics: [a, b]
    start: latest
    bounded: true
    group: lag
    client_id: c
    max_poll_records: 10
    max_poll_bytes: 100000
    new_partitions: 30s
    tls: {}
    sasl: {mechanism: SCRAM-SHA-256, user: u, password: {env: PASSWORD}}
sinks:
  - name: t
    kafka:
      brokers: [a:1]
      topic: o
      partition: from_record
      compression: zstd
      transaction_timeout: 1m
      witness_topic: w
      epoch_header: e
      max_buffered_bytes: 1000000
      client_id: c
      tls: {server_name: s}
      sasl: {mechanism: OAUTHBEARER, token: {env: PASSWORD}}
  - {name: f, file: {dir: out, lines: record, max_file_bytes: 1000}}
  - name: p
    postgres:
      dsn: {env: DSN}
      table: sales.totals
      write: upsert
      key: [id]
      columns: {id: key(), total: sum, at: time()}
      delete_when: gone
      generation_column: g
      epoch_column: n
      mode: staged
      lock_timeout: 1s
      retention: 48h
      pooler: true
`

func TestEverySettingIsTaken(t *testing.T) {
	if err := build(parse(t, everything)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := build(parse(t, fmt.Sprintf(`{pipeline: p, source: {file: {dir: %q, lines: record, follow: true, poll_every: 1s, batch_records: 10, max_record_bytes: 1000}}, sinks: [{name: f, file: {dir: x}}]}`, dir))); err != nil {
		t.Fatal(err)
	}
}

func TestSinksOfOneDatabaseAreSetUpInOneWay(t *testing.T) {
	const second = "  - name: q\n    postgres: {dsn: {env: DSN}, table: late, mode: staged, lock_timeout: 1s, retention: 48h, pooler: true}\n"
	if err := build(parse(t, everything+second)); err != nil {
		t.Error(err)
	}
	for was, is := range map[string]string{"mode: staged": "mode: prepared", "lock_timeout: 1s, ": "", "retention: 48h": "retention: 49h", "pooler: true": "pooler: false"} {
		err := build(parse(t, everything+strings.Replace(second, was, is, 1)))
		setting, _, _ := strings.Cut(was, ":")
		want := fmt.Sprintf(`sinks[3].postgres: sink "p" is in the same database: what one epoch writes to one database is one transaction, and %s is `, setting)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", is, err, want)
		}
	}
	if err := build(parse(t, everything+strings.Replace(second, "{env: DSN}, table: late, mode: staged", "{env: DSN2}, table: late", 1))); err != nil {
		t.Error(err)
	}
}

func TestAMistakeInTheSettingsHasItsPlaceAndNoSecret(t *testing.T) {
	password := secrets.Plant(t, "spec-password")
	for name, c := range map[string]struct{ old, new, want string }{
		"unknown":               {"topic: o", "topik: o", `p.yaml:20:7: sinks[0].kafka: unknown field "topik", did you mean "topic"?`},
		"missing":               {"      topic: o\n", "", `sinks[0].kafka: the field "topic" is missing`},
		"start":                 {"start: latest", "start: newest", `p.yaml:7:12: source.kafka.start: "newest" is none of earliest, latest`},
		"partition":             {"from_record", "hash", `sinks[0].kafka.partition: "hash" is none of by_key, round_robin, from_record`},
		"partition of a window": {"sinks:\n", "key: '\"a\"'\nwindow: {tumbling: 1s, aggregate: {n: count()}}\nsinks:\n", `sinks[0].kafka.partition: the result of a window comes from no partition of the source; use by_key or round_robin`},
		"mechanism":             {"SCRAM-SHA-256", "KERBEROS", `source.kafka.sasl.mechanism: "KERBEROS" is none of PLAIN, SCRAM-SHA-256`},
		"lines":                 {"lines: record", "lines: word", `sinks[1].file.lines: "word" is none of value, record`},
		"secret written":        {"password: {env: PASSWORD}", "password: " + password, `source.kafka.sasl.password: a secret is named, never written here`},
		"secret missing":        {"password: {env: PASSWORD}", "password: {env: NOBODY}", `the environment variable NOBODY of the secret is not set`},
		"no number":             {"max_poll_bytes: 100000", "max_poll_bytes: ${BYTES}", `p.yaml:12:21: source.kafka.max_poll_bytes: "x" is no whole number`},
		"the adapter's words":   {"transaction_timeout: 1m", "transaction_timeout: 1ms", `sinks[0].kafka: kafka sink: transaction timeout 1ms: at least a second`},
		"two that do not fit":   {"token: {env: PASSWORD}", "user: u", `p.yaml:18:5: sinks[0].kafka: kafka sink: sasl OAUTHBEARER`},
		"negative":              {"max_file_bytes: 1000", "max_file_bytes: -1", `sinks[1].file: file sink: a largest file of -1 bytes is not possible`},
		"a reference unset":     {"${BROKERS}", "${NOBODY}", `source.kafka.brokers: the environment variable NOBODY is not set`},
		"dsn written":           {"dsn: {env: DSN}", "dsn: postgres://u:" + password + "@h/d", `sinks[2].postgres.dsn: a secret is named, never written here`},
		"dsn with a reference":  {"dsn: {env: DSN}", "dsn: postgres://u:${PASSWORD}@h/d", `sinks[2].postgres.dsn: a secret is named, never written here`},
		"dsn that is none":      {"dsn: {env: DSN}", "dsn: {env: PASSWORD}", `sinks[2].postgres: postgres: the connection string can't be read`},
		"a part that is none":   {"id: key()", "id: keys()", `sinks[2].postgres.columns.id: "keys()" is no part of a record`},
		"write":                 {"write: upsert", "write: replace", `sinks[2].postgres.write: "replace" is none of append, upsert, delete`},
		"a key for append":      {"write: upsert", "write: append", `table sales.totals: append has no use for a key`},
		"half an epoch":         {"      epoch_column: n\n", "", `the epoch needs both columns`},
		"a name too long":       {"table: sales.totals", "table: " + strings.Repeat("x", 64), `has 64 bytes, and PostgreSQL takes 63`},
		"retention":             {"retention: 48h", "retention: 1s", `a retention of 1s is too short`},
		"a sink as a source's":  {"brokers: [a:1]", "topics: [a]", `sinks[0].kafka: unknown field "topics", did you mean "topic"?`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(everything, c.old, c.new, 1)
			if text == everything {
				t.Fatalf("nothing was replaced")
			}
			err := build(parse(t, text))
			var m spec.Mistakes
			if !errors.As(err, &m) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			t.Log(err)
			secrets.Absent(t, "the error", fmt.Sprintf("%v %+v", err, err))
		})
	}
}

func TestATableSourceTakesEverySetting(t *testing.T) {
	const source = "{pipeline: p, source: {postgres: {dsn: {env: DSN}, table: t, key: [a, b], columns: a, changed: take, batch_records: 10, pooler: true}}, sinks: [{name: f, file: {dir: x}}]}"
	if err := build(parse(t, source)); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		strings.Replace(source, "take", "skip", 1):                                                                  `source.postgres.changed: "skip" is none of fail, take`,
		strings.Replace(source, "key: [a, b], ", "", 1):                                                             `the field "key" is missing`,
		strings.Replace(source, "sinks:", "key: rec.k, window: {tumbling: 1s, aggregate: {n: count()}}, sinks:", 1): "a row has no timestamp, and the window needs one",
	} {
		if err := build(parse(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// All lines that have no timestamp would be of one moment, in one window.
func TestAWindowOverLinesNeedsAnEventTime(t *testing.T) {
	const window = "key: rec.k, window: {tumbling: 1s, aggregate: {n: count()}}, "
	for name, c := range map[string]struct {
		source, window string
		refused        bool
	}{
		"values":                  {"file: {dir: in}", window, true},
		"values, said so":         {"file: {dir: in, lines: value}", window, true},
		"values with a time":      {"file: {dir: in}, event_time: rec.at", window, false},
		"records":                 {"file: {dir: in, lines: record}", window, false},
		"values without a window": {"file: {dir: in}", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := build(parse(t, "{pipeline: p, source: {"+c.source+"}, "+c.window+"sinks: [{name: out, file: {dir: out}}]}"))
			if refused := err != nil && strings.Contains(err.Error(), "source.file: a line that is a value alone has no timestamp"); refused != c.refused || err != nil && !refused {
				t.Errorf("error %v; want it refused: %v", err, c.refused)
			}
		})
	}
}

func TestDeadLettersAreWholeLinesUnlessTheFileSaysOtherwise(t *testing.T) {
	for settings, want := range map[string]string{
		"{dir: %q}":               `{"key":null,"value":"a\nb","timestamp":0,"headers":[]}` + "\n",
		"{dir: %q, lines: value}": "",
	} {
		dir := t.TempDir()
		doc := parse(t, fmt.Sprintf(`{pipeline: p, source: {file: {dir: in}}, on_error: {dead_letter: bad}, sinks: [{name: out, file: {dir: out}}, {name: bad, file: `+settings+`}]}`, dir))
		use := adapters.Uses(doc, "file")[2]
		s, err := adapters.File().Spec(doc).Sink(env(), use.Name, use.Settings)
		if err != nil {
			t.Fatal(err)
		}
		if got := written(t, s, dir, stream.Record{Value: []byte("a\nb")}); got != want {
			t.Errorf("%s: %q, want %q", settings, got, want)
		}
	}
}

// written is what a sink publishes of a record; empty when it refuses it.
func written(t *testing.T, s processor.Sink, dir string, r stream.Record) string {
	t.Helper()
	ctx := t.Context()
	name := participant.BranchName{Namespace: participant.Namespace{Name: "n", Incarnation: 1}, Pipeline: "p", Member: "m", Resource: "r", Generation: 1, N: 1}
	opening := participant.Opening{Namespace: name.Namespace, Scope: "p/0", Member: "m", Resource: "r", Generation: 1, MaxPending: 2, EpochInterval: time.Second}
	if err := s.Open(ctx, opening); err != nil {
		t.Fatal(err)
	}
	b, err := s.Begin(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.(processor.Writer).Write(ctx, []stream.Record{r}); err != nil {
		return ""
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
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWhatWillBeTouchedIsLookedAtFirst(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	nobody, err := freeport.Loopback()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		is   error
		want string
	}{
		"fine":                {fmt.Sprintf("{pipeline: p, source: {file: {dir: %q}}, sinks: [{name: o, file: {dir: %q}}]}", dir, dir+"/new"), nil, ""},
		"source is not there": {fmt.Sprintf("{pipeline: p, source: {file: {dir: %q}}, sinks: [{name: o, file: {dir: o}}]}", dir+"/new"), adapters.ErrNotFound, `p.yaml:1:31: source.file.dir: the directory `},
		"sink is a file":      {fmt.Sprintf("{pipeline: p, source: {file: {dir: %q}}, sinks: [{name: o, file: {dir: %q}}]}", dir, plain), nil, `is a file, and "o" needs a directory`},
		"nobody answers":      {fmt.Sprintf("{pipeline: p, source: {kafka: {brokers: %q, topics: t}}, sinks: [{name: o, file: {dir: o}}]}", nobody), adapters.ErrUnreachable, "no Kafka broker answers"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := adapters.Check(ctx, all(), env(), parse(t, c.text))
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestASinkThatFeedsTheSourceIsACircle(t *testing.T) {
	for name, c := range map[string]struct{ source, sink, want string }{
		"topic":           {"kafka: {brokers: [b:1, a:1], topics: [x, y]}", "kafka: {brokers: a:1, topic: y}", `sinks[0]`},
		"topic elsewhere": {"kafka: {brokers: [b:1, a:1], topics: [x, y]}", "kafka: {brokers: c:1, topic: y}", ""},
		"another topic":   {"kafka: {brokers: a:1, topics: x}", "kafka: {brokers: a:1, topic: y}", ""},
		"table":           {"postgres: {dsn: {env: DSN}, table: t, key: id}", "postgres: {dsn: {env: DSN}, table: '\"t\"'}", `table t of h:5432/d`},
		"directory":       {"file: {dir: x/../y}", "file: {dir: ./y}", `/y`},
		"another kind":    {"file: {dir: y}", "kafka: {brokers: a:1, topic: y}", ""},
		"settings wrong":  {"file: {dri: y}", "file: {dir: y}", `unknown field "dri"`},
	} {
		t.Run(name, func(t *testing.T) {
			doc := parse(t, fmt.Sprintf("{pipeline: p, source: {%s}, sinks: [{name: o, %s}]}", c.source, c.sink))
			err := spec.Lint(doc, adapters.Specs(all(), doc), env())
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestTheSchemaNamesEverySetting(t *testing.T) {
	out := map[string]any{}
	for _, a := range adapters.Specs(all(), nil) {
		var source, sink any
		for text, into := range map[string]*any{a.SourceSchema: &source, a.SinkSchema: &sink} {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				t.Fatalf("%s: %v", a.Kind, err)
			}
		}
		out[a.Kind] = map[string]any{"source": source, "sink": sink}
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "schemas.json")
	if *update {
		if err := os.WriteFile(golden, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(text)+"\n" {
		t.Errorf("the schemas are others than in %s; look at them, then run with -update:\n%s", golden, text)
	}
}
