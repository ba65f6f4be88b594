package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

var (
	errUnknown  = errors.New("outcome unknown")
	errNotTaken = errors.New("not the leader")
)

// fakeLog is the log of a group of one: the real machine behind a delay and injected faults.
type fakeLog struct {
	mu      sync.Mutex
	m       *ledger.Machine
	applied []string // "Decide 1.1", …
	// fault may fail a proposal: before applying it (applied false) or after it (applied true).
	fault func(c ledger.Command) (err error, applied bool)
	// hold makes proposals of a kind wait for its channel to be closed.
	hold    map[string]chan struct{}
	term    uint64
	delay   time.Duration
	ahead   time.Duration // of the clock that stamps entries
	effects func([]ledger.Effect)
}

// set puts the clock that stamps entries ahead.
func (l *fakeLog) set(ahead time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ahead = ahead
}

func kind(c ledger.Command) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", c.Body), "ledger.")
}

func (l *fakeLog) propose(ctx context.Context, term uint64, c ledger.Command) (ledger.Result, error) {
	l.mu.Lock()
	delay, hold, fault := l.delay, l.hold[kind(c)], l.fault
	l.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ledger.Result{}, errUnknown
		}
	}
	time.Sleep(delay) // of the bubble's own time
	var after error
	if fault != nil {
		err, applied := fault(c)
		if err != nil && !applied {
			return ledger.Result{}, err
		}
		after = err
	}
	l.mu.Lock()
	if term != l.term {
		l.mu.Unlock()
		return ledger.Result{}, errNotTaken
	}
	c.At += l.ahead.Milliseconds()
	res, effects := l.m.Apply(c)
	line := kind(c)
	if b, ok := c.Body.(ledger.Decide); ok {
		line += " " + b.Epoch.String()
	}
	if !res.OK() {
		line += " refused: " + res.Text
	}
	l.applied = append(l.applied, line)
	tell := l.effects
	l.mu.Unlock()
	if tell != nil {
		tell(effects)
	}
	return res, after
}

func (l *fakeLog) view(read func(*ledger.Machine)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	read(l.m)
}

// count is how many applied lines begin with prefix.
func (l *fakeLog) count(prefix string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, a := range l.applied {
		if strings.HasPrefix(a, prefix) {
			n++
		}
	}
	return n
}

// termLog is the log as the leader of one term sees it.
type termLog struct {
	*fakeLog
	term uint64
}

func (l termLog) Propose(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	return l.propose(ctx, l.term, c)
}
func (l termLog) Barrier(context.Context) error   { return nil }
func (l termLog) View(read func(*ledger.Machine)) { l.view(read) }

// world is a group, seen from its members: whoever leads, and the log that outlives it.
type world struct {
	t   *testing.T
	log *fakeLog

	mu     sync.Mutex
	leader *Manager
	depose func()
	events []eventlog.Event
	out    map[string]*resource // by member
	begun  []func()             // each ends something that was begun
}

const pipelineName = "orders"

var scope0 = ledger.ScopeID{Pipeline: pipelineName}

// newWorld makes a pipeline of the members named; the first is a source, and so is whose name begins so.
func newWorld(t *testing.T, members ...string) *world {
	t.Helper()
	w := &world{t: t, out: map[string]*resource{}, log: &fakeLog{m: ledger.New(), hold: map[string]chan struct{}{}, delay: time.Millisecond}}
	p := ledger.Pipeline{Name: pipelineName, Fingerprint: "f1", Settings: ledger.Settings{EpochInterval: 100, PrepareTimeout: 5000}}
	for i, name := range members {
		p.Members = append(p.Members, ledger.MemberSpec{
			Name: name, Source: i == 0 || strings.HasPrefix(name, "source"), Resources: []ledger.ResourceSpec{{Name: "out", Kind: "memory"}},
		})
	}
	w.admin(ledger.Init{Namespace: "test", Incarnation: 1})
	w.admin(ledger.PutPipeline{Pipeline: p})
	w.lead()
	t.Cleanup(w.end)
	return w
}

// end ends all that a test has begun and that goes on: one that fails half-way must say why, and
// not that its bubble has no end.
func (w *world) end() {
	w.mu.Lock()
	begun := append(w.begun, w.depose)
	w.mu.Unlock()
	for _, end := range begun {
		end()
	}
	time.Sleep(10 * time.Millisecond) // of the bubble: calls that were under way come back
}

// ends notes how something that was begun is ended; ending it again does nothing.
func (w *world) ends(how func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = append(w.begun, how)
}

