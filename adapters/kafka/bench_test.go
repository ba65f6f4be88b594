package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// BenchmarkSinkWrite writes batches of 500 records of 100 bytes, 100,000 to an epoch, into a
// broker that stores nothing; with the header that names the epoch, and without.
func BenchmarkSinkWrite(b *testing.B) {
	b.Run("stamped", func(b *testing.B) { sinkWrite(b, "") })
	b.Run("unstamped", func(b *testing.B) { sinkWrite(b, NoEpochHeader) })
}

func sinkWrite(b *testing.B, header string) {
	br := broker(b, devkafka.Config{Topics: map[string]int{"totals": 3}, Options: []kfake.Opt{kfake.BlackholeProduce()}})
	s, err := NewSink(SinkConfig{Brokers: []string{br.Addr()}, Topic: "totals", Compression: CompressionNone, EpochHeader: header})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	o := opening(1)
	o.EpochInterval = time.Second
	if err := s.Open(b.Context(), o); err != nil {
		b.Fatal(err)
	}
	batch := make([]stream.Record, 500)
	for i := range batch {
		batch[i] = stream.Record{Key: []byte{byte(i), byte(i >> 8), 'k', 'e', 'y'}, Value: make([]byte, 95), Time: time.Now().UnixMilli()}
	}
	b.ReportAllocs()
	n := uint64(0)
	var open participant.Branch
	finish := func() {
		if open == nil {
			return
		}
		v, err := open.Prepare(b.Context())
		if err != nil || v.Kind != participant.Yes {
			b.Fatal(v, err)
		}
		if _, err := s.Commit(b.Context(), v.Handle); err != nil {
			b.Fatal(err)
		}
		open = nil
	}
	written := 0
	for b.Loop() {
		if open == nil {
			n++
			if open, err = s.Begin(b.Context(), branchName(1, n)); err != nil {
				b.Fatal(err)
			}
		}
		if err := open.(*Branch).Write(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		if written += len(batch); written%100_000 == 0 {
			finish()
		}
	}
	finish()
	b.ReportMetric(float64(written)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkSourcePoll reads records of 100 bytes from a broker that answers with the same batch.
func BenchmarkSourcePoll(b *testing.B) {
	br := broker(b, devkafka.Config{Topics: map[string]int{"orders": 3}, Options: []kfake.Opt{
		kfake.SyntheticFetch(kfake.SyntheticBatch{Compression: kgo.CompressionCodec{}}),
	}})
	s := source(b, SourceConfig{Name: "in", Brokers: []string{br.Addr()}, Topics: []string{"orders"}})
	if err := s.Open(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	read := 0
	for b.Loop() {
		batch, err := s.Poll(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if batch != nil {
			read += len(batch.Records)
		}
	}
	b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(max(read, 1)), "ns/record")
}

// BenchmarkEpoch begins, writes one record, prepares and commits.
func BenchmarkEpoch(b *testing.B) {
	br := broker(b, devkafka.Config{Topics: map[string]int{"totals": 3}})
	r := rigOn(b, br)
	s := r.opened(1)
	n := uint64(0)
	for b.Loop() {
		n++
		r.commit(s, r.prepared(s, branchName(1, n), 1), participant.Committed)
	}
}

// BenchmarkPlainProduce writes what BenchmarkSinkWrite does with the client library alone, without
// transactions and without copying: what the sink is measured against.
func BenchmarkPlainProduce(b *testing.B) {
	br := broker(b, devkafka.Config{Topics: map[string]int{"totals": 3}, Options: []kfake.Opt{kfake.BlackholeProduce()}})
	a, err := NewAdmin(AdminConfig{Brokers: []string{br.Addr()}, Compression: CompressionNone})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	p := a.Producer("totals")
	batch := make([]stream.Record, 500)
	for i := range batch {
		batch[i] = stream.Record{Key: []byte{byte(i), byte(i >> 8), 'k', 'e', 'y'}, Value: make([]byte, 95), Time: time.Now().UnixMilli()}
	}
	b.ReportAllocs()
	written := 0
	for b.Loop() {
		if err := p.Write(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		written += len(batch)
	}
	if err := p.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(written)/b.Elapsed().Seconds(), "records/s")
}
