package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/participant/resolver"
	"github.com/unisink/unisink/processor/stream"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

const (
	lease         = 3 * time.Second
	sweepInterval = time.Minute
	pipeline      = "orders"
)

// rig is a coordinator group and a pipeline of one member with two resources, in virtual time.
type rig struct {
	*testing.T
	*coordinatortest.Cluster
	cl     *participant.Client
	duties unisinkv1.ResolutionClient
	stores map[string]*participanttest.Store
}

func bubble(t *testing.T, nodes int, epoch time.Duration, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, Cluster: coordinatortest.Start(t, nodes), stores: map[string]*participanttest.Store{}}
		r.cl = r.Client()
		r.duties = unisinkv1.NewResolutionClient(r.cl.Router())
		for _, name := range []string{"out", "dir"} {
			r.stores[name] = participanttest.NewStore(name)
		}
		p := &unisinkv1.Pipeline{
			Name: pipeline, Fingerprint: "f", Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: epoch.Milliseconds()},
			Members: []*unisinkv1.MemberSpec{{Name: "all", Source: true, Resources: []*unisinkv1.ResourceSpec{
				{Name: "out", Kind: participanttest.Kind}, {Name: "dir", Kind: participanttest.Kind},
			}}},
		}
		if _, err := r.cl.Pipelines().PutPipeline(t.Context(), &unisinkv1.PutPipelineRequest{Meta: r.cl.NewMeta(), Pipeline: p}); err != nil {
			t.Fatal(err)
		}
		f(t, r)
	})
}

func logger() *slog.Logger {
	if os.Getenv("UNISINK_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// process is one run of the member. It dies as by kill -9.
type process struct {
	rig      *rig
	memories map[string]*participanttest.Memory
	cancel   context.CancelFunc
	done     chan struct{}

	mu    sync.Mutex
	dead  bool
	died  time.Time
	conns []net.Conn
}

// start starts a process of the member; hook sees every call of its resources.
func (r *rig) start(hook func(p *process, call participanttest.Call, when participanttest.When) error) *process {
	r.Helper()
	p := &process{rig: r, memories: map[string]*participanttest.Memory{}, done: make(chan struct{})}
	cfg := participant.MemberConfig{
		Coordinators: r.Addresses(), Pipeline: pipeline, Member: "all", Fingerprint: "f", Resources: map[string]participant.Resource{}, Dial: p.dial, Logger: logger(),
	}
	for name, s := range r.stores {
		m := s.Process()
		m.SetHook(func(_ context.Context, call participanttest.Call, when participanttest.When, _ string) error {
			if hook == nil {
				return nil
			}
			return hook(p, call, when)
		})
		p.memories[name], cfg.Resources[name] = m, m
	}
	member, err := participant.NewMember(cfg, &counter{})
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer close(p.done)
		_ = member.Run(ctx) // it is killed
	}()
	r.Cleanup(func() { p.kill(); <-p.done })
	return p
}

var errDead = errors.New("killed")

func (p *process) dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := p.rig.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil, errors.Join(errDead, c.Close())
	}
	p.conns = append(p.conns, c)
	return c, nil
}

// kill ends it: nothing that it does from now on reaches anybody. It may be called by one of its own goroutines.
func (p *process) kill() {
	p.mu.Lock()
	conns := p.conns
	if !p.dead {
		p.died = time.Now()
	}
	p.dead, p.conns = true, nil
	p.mu.Unlock()
	for _, m := range p.memories {
		m.Crash()
	}
	for _, c := range conns {
		_ = c.Close() // it may be closed already
	}
	p.cancel()
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// counter is a task that writes 0, 1, 2, … into both resources.
type counter struct {
	names []string // of the resources; default out and dir

	mu    sync.Mutex
	next  int64
	stop  context.CancelFunc
	ended chan struct{}
	order chan participant.Barrier
}

func (c *counter) Restore(_ context.Context, r participant.Restore) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next = 0; len(r.Positions) > 0 {
		c.next = r.Positions[0].Offset
	}
	return nil
}

func (c *counter) Start(_ context.Context, s participant.Start) error {
	ctx, cancel := context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop, c.ended, c.order = cancel, make(chan struct{}), make(chan participant.Barrier, 64)
	go c.work(ctx, s.Run, c.order, c.ended)
	return nil
}

func (c *counter) work(ctx context.Context, run participant.Run, barriers <-chan participant.Barrier, ended chan<- struct{}) {
	defer close(ended)
	names := c.names
	if len(names) == 0 {
		names = []string{"out", "dir"}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-barriers:
			c.mu.Lock()
			at := []participant.Position{{Resource: "in", Split: "0", Offset: c.next, LeaderEpoch: -1}}
			c.mu.Unlock()
			if run.Vote(ctx, b, participant.Contribution{Positions: at}) != nil || b.Final {
				return
			}
		case <-tick.C:
			c.mu.Lock()
			record := fmt.Sprint(c.next)
			c.next++
			c.mu.Unlock()
			for _, name := range names {
				b, err := run.Branch(ctx, name)
				if err != nil || write(ctx, b, record) != nil {
					return
				}
			}
			run.HasWork()
		}
	}
}