// admin applies a command as the server would.
func (w *world) admin(b ledger.Body) ledger.Result {
	w.t.Helper()
	w.log.mu.Lock()
	term := w.log.term
	w.log.mu.Unlock()
	res, err := w.log.propose(w.t.Context(), term, ledger.Command{Actor: "test", At: time.Now().UnixMilli(), Body: b})
	if err != nil || !res.OK() {
		w.t.Fatalf("%T: %v, %s", b, err, res.Text)
	}
	return res
}

func (w *world) pipeline() (p ledger.Pipeline) {
	w.log.view(func(m *ledger.Machine) { p, _ = m.Pipeline(pipelineName) })
	return p
}

func (w *world) newest() (g ledger.GenerationRecord) {
	w.log.view(func(m *ledger.Machine) { g, _ = m.Newest(scope0) })
	return g
}

func (w *world) desire(to ledger.Desired) {
	w.t.Helper()
	w.admin(ledger.SetDesired{Pipeline: pipelineName, From: w.pipeline().Desired, To: to})
}

// lead makes a new leader, with nothing but the log.
func (w *world) lead() {
	w.log.mu.Lock()
	w.log.term++
	term := w.log.term
	w.log.mu.Unlock()
	m := New(Config{
		Log: termLog{w.log, term}, Unknown: func(err error) bool { return errors.Is(err, errUnknown) },
		Events: func(e eventlog.Event) {
			w.mu.Lock()
			w.events = append(w.events, e)
			w.mu.Unlock()
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := m.Lead(ctx, term); err != nil {
			w.t.Errorf("Lead: %v", err)
		}
	}()
	w.log.mu.Lock()
	w.log.effects = m.Effects
	w.log.mu.Unlock()
	w.mu.Lock()
	w.leader = m
	w.depose = func() { cancel(); <-ended }
	w.mu.Unlock()
	synctest.Wait()
}

// fall ends the leadership, as a crash would: nothing more is proposed in its name.
func (w *world) fall() {
	w.log.mu.Lock()
	w.log.term++ // what is on its way is not taken
	w.log.mu.Unlock()
	w.mu.Lock()
	depose := w.depose
	w.mu.Unlock()
	depose()
	time.Sleep(10 * time.Millisecond) // of the bubble: calls that were under way come back
}

func (w *world) now() *Manager {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leader
}

// happened lists the events of a kind.
func (w *world) happened(k eventlog.Kind) []eventlog.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []eventlog.Event
	for _, e := range w.events {
		if e.Kind == k {
			out = append(out, e)
		}
	}
	return out
}

// within waits, in the bubble's time, for what is to come.
func (w *world) within(d time.Duration, what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond) // of the bubble
	}
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	w.t.Fatalf("not within %s: %s\nlog:\n%s", d, what, strings.Join(w.log.applied, "\n"))
}

// orders is a stream's other end.
type orders struct {
	grpc.ServerStream
	ctx context.Context
	out chan *unisinkv1.Order
}

func (o *orders) Context() context.Context { return o.ctx }

func (o *orders) Send(x *unisinkv1.Order) error {
	select {
	case o.out <- x:
		return nil
	case <-o.ctx.Done():
		return o.ctx.Err()
	}
}

// link is one attachment, driven by a test.
type link struct {
	w      *world
	req    *unisinkv1.AttachRequest
	out    chan *unisinkv1.Order
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
}

func attachRequest(member, instance string) *unisinkv1.AttachRequest {
	return &unisinkv1.AttachRequest{
		Scope: &unisinkv1.Scope{Pipeline: pipelineName}, Member: member, Instance: instance, Fingerprint: "f1",
		Resources: []*unisinkv1.ResourceInfo{{Name: "out", Kind: "memory", HasBranches: true}},
		Standing:  &unisinkv1.Standing{Phase: unisinkv1.Phase_PHASE_IDLE},
	}
}

func (w *world) attach(req *unisinkv1.AttachRequest, queue int) *link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{w: w, req: req, out: make(chan *unisinkv1.Order, queue), cancel: cancel, done: make(chan struct{})}
	leader := w.now()
	go func() {
		defer close(l.done)
		l.err = leader.Attach(req, &orders{ctx: ctx, out: l.out})
	}()
	w.ends(l.cut)
	return l
}

// cut ends the stream as a killed process does.
func (l *link) cut() { l.cancel(); <-l.done }

func (l *link) next() *unisinkv1.Order {
	l.w.t.Helper()
	select {
	case o := <-l.out:
		return o
	case <-time.After(20 * time.Second):
		l.w.t.Fatalf("%s (%s): no order came", l.req.GetMember(), l.req.GetInstance())
		return nil
	}
}

// expect skips Waiting and wants an order whose description begins with want.
func (l *link) expect(want string) *unisinkv1.Order {
	l.w.t.Helper()
	for {
		o := l.next()
		got := describe(o)
		if strings.HasPrefix(got, want) {
			return o
		}
		if !strings.HasPrefix(got, "waiting") {
			l.w.t.Fatalf("%s (%s): got order %q, want %q", l.req.GetMember(), l.req.GetInstance(), got, want)
		}
	}
}

