package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/coordinator"
	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/resolver"
	"github.com/unisink/unisink/processor/stream"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// victimVariable makes this test binary the process of a member that is to be killed: "coordinator brokers topic".
const victimVariable = "UNISINK_RESOLVER_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victimVariable) != "" {
		if err := victim(context.Background(), strings.Fields(os.Getenv(victimVariable))); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1) // it is to be killed, not to end
	}
	goleak.VerifyTestMain(servicestest.Main(m))
}

// victim writes to a topic, epoch after epoch.
func victim(ctx context.Context, f []string) error {
	sink, err := kafka.NewSink(kafka.SinkConfig{Brokers: strings.Split(f[1], ","), Topic: f[2]})
	if err != nil {
		return err
	}
	m, err := participant.NewMember(participant.MemberConfig{
		Coordinators: []string{f[0]}, Pipeline: pipeline, Member: "all", Fingerprint: "f", Resources: map[string]participant.Resource{"out": stuckSink{sink}},
	}, &counter{names: []string{"out"}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// stuckSink never gets a commit through, so that decided transactions stay open until the process is killed.
type stuckSink struct{ *kafka.Sink }

func (stuckSink) Commit(context.Context, participant.Handle) (participant.Proof, error) {
	return participant.Proof{}, errors.New("the credentials have expired")
}

// realRig is a coordinator on loopback, a topic, and a pipeline that writes to it.
type realRig struct {
	*testing.T
	admin   *kafka.Admin
	brokers []string
	topic   string
	address string
	cl      *participant.Client
}

func newRealRig(t *testing.T) *realRig {
	t.Helper()
	r := &realRig{T: t, brokers: servicestest.Kafka(t), topic: fmt.Sprintf("resolved-%d", time.Now().UnixNano())}
	ctx := t.Context()
	var err error
	if r.admin, err = kafka.NewAdmin(kafka.AdminConfig{Brokers: r.brokers}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.admin.Close)
	if err := r.admin.CreateTopic(ctx, r.topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	r.address = r.coordinator()
	if r.cl, err = participant.NewClient(participant.ClientConfig{Coordinators: []string{r.address}, Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cl.Close() })
	return r
}

// coordinator starts a node; the namespace is the topic's, for the broker is shared.
func (r *realRig) coordinator() string {
	r.Helper()
	addrs := make([]string, 2)
	for i := range addrs {
		var err error
		if addrs[i], err = freeport.Loopback(); err != nil {
			r.Fatal(err)
		}
	}
	node, err := coordinator.New(coordinator.Config{
		NodeID: "n1", DataDir: r.TempDir(), ClientBind: addrs[0], RaftBind: addrs[1], Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	r.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.Errorf("the coordinator ended with %v", err)
		}
	})
	cl, err := participant.NewClient(participant.ClientConfig{Coordinators: addrs[:1]})
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = cl.Close() }()
	if _, err := cl.Cluster().Bootstrap(r.Context(), &unisinkv1.BootstrapRequest{
		Meta: cl.NewMeta(), Namespace: r.namespace(), Nodes: []*unisinkv1.Node{{Id: "n1", RaftAddress: addrs[1], ClientAddress: addrs[0], Voter: true}},
	}); err != nil {
		r.Fatal(err)
	}
	p := &unisinkv1.Pipeline{Name: pipeline, Fingerprint: "f", Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: 500}, Members: []*unisinkv1.MemberSpec{
		{Name: "all", Source: true, Resources: []*unisinkv1.ResourceSpec{{Name: "out", Kind: kafka.Kind}}},
	}}
	if _, err := cl.Pipelines().PutPipeline(r.Context(), &unisinkv1.PutPipelineRequest{Meta: cl.NewMeta(), Pipeline: p}); err != nil {
		r.Fatal(err)
	}
	return addrs[0]
}

func (r *realRig) namespace() string { return "r" + r.topic[len(r.topic)-9:] }

// ends are how far a reader of what is committed can read, and how far the log goes.
func (r *realRig) ends() (readable, end int64) {
	r.Helper()
	c, err := r.admin.EndOffsets(r.Context(), r.topic, true)
	if err != nil {
		r.Fatal(err)
	}
	e, err := r.admin.EndOffsets(r.Context(), r.topic, false)
	if err != nil {
		r.Fatal(err)
	}
	return c[0], e[0]
}

// free measures until readers are blocked by nothing.
func (r *realRig) free(within time.Duration) time.Duration {
	r.Helper()
	begun := time.Now()
	for {
		readable, end := r.ends()
		if took := time.Since(begun); readable == end || took > within+10*time.Second {
			if readable != end {
				r.Fatalf("readers are still blocked at %d of %d after %s", readable, end, took)
			}
			return took
		}
		time.Sleep(10 * time.Millisecond) // the broker's clock is real, and it tells nobody when it has moved on
	}
}

func (r *realRig) final() (generation, final uint64) {
	r.Helper()
	got, err := r.cl.Pipelines().GetPipeline(r.Context(), &unisinkv1.GetPipelineRequest{Name: pipeline})
	if err != nil {
		r.Fatal(err)
	}
	for _, s := range got.GetScopes() {
		generation, final = s.GetGeneration(), s.GetFinal()
	}
	return generation, final
}

// Row L1, P13. On a real broker: the process of a pipeline is killed with decided transactions open, which block every
// reader of what is committed. A resolver frees them within the lease and a second; a transaction that a process of
// the dead generation opens after that, within the sweep interval and a second.
func TestL1_P13_RealBrokerReadersAreFreed(t *testing.T) {
	r := newRealRig(t)
	const interval = 5 * time.Second
	sink, err := kafka.NewSink(kafka.SinkConfig{Brokers: r.brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sink.Close() }()
	x, err := resolver.New(resolver.Config{Client: r.cl, Resources: []resolver.Resource{{Finisher: sink}}, SweepInterval: interval})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- x.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), victimVariable+"="+r.address+" "+strings.Join(r.brokers, ",")+" "+r.topic)
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for readable, end := r.ends(); ; readable, end = r.ends() {
		if _, final := r.final(); final == 2 && readable < end {
			break // as many epochs as may be pending are decided and not finished
		}
		time.Sleep(5 * time.Millisecond) // another process works on a real broker
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed
	if err := r.admin.Produce(t.Context(), r.topic, []stream.Record{{Value: []byte("of somebody else")}}); err != nil {
		t.Fatal(err)
	}
	if readable, end := r.ends(); readable == end {
		t.Fatal("readers are not blocked: this shows nothing")
	}
	took := r.free(lease + time.Second)
	t.Logf("readers were free %s after the process was killed; %s are allowed", took.Round(time.Millisecond), lease+time.Second)
	if took > lease+time.Second {
		t.Errorf("too late")
	}

	g, final := r.final()
	zombie, err := kafka.NewSink(kafka.SinkConfig{Brokers: r.brokers, Topic: r.topic})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = zombie.Close() }()
	ns := participant.Namespace{Name: r.namespace(), Incarnation: 1}
	if err := zombie.Open(t.Context(), participant.Opening{Namespace: ns, Scope: pipeline + "/0", Member: "all", Resource: "out", Generation: g, MaxPending: 2, EpochInterval: time.Second}); err != nil {
		t.Fatal(err)
	}
	b, err := zombie.Begin(t.Context(), participant.BranchName{Namespace: ns, Pipeline: pipeline, Member: "all", Resource: "out", Generation: g, N: final + 9})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.(*kafka.Branch).Write(t.Context(), []stream.Record{{Value: []byte("late")}}); err != nil {
		t.Fatal(err)
	}
	if vote, err := b.Prepare(t.Context()); err != nil || vote.Kind != participant.Yes {
		t.Fatalf("the zombie's vote: %+v, %v", vote, err)
	}
	took = r.free(interval + time.Second)
	t.Logf("readers were free %s after the late prepare; %s are allowed", took.Round(time.Millisecond), interval+time.Second)
	if took > interval+time.Second {
		t.Errorf("too late")
	}
}