// write adds a record to a branch of either kind.
func write(ctx context.Context, b participant.Branch, record string) error {
	if k, ok := b.(*kafka.Branch); ok {
		return k.Write(ctx, []stream.Record{{Value: []byte(record)}})
	}
	return b.(*participanttest.MemoryBranch).Write(record)
}

func (c *counter) Barrier(_ context.Context, b participant.Barrier) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order <- b
	return nil
}

func (c *counter) Halted(context.Context, string) error {
	c.mu.Lock()
	stop, ended := c.stop, c.ended
	c.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
	return nil
}

// resolving is a resolver that runs.
type resolving struct {
	stop func()
}

// resolve starts a resolver of all stores; change may alter its configuration.
func (r *rig) resolve(change func(*resolver.Config)) *resolving {
	r.Helper()
	cfg := resolver.Config{Client: r.Client(), Name: "r", Logger: logger()}
	for _, name := range []string{"out", "dir"} {
		cfg.Resources = append(cfg.Resources, resolver.Resource{Name: name, Finisher: r.stores[name].Process()})
	}
	if change != nil {
		change(&cfg)
	}
	x, err := resolver.New(cfg)
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- x.Run(ctx) }()
	s := &resolving{stop: sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.Errorf("the resolver ended with %v", err)
		}
	})}
	r.Cleanup(s.stop)
	return s
}

// left says what is still prepared or owed; empty when nothing is.
func (r *rig) left() string {
	var left []string
	for _, s := range r.stores {
		left = append(left, s.Prepared()...)
	}
	got, err := r.duties.ListDuties(r.Context(), &unisinkv1.ListDutiesRequest{})
	if err != nil {
		return err.Error()
	}
	for _, d := range got.GetDuties() {
		left = append(left, "duty "+d.GetBranch().String())
	}
	for _, d := range got.GetSweeps() {
		left = append(left, "debt "+d.String())
	}
	return strings.Join(left, "\n")
}

// within waits, in virtual time, until missing says "". The longer it has waited the more seldom it asks, for each question
// is a call or two that others work off; the last time is when d is over.
func (r *rig) within(d time.Duration, what string, missing func() string) time.Duration {
	r.Helper()
	begun := time.Now()
	for {
		last := missing()
		waited := time.Since(begun)
		if last == "" {
			return waited
		}
		if waited >= d {
			r.Fatalf("not within %s: %s:\n%s", d, what, last)
		}
		time.Sleep(min(max(20*time.Millisecond, waited/50), d-waited)) // virtual
	}
}

// until is within for what is there or not.
func (r *rig) until(d time.Duration, what string, ok func() bool) time.Duration {
	r.Helper()
	return r.within(d, what, func() string {
		if ok() {
			return ""
		}
		return "not yet"
	})
}

// commits counts what became visible in a store.
func (r *rig) commits(store string) (n int) {
	for _, line := range r.stores[store].Trail() {
		if strings.HasPrefix(line, "commit ") {
			n++
		}
	}
	return n
}

// ordered checks P6, and that what is committed is 0, 1, 2, …: once each, without gaps, and as far in both stores.
func (r *rig) ordered() {
	r.Helper()
	var sizes []int
	for name, s := range r.stores {
		records := s.Records()
		for i, x := range records {
			if x != fmt.Sprint(i) {
				r.Fatalf("store %s: record %q where %d was due; trail:\n%s", name, x, i, strings.Join(s.Trail(), "\n"))
			}
		}
		sizes = append(sizes, len(records))
	}
	if sizes[0] != sizes[1] {
		r.Fatalf("%d records in one store, %d in the other: an epoch is torn", sizes[0], sizes[1])
	}
}

// newest is the newest generation of the scope, and what it has decided.
func (r *rig) newest() (generation, final uint64) {
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

func (r *rig) branch(generation, n uint64, resource string) participant.BranchName {
	return participant.BranchName{
		Namespace: participant.Namespace{Name: coordinatortest.Namespace, Incarnation: 1}, Pipeline: pipeline, Member: "all", Resource: resource, Generation: generation, N: n,
	}
}

// told is what the resolver reported.
func (r *rig) told() *unisinkv1.ReportRequest {
	r.Helper()
	got, err := r.duties.ListResources(r.Context(), &unisinkv1.ListResourcesRequest{})
	if err != nil {
		r.Fatal(err)
	}
	for _, q := range got.GetResolvers() {
		return q
	}
	return nil
}
