package participant_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

// wire is one process's network, which can be cut.
type wire struct {
	group *group
	mu    sync.Mutex
	down  bool
	conns map[*wired]bool // open ones
}

// wired is a connection that is forgotten once it is closed.
type wired struct {
	net.Conn
	wire *wire
}

func (c *wired) Close() error {
	c.wire.mu.Lock()
	delete(c.wire.conns, c)
	c.wire.mu.Unlock()
	return c.Conn.Close()
}

// dial holds no lock while it waits: that would hold virtual time too.
func (w *wire) dial(ctx context.Context, addr string) (net.Conn, error) {
	if w.isDown() {
		return nil, errDown
	}
	plain, err := w.group.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &wired{plain, w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		_ = plain.Close() // it was cut meanwhile
		return nil, errDown
	}
	if w.conns == nil {
		w.conns = map[*wired]bool{}
	}
	w.conns[c] = true
	return c, nil
}

var errDown = errors.New("network is down")

func (w *wire) isDown() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for c := range w.conns {
		_ = c.Conn.Close() // it is cut
	}
	w.conns = nil
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// process is one run of a member: a counter that writes into a memory resource.
type process struct {
	*counter
	wire   *wire
	memory *participanttest.Memory
	member *participant.Member
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
}

func (g *group) logger() *slog.Logger {
	if !testing.Verbose() || os.Getenv("UNISINK_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// run starts a process of a member on a store. Change may alter its configuration.
func (g *group) run(member string, store *participanttest.Store, change func(*participant.MemberConfig)) *process {
	g.t.Helper()
	p := &process{
		counter: &counter{name: member, every: 10 * time.Millisecond}, wire: &wire{group: g},
		memory: store.Process(), done: make(chan struct{}),
	}
	cfg := participant.MemberConfig{
		Coordinators: addresses(), Pipeline: pipeline, Member: member, Fingerprint: "f1",
		Resources: map[string]participant.Resource{"out": p.memory}, Dial: p.wire.dial, Logger: g.logger(),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if p.member, err = participant.NewMember(cfg, p.counter); err != nil {
		g.t.Fatal(err)
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(p.done)
		p.err = p.member.Run(ctx)
	}()
	g.t.Cleanup(func() { p.cancel(); <-p.done })
	return p
}

// kill ends a process as kill -9 does: nothing it does from now on reaches anybody.
func (p *process) kill() {
	p.memory.Crash()
	p.wire.cut()
	p.cancel()
	<-p.done
}

func (p *process) wait(t *testing.T, d time.Duration) error {
	t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(d):
		t.Fatalf("member %s still runs after %s: %+v", p.name, d, p.member.Status())
		return nil
	}
}

// counter is a task that writes name-0, name-1, … and keeps how far it came as its position.
type counter struct {
	name  string
	every time.Duration

	mu       sync.Mutex
	next     int64
	limit    int64 // stop counting there; 0: never
	restores []participant.Restore
	halts    []string
	barriers chan participant.Barrier
	seen     []participant.Barrier
	stop     context.CancelFunc
	ended    chan struct{}
	run      participant.Run
	failure  error // what Branch or Vote answered at the end
}

func (c *counter) Restore(_ context.Context, r participant.Restore) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restores, c.next = append(c.restores, r), 0
	if len(r.Positions) > 0 {
		c.next = r.Positions[0].Offset
	}
	return nil
}

func (c *counter) Start(_ context.Context, s participant.Start) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	c.stop, c.ended, c.run = cancel, make(chan struct{}), s.Run
	c.barriers = make(chan participant.Barrier, 64)
	go c.work(ctx, s.Run, c.barriers, c.ended)
	return nil
}

func (c *counter) work(ctx context.Context, run participant.Run, barriers <-chan participant.Barrier, ended chan<- struct{}) {
	defer close(ended)
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	fail := func(err error) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failure = err
		return err != nil
	}
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-barriers:
			at := []participant.Position{{Resource: "in", Split: "0", Offset: c.position(), LeaderEpoch: -1}}
			if fail(run.Vote(ctx, b, participant.Contribution{Positions: at})) || b.Final {
				return
			}
		case <-tick.C:
			c.mu.Lock()
			over := c.limit > 0 && c.next >= c.limit
			c.mu.Unlock()
			if over {
				continue
			}
			b, err := run.Branch(ctx, "out")
			if fail(err) {
				return
			}
			if fail(b.(interface{ Write(record string) error }).Write(fmt.Sprintf("%s-%d", c.name, c.position()))) {
				return
			}
			c.mu.Lock()
			c.next++
			c.mu.Unlock()
			run.HasWork()
		}
	}
}

func (c *counter) position() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

func (c *counter) Barrier(_ context.Context, b participant.Barrier) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, b)
	c.barriers <- b
	return nil
}

func (c *counter) Halted(_ context.Context, why string) error {
	c.mu.Lock()
	c.halts = append(c.halts, why)
	stop, ended := c.stop, c.ended
	c.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
	return nil
}

func (c *counter) restored() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.restores)
}

// exactlyOnce checks that a member's committed records are 0, 1, 2, … in order, and at least some.
func exactlyOnce(t *testing.T, store *participanttest.Store, name string, least int) {
	t.Helper()
	n := 0
	for _, r := range store.Records() {
		number, ok := strings.CutPrefix(r, name+"-")
		if !ok {
			continue
		}
		if number != fmt.Sprint(n) {
			t.Fatalf("record %q where %s-%d was due; trail:\n%s", r, name, n, strings.Join(store.Trail(), "\n"))
		}
		n++
	}
	if n < least {
		t.Fatalf("%d records of %s are committed, want at least %d", n, name, least)
	}
}

// within waits until ok, the last time when d is over. The longer it has waited the more seldom it asks.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for begun := time.Now(); !ok(); {
		waited := time.Since(begun)
		if waited >= d {
			t.Fatalf("not within %s: %s", d, what)
		}
		time.Sleep(min(max(5*time.Millisecond, waited/50), d-waited)) // in the bubble's time
	}
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func count(lines []string, prefix string) int {
	return len(slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return !strings.HasPrefix(s, prefix) }))
}
