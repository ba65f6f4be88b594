package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

func TestMain(m *testing.M) {
	participanttest.Child(inChild)
	if os.Getenv(victimVariable) != "" {
		os.Exit(victim())
	}
	goleak.VerifyTestMain(cleaned{servicestest.Main(m)})
}

// cleaned removes the victim's binary after the tests.
type cleaned struct{ tests servicestest.Runner }

func (c cleaned) Run() int {
	code := c.tests.Run()
	if victimDir != "" {
		if err := os.RemoveAll(victimDir); err != nil {
			fmt.Fprintln(os.Stderr, "remove the victim:", err)
			code = max(code, 1)
		}
	}
	return code
}

// rigs numbers those of this process; with the time it tells apart what they leave on a broker that
// outlives it.
var (
	rigs  atomic.Int64
	begun = time.Now().UnixMilli() % 1e8
)

// realRig is a rig on a real broker: a topic and a namespace of its own.
func realRig(t testing.TB, addrs []string, config map[string]string) *rig {
	t.Helper()
	a, err := NewAdmin(AdminConfig{Brokers: addrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	name := fmt.Sprintf("t%d-%d", begun, rigs.Add(1))
	if err := a.CreateTopic(t.Context(), name, 3, config); err != nil {
		t.Fatal(err)
	}
	return &rig{TB: t, a: a, addrs: addrs, ns: name, topic: name}
}

// onRealBroker runs a check beside others on the broker that all share.
func onRealBroker(t *testing.T, name string, check func(t *testing.T, r *rig)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		addrs := servicestest.Kafka(t)
		t.Parallel()
		check(t, realRig(t, addrs, nil))
	})
}

// inDoubt lists what the cluster shows as unfinished in the rig's namespace.
func (r *rig) inDoubt() []Transaction {
	r.Helper()
	left, err := r.a.ListTransactions(r.Context(), participant.Namespace{Name: r.ns, Incarnation: 1}, unfinishedStates()...)
	if err != nil {
		r.Fatal(err)
	}
	return left
}

// nothingOpen checks that no transaction of the rig is left.
func (r *rig) nothingOpen() {
	r.Helper()
	var left []Transaction
	defer func() {
		if len(left) != 0 {
			r.Errorf("transactions left open: %v", left)
		}
	}()
	r.eventually("no transaction is open", func() bool { // an abort is answered before its markers are written
		left = r.inDoubt()
		return len(left) == 0
	})
}

// eventually asks until it is so.
func (r *rig) eventually(what string, so func() bool) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	wait := slow()
	for !so() {
		if wait.wait(ctx) != nil {
			r.Fatalf("after a minute it is still not so: %s", what)
		}
	}
}

// finish calls Commit or Rollback as a member does: again, while it is told to wait.
func (r *rig) finish(call func(context.Context, participant.Handle) (participant.Proof, error), h participant.Handle) participant.Proof {
	r.Helper()
	var proof participant.Proof
	r.eventually("the branch is finished", func() bool {
		p, err := call(r.Context(), h)
		var after *participant.RetryAfter
		if err != nil && !errors.As(err, &after) {
			r.Logf("asked again after: %v", err)
		}
		proof = p
		return err == nil
	})
	return proof
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

// The kit counts goroutines, so nothing runs beside it.
func TestConformance_RealBroker(t *testing.T) { participanttest.Run(t, kitOn(servicestest.Kafka(t))) }

// kitOn is the conformance kit on a real broker.
func kitOn(addrs []string) participanttest.Kit {
	return participanttest.Kit{Kills: 12, New: func(t testing.TB) participanttest.Target {
		r := realRig(t, addrs, nil)
		g := r.watched(inKit(addrs, r.topic, "-"+r.ns))
		g.Stepped = nil // breaking connections is tried on the embedded one
		return g
	}}
}
