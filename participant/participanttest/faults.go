package participanttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/unisink/unisink/internal/plural"
	"github.com/unisink/unisink/participant"
)

// ErrInjected is what steps fail with, where the kit makes them fail.
var ErrInjected = errors.New("injected by the conformance kit")

// DialFunc is what most clients take to dial with.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// StepDialer makes steps of a network connection, for Target.Stepped: "dial", "send" before a request is
// written and "receive" before an answer is read. Where at returns an error the connection breaks, so that
// the request is lost or the answer is. A nil dial is a plain net.Dialer's.
func StepDialer(dial DialFunc, at func(step string) error) DialFunc {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := at("dial"); err != nil {
			return nil, err
		}
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &steppedConn{Conn: c, at: at}, nil
	}
}

// steppedConn is one connection. A client reads an answer in pieces; the first piece after a write is the step.
type steppedConn struct {
	net.Conn
	at func(step string) error

	mu    sync.Mutex // guards asked; held for memory only
	asked bool
}

func (c *steppedConn) Write(p []byte) (int, error) {
	if err := c.at("send"); err != nil {
		return 0, c.broken(err)
	}
	c.mu.Lock()
	c.asked = true
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *steppedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	first := c.asked
	c.asked = false
	c.mu.Unlock()
	if first && err == nil {
		if err := c.at("receive"); err != nil {
			return 0, c.broken(err)
		}
	}
	return n, err
}

func (c *steppedConn) broken(err error) error { return errors.Join(err, c.Conn.Close()) }

// trap is set to act at one step, or from it on.
type trap struct {
	mu   sync.Mutex // guards the rest
	left int        // steps until it acts; 0: it is not set
	hit  string     // where it acted
	once bool
	act  func() error
	seen int // steps since it was set
	most int // of those, in one setting
}

// set makes the k-th step from now on act; once, or all that follow too.
func (p *trap) set(k int, once bool, act func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.hit, p.once, p.act, p.seen = k, "", once, act, 0
}

// off ends that, and tells the step at which it acted, "" if it came to none.
func (p *trap) off() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = 0
	return p.hit
}

// where is the step at which it has acted.
func (p *trap) where() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hit
}

// longest is the most steps that one setting has seen. An adapter may go on stepping behind its caller's back.
func (p *trap) longest() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

func (p *trap) at(step string) error {
	p.mu.Lock()
	act := p.act
	if p.left > 0 {
		p.seen++
		p.most = max(p.most, p.seen)
	}
	switch {
	case p.left == 0 || p.left > 1:
		p.left = max(p.left-1, 0)
		act = nil
	case p.hit == "":
		p.hit = step
		if p.once {
			p.left = 0
		}
	}
	p.mu.Unlock()
	if act == nil {
		return nil
	}
	return act()
}

// maxSteps is at how many steps of a call something is done, where Kit.Steps does not say.
const maxSteps = 200

// never is a step that no call comes to.
const never = 1 << 30

// picks are the steps of total at which something is done: all, or so many, evenly.
func (b bench) picks(total int) []int {
	most := b.kit.Steps
	if most <= 0 {
		most = maxSteps
	}
	most = min(most, total)
	ks := make([]int, most)
	for i := range ks {
		ks[i] = 1 + i*total/most
	}
	return ks
}

// walk calls f with a stepped process of each next generation, and the trap that it may set at step k: once
// for counting, then for each step. It returns the steps at which something was done.
func (b bench) walk(next *uint64, f func(g uint64, s participant.Resource, p *trap, k int) (hit string)) []string {
	b.Helper()
	var steps []string
	once := func(k int) int {
		*next++
		p := &trap{}
		s := b.Stepped(b.TB, p.at)
		b.open(s, *next)
		hit := f(*next, s, p, k)
		p.off()
		_ = s.Close()
		if b.Failed() {
			b.Logf("that was at step %d, %q", k, hit)
			b.FailNow()
		}
		if hit != "" {
			steps = append(steps, hit)
		}
		return p.longest()
	}
	for _, k := range b.picks(once(never)) {
		once(k)
	}
	return steps
}

// steps are those of several walks, for the certificate.
func (b bench) steps(all ...[]string) {
	n := 0
	var names []string
	for _, s := range all {
		n += len(s)
		names = append(names, s...)
	}
	if n == 0 {
		b.Errorf("Target.Stepped gives a process that calls no step")
	}
	slices.Sort(names)
	b.figure("at %s: %q", plural.Of(n, "step"), slices.Compact(names))
}

