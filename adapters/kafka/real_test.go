package kafka

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor/stream"
)

// realBroker is the address of a broker that is not the embedded one.
func realBroker(t *testing.T) string {
	t.Helper()
	addr := os.Getenv("UNISINK_TEST_KAFKA")
	if addr == "" {
		t.Skip("UNISINK_TEST_KAFKA names no broker")
	}
	return addr
}

// elsewhere is a sink whose namespaces are its check's own, for checks that share one cluster.
type elsewhere struct {
	*Sink
	suffix string
}

func (e elsewhere) Open(ctx context.Context, o participant.Opening) error {
	o.Namespace.Name += e.suffix
	return e.Sink.Open(ctx, o)
}

func (e elsewhere) Begin(ctx context.Context, n participant.BranchName) (participant.Branch, error) {
	n.Namespace.Name += e.suffix
	return e.Sink.Begin(ctx, n)
}

func (e elsewhere) List(ctx context.Context, ns participant.Namespace) ([]participant.Listed, error) {
	ns.Name += e.suffix
	found, err := e.Sink.List(ctx, ns)
	for i := range found {
		found[i].Name.Namespace.Name = strings.TrimSuffix(found[i].Name.Namespace.Name, e.suffix)
	}
	return found, err
}

func TestConformanceOnARealBroker(t *testing.T) {
	addr := realBroker(t)
	a, err := NewAdmin(AdminConfig{Brokers: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	run, check := time.Now().UnixNano(), new(atomic.Int64)
	participanttest.Run(t, participanttest.Kit{New: func(t testing.TB) participanttest.Target {
		suffix := fmt.Sprintf("-%d-%d", run, check.Add(1))
		topic := "totals" + suffix
		if err := a.CreateTopic(t.Context(), topic, 3, nil); err != nil {
			t.Fatal(err)
		}
		return participanttest.Target{
			Process: func(t testing.TB) participant.Resource {
				s, err := NewSink(SinkConfig{Brokers: []string{addr}, Topic: topic})
				if err != nil {
					t.Fatal(err)
				}
				return elsewhere{s, suffix}
			},
			Write: func(t testing.TB, b participant.Branch, record string) {
				t.Helper()
				if err := b.(*Branch).Write(t.Context(), []stream.Record{{Value: []byte(record)}}); err != nil {
					t.Fatal(err)
				}
			},
			Read: func(t testing.TB) []string {
				var out []string
				err := a.ReadAll(t.Context(), topic, true, nil, nil, func(r *stream.Record) error {
					out = append(out, string(r.Value))
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return out
			},
		}
	}})
}
