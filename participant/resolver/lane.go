package resolver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// atOnce is how many branches of one resource are worked on at the same time.
const atOnce = 8

// startedAtOnce is how many chains of one resource are worked on or wait for a place: the others wait in the orders.
const startedAtOnce = 8 * atOnce

// lane is the work in one resource: one that hangs holds up no other. Its fields belong to the goroutine of run,
// what is under mu excepted. Tasks run beside it, and come back to it as functions.
type lane struct {
	r      *Resolver
	f      participant.Finisher
	alias  string
	inbox  chan *orders
	ended  chan func()
	tasks  sync.WaitGroup
	slots  chan struct{}
	now    *orders // nil before the first answer
	chains map[chain]*try
	flying int // chains that are started and have not ended
	// proven and paid are when a duty went that older orders may still name.
	proven map[branchKey]time.Time
	paid   map[debtKey]time.Time
	sweep  sweeping

	mu   sync.Mutex // guards said; held for memory only
	said said
}

// said is what reports tell of a lane.
type said struct {
	text     string
	is       *unisinkv1.ResourceRef // nil until the resource has described itself
	blind    bool                   // it cannot list everything that is prepared
	trouble  string
	listedAt time.Time
	prepared int
	oldest   time.Time
	troubles []*unisinkv1.ResolverTrouble
	inDoubt  []*unisinkv1.InDoubtFind
}

func newLane(r *Resolver, x Resource) *lane {
	return &lane{
		r: r, f: x.Finisher, alias: x.Name, inbox: make(chan *orders, 1), ended: make(chan func()), slots: make(chan struct{}, atOnce),
		chains: map[chain]*try{}, proven: map[branchKey]time.Time{}, paid: map[debtKey]time.Time{}, sweep: newSweeping(), said: said{text: x.Text},
	}
}

// give hands over the newest orders, in the place of older ones that were not taken.
func (l *lane) give(o *orders) {
	select {
	case <-l.inbox:
	default:
	}
	l.inbox <- o // nobody else sends
}

// identity is what the resource is, once it has told.
func (l *lane) identity() (*unisinkv1.ResourceRef, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.is, l.said.is != nil
}

// blind reports a resource that cannot list everything that is prepared in it.
func (l *lane) blind() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.blind
}

// run works until ctx ends, and returns when its tasks have.
func (l *lane) run(ctx context.Context) {
	defer l.tasks.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !l.describe(ctx) {
		return
	}
	tick := time.NewTicker(l.r.c.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-l.inbox:
			l.now = o
			l.heard()
		case back := <-l.ended:
			back()
			l.endAll()
		case <-tick.C:
			l.tell()
		}
		l.step(ctx)
	}
}

// endAll takes in whatever else has ended, so that a look at all duties serves many.
func (l *lane) endAll() {
	for {
		select {
		case back := <-l.ended:
			back()
		default:
			return
		}
	}
}

// heard makes due what was tried while no coordinator answered, and failed for that: one answers again, and what is owed
// must not wait out pauses that grew while none did. What fails while one answers waits, also if that is for want of one: it
// lists duties and takes no proof.
func (l *lane) heard() {
	if mutant.On("resolver/due-when-answered") {
		return
	}
	back := l.now.back
	if mutant.On("resolver/pauses-while-answered") {
		back = l.now.asOf
	}
	for _, t := range l.chains {
		t.answered(back)
	}
	if l.sweep.answered(back) {
		l.sweep.soon = l.sweep.next
	}
}

// step starts what is due.
func (l *lane) step(ctx context.Context) {
	if l.now == nil {
		return
	}
	l.startChains(ctx)
	l.startSweep(ctx)
}

// task runs f beside the lane as soon as one of its places is free. What it returns is run by the lane.
func (l *lane) task(ctx context.Context, f func(context.Context) func()) {
	l.beside(ctx, func(ctx context.Context) func() {
		select {
		case l.slots <- struct{}{}:
			defer func() { <-l.slots }()
			return f(ctx)
		case <-ctx.Done():
			return func() {}
		}
	})
}

// beside runs f at once.
func (l *lane) beside(ctx context.Context, f func(context.Context) func()) {
	l.tasks.Go(func() {
		back := f(ctx)
		select {
		case l.ended <- back:
		case <-ctx.Done():
		}
	})
}

// describe asks the resource what it is, until it tells. One that cannot be reached is told of, and tried on.
func (l *lane) describe(ctx context.Context) bool {
	t := &try{}
	for {
		d, err := l.ask(ctx)
		if err == nil {
			l.mu.Lock()
			l.said.is, l.said.blind, l.said.trouble = &unisinkv1.ResourceRef{Kind: d.Kind, Identity: d.Identity}, !d.CanList, ""
			if d.Text != "" {
				l.said.text = d.Text
			}
			text := l.said.text
			l.mu.Unlock()
			l.r.log.InfoContext(ctx, "resource reached", obs.Adapter(d.Kind), obs.Resource(text), obs.Identity(d.Identity))
			if !d.CanList {
				l.r.log.WarnContext(ctx, "the resource cannot list: only what is announced or decided can be finished in it", obs.Resource(text))
			}
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		wait := t.failed(err)
		log := l.r.log.WarnContext
		if forPeople(err) {
			log = l.r.log.ErrorContext // a person must act; the others go on
			err = fmt.Errorf("%w; mend it there, or give this resolver other settings and start it again", err)
		}
		l.mu.Lock()
		l.said.trouble = err.Error()
		text := l.said.text
		if l.alias != "" {
			text = l.alias + ": " + text
		}
		l.mu.Unlock()
		log(ctx, "resource not reached, trying again", obs.Resource(text), obs.Attempt(t.failures), obs.Next(wait), obs.Err(err))
		if !route.Sleep(ctx, wait) {
			return false
		}
	}
}

func (l *lane) ask(ctx context.Context) (participant.Description, error) {
	ctx, cancel := context.WithTimeout(ctx, l.r.c.Attempt)
	defer cancel()
	d, err := l.f.Describe(ctx)
	if err == nil && (d.Kind == "" || d.Identity == "") {
		err = errors.New("the resource does not say what it is")
	}
	return d, err
}

// try is how often something was tried in vain, and when it is tried next.
type try struct {
	flying   bool
	failures int
	begun    time.Time // the last time
	next     time.Time
	err      error
	branch   *unisinkv1.BranchRef
}

// answered reports that a try failed for want of a coordinator which was begun before they were back, and makes it due. The
// next one is begun later.
func (t *try) answered(back time.Time) bool {
	if t.flying || t.err == nil || !route.Retryable(t.err) || !t.begun.Before(back) {
		return false
	}
	t.next = back
	return true
}

// begin notes that something is tried.
func (t *try) begin() { t.flying, t.begun = true, time.Now() }

const firstWait, longestWait = 100 * time.Millisecond, 30 * time.Second

// failed notes an error and returns how long to wait: twice as long each time, or as the resource says.
func (t *try) failed(err error) time.Duration {
	t.failures++
	t.err = err
	wait := min(firstWait<<min(t.failures-1, 20), longestWait)
	if later := (*participant.RetryAfter)(nil); errors.As(err, &later) {
		wait = max(wait, later.After)
	}
	t.next = time.Now().Add(wait)
	return wait
}

// since reports that something happened since the orders were asked for, or at that very moment.
func (l *lane) since(at time.Time) bool { return !at.Before(l.now.asOf) }
