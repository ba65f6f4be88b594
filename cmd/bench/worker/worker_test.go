package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/processor/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheWorkerReadsARecord(t *testing.T) {
	var r reading
	in := &stream.Record{Value: []byte(`{"id":"00000001","key":"k-0007","amount":1234,"at":1760000000123,"note":"n"}`)}
	if err := decoder()(in, &r); err != nil {
		t.Fatal(err)
	}
	if string(r.key) != "k-0007" || r.amount != 1234 || r.at != 1_760_000_000_123 {
		t.Errorf("read as %s %d %d", r.key, r.amount, r.at)
	}
}

// TestEveryWindowJobWritesTheSame runs each over the same records, without transactions. The records of two
// partitions make three windows.
func TestEveryWindowJobWritesTheSame(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := devkafka.Start(devkafka.Config{Topics: map[string]int{"from": 2, Window: 1, YAML: 1, Loop: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	admin, err := kafka.NewAdmin(kafka.AdminConfig{Brokers: []string{b.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	const first = 1_760_000_000_000
	want := map[string]bool{}
	var records []stream.Record
	for w := range 3 {
		for key := range 5 {
			for i := range key + 1 {
				at := first + w*1000 + i*10
				records = append(records, stream.Record{Value: fmt.Appendf(nil, `{"key":"k-%d","amount":%d,"at":%d}`, key, w+1, at), Time: time.Now().UnixMilli()})
			}
			want[fmt.Sprintf("k-%d %d %d %d", key, first+w*1000, (w+1)*(key+1), key+1)] = true
		}
	}
	if err := admin.Produce(ctx, "from", records); err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{Window, YAML, Loop} {
		t.Run(job, func(t *testing.T) {
			w, err := New(Config{Job: job, Brokers: []string{b.Addr()}, From: "from", To: job, Name: "p", Bounded: true, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.RunPlain(ctx), w.Close()); err != nil {
				t.Fatal(err)
			}
			got, read := map[string]bool{}, NewResultReader()
			err = admin.ReadAll(ctx, job, true, nil, nil, func(r *stream.Record) error {
				res, err := read.Read(r.Value)
				if err != nil {
					return err
				}
				text := fmt.Sprintf("%s %d %d %d", res.Key, res.Start, res.Sum, res.Count)
				if string(r.Key) != string(res.Key) || got[text] || !want[text] {
					t.Errorf("%s came out with key %q (before: %t)", text, r.Key, got[text])
				}
				got[text] = true
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(want) {
				t.Errorf("%d results, want %d", len(got), len(want))
			}
		})
	}
}

func TestAnUnknownJobIsRefused(t *testing.T) {
	_, err := New(Config{Job: "x", Brokers: []string{"127.0.0.1:1"}, From: "a", To: "b", Name: "p"})
	if err == nil || !strings.Contains(err.Error(), `no job "x"`) {
		t.Errorf("got %v", err)
	}
}
