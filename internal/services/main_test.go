package services_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
)

// asProcess names what the test binary does instead of testing, see processes.
const asProcess = "UNISINK_SERVICES_TEST_PROCESS"

func TestMain(m *testing.M) {
	if what := os.Getenv(asProcess); what != "" {
		if err := process(what); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(servicestest.Main(m))
}

// patient bounds what a test asks of a server on a busy machine.
func patient(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// produce writes one record and returns when it is durable.
func produce(t testing.TB, addrs []string, topic, value string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(patient(t), &kgo.Record{Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// consume returns the first n values of a topic's first partition.
func consume(t testing.TB, addrs []string, topic string, n int) string {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx := patient(t)
	var got []string
	for len(got) < n {
		fetched := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("read %q and then: %v", got, err)
		}
		fetched.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return strings.Join(got, " ")
}

// gone fails the test when there is such a path, or a process named by a number.
func gone(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is left behind (%v)", path, err)
	}
}

func process(what string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch what {
	case "fetch-kafka":
		return services.FetchKafka(ctx)
	case "leave-directory":
		dir, _, err := services.TempDir("unisink-left-")
		fmt.Println(dir)
		return err
	case "start-postgres":
		s, err := services.Postgres(ctx, services.PostgresConfig{})
		if err != nil {
			return err
		}
		fmt.Println(s.PID(), s.Dir())
		select {}
	}
	return fmt.Errorf("%s is nothing to do", what)
}