// quiet wants no order but Waiting for a while.
func (l *link) quiet(d time.Duration) {
	l.w.t.Helper()
	timeout := time.After(d)
	for {
		select {
		case o := <-l.out:
			if got := describe(o); !strings.HasPrefix(got, "waiting") {
				l.w.t.Fatalf("%s (%s): got order %q, want none", l.req.GetMember(), l.req.GetInstance(), got)
			}
		case <-timeout:
			return
		}
	}
}

func (l *link) ended(reason string) {
	l.w.t.Helper()
	select {
	case <-l.done:
	case <-time.After(20 * time.Second):
		l.w.t.Fatalf("%s: the stream goes on", l.req.GetInstance())
	}
	if got, _ := grpcerr.Reason(l.err); got != reason {
		l.w.t.Fatalf("%s: stream ended with %v, want reason %s", l.req.GetInstance(), l.err, reason)
	}
}

// renew keeps the lease until the context ends.
func (l *link) renew(ctx context.Context, hasWork bool) {
	go func() {
		for {
			_, _ = l.w.now().Renew(ctx, &unisinkv1.RenewRequest{
				Scope: l.req.GetScope(), Member: l.req.GetMember(), Instance: l.req.GetInstance(),
				Generation: uint64(l.w.newest().Generation), HasWork: hasWork, Lag: 3,
			})
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
		}
	}()
}

func (l *link) ready(gen uint64) error {
	_, err := l.w.now().Ready(context.Background(), &unisinkv1.ReadyRequest{
		Scope: l.req.GetScope(), Member: l.req.GetMember(), Instance: l.req.GetInstance(), Generation: gen,
	})
	return err
}

func (l *link) voteFor(v *unisinkv1.Vote) (*unisinkv1.VoteResponse, error) {
	return l.w.now().Vote(context.Background(), &unisinkv1.VoteRequest{
		Scope: l.req.GetScope(), Member: l.req.GetMember(), Instance: l.req.GetInstance(), Vote: v,
	})
}

func yes(member string, gen, n uint64) *unisinkv1.Vote {
	return &unisinkv1.Vote{
		Epoch: &unisinkv1.Epoch{Generation: gen, N: n}, Kind: unisinkv1.VoteKind_VOTE_KIND_YES,
		Branches: []*unisinkv1.Prepared{{Resource: "out", Handle: &unisinkv1.Handle{
			Kind: "memory", Version: 1, Alias: "out", Name: fmt.Sprintf("test.%s.%d.%d", member, gen, n),
		}}},
		Positions: []*unisinkv1.Position{{Resource: "out", Split: "0", Offset: int64(n) * 10}},
	}
}

func describe(o *unisinkv1.Order) string {
	switch x := o.GetOrder().(type) {
	case *unisinkv1.Order_Welcome:
		return "welcome"
	case *unisinkv1.Order_Waiting:
		return "waiting for " + x.Waiting.GetFor()
	case *unisinkv1.Order_Restore:
		at := "nothing"
		if e := x.Restore.GetRestorePoint(); e != nil {
			at = fmt.Sprintf("%d.%d", e.GetGeneration(), e.GetN())
		}
		return fmt.Sprintf("restore %d from %s, %d unfinished, %d debts", x.Restore.GetGeneration(), at,
			len(x.Restore.GetUnfinished()), len(x.Restore.GetDebts()))
	case *unisinkv1.Order_Start:
		return fmt.Sprintf("start %d", x.Start.GetGeneration())
	case *unisinkv1.Order_Barrier:
		s := fmt.Sprintf("barrier %d.%d", x.Barrier.GetEpoch().GetGeneration(), x.Barrier.GetEpoch().GetN())
		if x.Barrier.GetFinal() {
			s += " final"
		}
		if x.Barrier.GetDrain() {
			s += " drain"
		}
		return s
	case *unisinkv1.Order_Committed:
		return fmt.Sprintf("committed %d.%d", x.Committed.GetEpoch().GetGeneration(), x.Committed.GetEpoch().GetN())
	case *unisinkv1.Order_Close:
		return fmt.Sprintf("close %d at %d: %s", x.Close.GetGeneration(), x.Close.GetFinal(), x.Close.GetCause())
	case *unisinkv1.Order_Stop:
		return "stop"
	case *unisinkv1.Order_Fenced:
		return "fenced: " + x.Fenced.GetCause()
	case *unisinkv1.Order_Retired:
		return "retired " + strings.Join(x.Retired.GetParts(), ",")
	case *unisinkv1.Order_VoteAgain:
		return "vote again"
	}
	return "?"
}