func inject() error { return ErrInjected }

// An error that nobody hears of is how records are lost (O7): at each step of each call one is injected.
func checkErrors(t testing.TB, target Target) {
	b := patientBench(t, target, 5)
	if b.Stepped == nil {
		b.skip("no steps at which an error could be injected (Target.Stepped)")
	}
	e := &errorWalk{b: b, plain: b.process()}
	b.steps(
		b.walk(&e.g, e.prepare),
		b.walk(&e.g, e.commit),
		b.walk(&e.g, e.rollback),
		b.walk(&e.g, e.inspect),
		b.walk(&e.g, e.list),
		b.walk(&e.g, e.open),
	)
}

// errorWalk is a walk with errors over one target.
type errorWalk struct {
	b     bench
	g     uint64               // the last generation
	plain participant.Resource // a process that has no errors
	want  []string             // what readers see
}

// name is the one branch of a generation, and text its record.
func (e *errorWalk) name(g uint64) participant.BranchName { return branchName(home, g, 1) }
func (e *errorWalk) text(g uint64) string                 { return fmt.Sprintf("record-%d", g) }

// voted prepares a branch without an error.
func (e *errorWalk) voted(g uint64, s participant.Resource) participant.Handle {
	e.b.Helper()
	return e.b.prepared(e.b.begin(s, e.name(g), e.text(g)))
}

// commits brings a branch that was voted yes to its end, by another process, and looks whether it is there.
func (e *errorWalk) commits(g uint64, h participant.Handle) {
	e.b.Helper()
	e.b.commit(e.plain, h)
	e.want = append(e.want, e.text(g))
	e.b.sees(e.want...)
}

// recovers is the next generation: what has no vote is rolled back, and readers see none of it.
func (e *errorWalk) recovers() {
	e.b.Helper()
	e.g++
	r := e.b.Process(e.b.TB)
	e.b.open(r, e.g)
	e.b.sweep(r)
	if err := r.Close(); err != nil {
		e.b.Fatalf("close: %v", err)
	}
	e.b.sees(e.want...)
}

func (e *errorWalk) prepare(g uint64, s participant.Resource, p *trap, k int) string {
	b := e.b
	p.set(k, true, inject)
	branch, err := s.Begin(b.ctx, e.name(g))
	if err != nil { // temporary: it is asked again
		if branch, err = s.Begin(b.ctx, e.name(g)); err != nil {
			b.Errorf("begin again after an error: %v", err)
			return p.off()
		}
	}
	if err := b.tries(func(t testing.TB) { b.Write(t, branch, e.text(g)) }); err != nil {
		hit := p.off()
		if err := branch.Discard(b.ctx); err != nil {
			b.Logf("discard after a write that failed: %v", err)
		}
		e.recovers()
		return hit
	}
	vote, err := branch.Prepare(b.ctx)
	hit := p.off()
	if err != nil { // unknown: it is asked again
		vote, err = branch.Prepare(b.ctx)
	}
	switch {
	case err != nil:
		e.recovers()
	case vote.Kind == participant.Yes:
		b.sees(e.want...)
		e.commits(g, vote.Handle)
	case vote.Kind == participant.No && vote.Reason != nil:
		e.recovers()
	default:
		b.Errorf("a branch with a record votes %d, %v", vote.Kind, vote.Reason)
	}
	return hit
}

func (e *errorWalk) commit(g uint64, s participant.Resource, p *trap, k int) string {
	h := e.voted(g, s)
	p.set(k, true, inject)
	proof, err := s.Commit(e.b.ctx, h)
	hit := p.off()
	e.b.passing("a commit with an error in it", err)
	if err == nil {
		if proof.Verdict != participant.Committed {
			e.b.Errorf("a commit with an error in it proves verdict %d: %s", proof.Verdict, proof.Evidence)
			return hit
		}
		e.b.sees(append(slices.Clone(e.want), e.text(g))...) // at once: it was a success
	}
	e.commits(g, h)
	return hit
}

func (e *errorWalk) rollback(g uint64, s participant.Resource, p *trap, k int) string {
	h := e.voted(g, s)
	p.set(k, true, inject)
	proof, err := s.Rollback(e.b.ctx, h)
	hit := p.off()
	e.b.cut("a rollback with an error in it", proof, err, participant.RolledBack)
	if err == nil {
		e.b.lists(e.plain, home)
	}
	e.b.rollback(e.plain, h)
	e.b.sees(e.want...)
	return hit
}

