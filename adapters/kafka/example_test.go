package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// A branch is written and prepared by one process and committed by another, which knows nothing
// but the handle.
func Example() {
	ctx := context.Background()
	broker, err := devkafka.Start(devkafka.Config{Topics: map[string]int{"totals": 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	handle := prepare(ctx, broker.Addr())

	resolver, err := kafka.NewSink(kafka.SinkConfig{Brokers: []string{broker.Addr()}})
	if err != nil {
		log.Fatal(err)
	}
	proof, err := resolver.Commit(ctx, handle)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("committed:", proof.Verdict == participant.Committed)
	if err := resolver.Close(); err != nil {
		log.Fatal(err)
	}
	read(ctx, broker.Addr())

	// Output:
	// 2 records in 1 partitions of totals
	// committed: true
	// a=1
	// b=2
}

// prepare writes two records and goes away.
func prepare(ctx context.Context, addr string) participant.Handle {
	sink, err := kafka.NewSink(kafka.SinkConfig{Brokers: []string{addr}, Topic: "totals"})
	if err != nil {
		log.Fatal(err)
	}
	ns := participant.Namespace{Name: "example", Incarnation: 1}
	err = sink.Open(ctx, participant.Opening{
		Namespace: ns, Scope: "orders/0", Member: "all", Resource: "totals", Generation: 1, MaxPending: 2,
	})
	if err != nil {
		log.Fatal(err)
	}
	branch, err := sink.Begin(ctx, participant.BranchName{
		Namespace: ns, Pipeline: "orders", Member: "all", Resource: "totals", Generation: 1, N: 1,
	})
	if err != nil {
		log.Fatal(err)
	}
	err = branch.(*kafka.Branch).Write(ctx, []stream.Record{
		{Key: []byte("a"), Value: []byte("1")},
		{Key: []byte("b"), Value: []byte("2")},
	})
	if err != nil {
		log.Fatal(err)
	}
	vote, err := branch.Prepare(ctx)
	if err != nil || vote.Kind != participant.Yes {
		log.Fatal(vote.Reason, err)
	}
	fmt.Println(vote.Handle.Text)
	if err := sink.Close(); err != nil {
		log.Fatal(err)
	}
	return vote.Handle
}

// read prints the topic up to its present end.
func read(ctx context.Context, addr string) {
	source, err := kafka.NewSource(kafka.SourceConfig{Name: "in", Brokers: []string{addr}, Topics: []string{"totals"}, Bounded: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := source.Open(ctx, nil); err != nil {
		log.Fatal(err)
	}
	for {
		batch, err := source.Poll(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		if batch == nil {
			continue
		}
		for _, r := range batch.Records {
			fmt.Printf("%s=%s\n", r.Key, r.Value)
		}
	}
	if err := source.Close(); err != nil {
		log.Fatal(err)
	}
}

// Secrets are named, never written: where they stand is read at each authentication.
func ExampleSecurity() {
	_, err := kafka.NewSink(kafka.SinkConfig{
		Brokers: []string{"broker:9093"},
		Topic:   "totals",
		Security: kafka.Security{
			TLS:  &kafka.TLS{},
			SASL: &kafka.SASL{Mechanism: kafka.ScramSHA512, User: "pipeline", Password: "env:KAFKA_PASSWORD"},
		},
	})
	fmt.Println(err)
	_, err = kafka.NewSink(kafka.SinkConfig{
		Brokers:  []string{"broker:9093"},
		Topic:    "totals",
		Security: kafka.Security{SASL: &kafka.SASL{Mechanism: kafka.Plain, User: "pipeline", Password: "hunter2"}},
	})
	fmt.Println(err)
	// Output:
	// <nil>
	// kafka sink: misconfigured: sasl PLAIN: password: a secret is named, not written: as env:NAME or file:PATH
}