func (e *errorWalk) inspect(g uint64, s participant.Resource, p *trap, k int) string {
	h := e.voted(g, s)
	looks := func(want participant.State) {
		got, err := s.Inspect(e.b.ctx, h)
		if err == nil && got != want && !(e.b.claims.Asserted && got == participant.Unknown) {
			e.b.Errorf("an inspect with an error in it says state %d, want %d or an error", got, want)
		}
	}
	p.set(k, true, inject)
	looks(participant.Undecided)
	hit := p.off()
	e.commits(g, h)
	p.set(k, true, inject)
	looks(participant.StateCommitted)
	if again := p.off(); hit == "" {
		hit = again
	}
	return hit
}

func (e *errorWalk) list(g uint64, s participant.Resource, p *trap, k int) string {
	h := e.voted(g, s)
	p.set(k, true, inject)
	found, err := s.List(e.b.ctx, home)
	hit := p.off()
	if e.b.claims.CanList && err == nil && len(found) != 1 {
		e.b.Errorf("a listing with an error in it names %d branches and no error, one is prepared", len(found))
	}
	e.commits(g, h)
	return hit
}

// open has nothing to do with the process that walk has opened, but a newer generation.
func (e *errorWalk) open(g uint64, old participant.Resource, p *trap, k int) string {
	zombie := e.b.begin(old, e.name(g), e.text(g))
	e.g++
	s := e.b.Stepped(e.b.TB, p.at)
	defer func() { _ = s.Close() }()
	p.set(k, true, inject)
	err := s.Open(e.b.ctx, opening(home, e.g))
	hit := p.off()
	if err != nil {
		e.b.open(s, e.g)
	}
	if vote, err := zombie.Prepare(e.b.ctx); err == nil && vote.Kind == participant.Yes {
		if !e.b.bare() {
			e.b.Errorf("an older generation was prepared after an open that had an error in it")
		}
		e.b.rollback(s, vote.Handle)
	}
	e.commits(e.g, e.voted(e.g, s))
	return hit
}

// Each call is cancelled while it is at each of its steps.
func checkCancelledAtSteps(t testing.TB, target Target) {
	b := patientBench(t, target, 5)
	if b.Stepped == nil {
		b.skip("no steps at which a call could be cancelled (Target.Stepped)")
	}
	var g uint64
	var want []string
	// cancelled makes a call whose context ends at step k.
	cancelled := func(p *trap, k int, call func(ctx context.Context)) string {
		ctx, cancel := context.WithCancel(b.ctx)
		defer cancel()
		p.set(k, true, func() error { cancel(); return nil })
		call(ctx)
		return p.off()
	}
	text := func(g uint64) string { return fmt.Sprintf("record-%d", g) }
	kept := func(g uint64, s participant.Resource) participant.Handle {
		return b.prepared(b.begin(s, branchName(home, g, 1), text(g)))
	}
	seen := func(g uint64, s participant.Resource, h participant.Handle) {
		b.commit(s, h)
		want = append(want, text(g))
		b.sees(want...)
	}
	b.steps(
		b.walk(&g, func(g uint64, s participant.Resource, p *trap, k int) string {
			branch := b.begin(s, branchName(home, g, 1), text(g))
			hit := cancelled(p, k, func(ctx context.Context) {
				if vote, err := branch.Prepare(ctx); err == nil && vote.Kind != participant.Yes {
					b.Errorf("a prepare that is cancelled on its way votes %d, %v; no answer is unknown, never no", vote.Kind, vote.Reason)
				}
			})
			if !b.Failed() {
				seen(g, s, b.prepared(branch))
			}
			return hit
		}),
		b.walk(&g, func(g uint64, s participant.Resource, p *trap, k int) string {
			h := kept(g, s)
			hit := cancelled(p, k, func(ctx context.Context) {
				proof, err := s.Commit(ctx, h)
				b.cut("a commit", proof, err, participant.Committed)
			})
			seen(g, s, h)
			return hit
		}),
		b.walk(&g, func(g uint64, s participant.Resource, p *trap, k int) string {
			h := kept(g, s)
			hit := cancelled(p, k, func(ctx context.Context) {
				proof, err := s.Rollback(ctx, h)
				b.cut("a rollback", proof, err, participant.RolledBack)
			})
			b.rollback(s, h)
			b.sees(want...)
			return hit
		}),
	)
}
