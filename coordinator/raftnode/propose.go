package raftnode

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/semaphore"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/mutant"
)

// maxWaiting callers may wait for a place among the proposals in flight; more are turned away.
const maxWaiting = 4096

// proposer gathers what many callers propose into shared entries. While an entry is on its way it
// waits; what arrives meanwhile goes into the next entry together. A second one leaves beside it only
// with a crowd: an entry costs every node two syncs, and for a few callers that is most of what they
// cost. There is no timer: a lone caller's command leaves at once.
type proposer struct {
	apply func(entry []byte) raft.ApplyFuture
	now   func() time.Time
	stop  *failStop

	queue   chan *proposal      // capacity: as many as may be in flight
	window  window              // entries on their way
	slots   *semaphore.Weighted // proposals in flight
	bytes   *semaphore.Weighted // of all proposals in flight
	waiting atomic.Int64        // callers that wait for slots and bytes
	closed  chan struct{}       // closed when no answer will come any more
	awaits  sync.WaitGroup      // one for each entry on its way

	entries, commands atomic.Uint64 // proposed so far
	stamps            stamps        // of run's goroutine alone
	stuck             stuckTransfer
}

// proposal is one caller's command, or barrier, on its way.
type proposal struct {
	command encoded
	barrier bool // no command: it only wants an entry of its own time applied
	state   atomic.Int32
	done    chan outcome // capacity 1
}

type outcome struct {
	result ledger.Result
	err    error
}

// States of a proposal: the proposer and a caller whose time is up race for it.
const (
	queued int32 = iota
	taken
	abandoned
)

func newProposer(inFlight, entries int, stop *failStop, apply func([]byte) raft.ApplyFuture) *proposer {
	return &proposer{
		apply: apply, now: time.Now, stop: stop,
		queue:  make(chan *proposal, inFlight),
		window: newWindow(entries),
		slots:  semaphore.NewWeighted(int64(inFlight)),
		bytes:  semaphore.NewWeighted(inFlightBytes),
		closed: make(chan struct{}),
	}
}

func (p *proposal) weight() int64 { return p.command.weight() }

// places is how many of the places in flight a proposal takes, and of how many bytes.
func (p *proposal) places() (n, bytes int64) {
	n, bytes = 1, p.weight()
	if mutant.On("raft/in-flight-count") {
		n = 0
	}
	if mutant.On("raft/in-flight-bytes") {
		bytes = 0
	}
	return n, bytes
}

// submit proposes and waits for the answer. When ctx ends first the error says whether the
// command can have been proposed: ErrOverloaded if not, ErrUnknown if so.
func (p *proposer) submit(ctx context.Context, command encoded, barrier bool) (ledger.Result, error) {
	m := &proposal{command: command, barrier: barrier, done: make(chan outcome, 1)}
	if err := p.admit(ctx, m); err != nil {
		return ledger.Result{}, err
	}
	p.queue <- m // has room for all that are admitted
	if len(p.queue) >= crowd {
		p.window.move()
	}
	select {
	case out := <-m.done:
		return out.result, out.err
	case <-ctx.Done():
		if m.state.CompareAndSwap(queued, abandoned) {
			return ledger.Result{}, fmt.Errorf("%w: not proposed in time: %w", ErrOverloaded, context.Cause(ctx))
		}
		if mutant.On("raft/own-deadline") {
			out := <-m.done
			return out.result, out.err
		}
		return ledger.Result{}, fmt.Errorf("%w: no answer in time: %w", ErrUnknown, context.Cause(ctx))
	case <-p.closed:
		select {
		case out := <-m.done:
			return out.result, out.err
		default:
			return ledger.Result{}, fmt.Errorf("%w: the node stopped", ErrUnknown)
		}
	}
}

// admit takes a place among the proposals in flight, waiting for one until ctx ends.
func (p *proposer) admit(ctx context.Context, m *proposal) error {
	if p.waiting.Add(1) > maxWaiting {
		p.waiting.Add(-1)
		return fmt.Errorf("%w: %d callers wait already", ErrOverloaded, maxWaiting)
	}
	defer p.waiting.Add(-1)
	n, bytes := m.places()
	if err := p.slots.Acquire(ctx, n); err != nil {
		return fmt.Errorf("%w: no place became free: %w", ErrOverloaded, context.Cause(ctx))
	}
	if err := p.bytes.Acquire(ctx, bytes); err != nil {
		p.slots.Release(n)
		return fmt.Errorf("%w: no place became free: %w", ErrOverloaded, context.Cause(ctx))
	}
	return nil
}

// release gives the places of answered or abandoned proposals back.
func (p *proposer) release(proposals ...*proposal) {
	var places, weight int64
	for _, m := range proposals {
		n, bytes := m.places()
		places, weight = places+n, weight+bytes
	}
	p.bytes.Release(weight)
	p.slots.Release(places)
}

// run builds and sends entries, one after the other, until ctx ends.
func (p *proposer) run(ctx context.Context) {
	var next *proposal // did not fit into the last entry
	for {
		select {
		case p.window.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if next == nil {
			select {
			case next = <-p.queue:
			case <-ctx.Done():
				return
			}
			p.window.company(ctx, func() bool { return len(p.queue) >= crowd })
			runtime.Gosched() // the callers that the last entry answered are about to come back
		}
		var e *entry
		if e, next = p.gather(next); e == nil {
			p.window.leave()
			continue
		}
		p.entries.Add(1)
		p.commands.Add(uint64(e.commands))
		future := p.apply(e.data)
		p.awaits.Add(1)
		go func() {
			defer p.awaits.Done()
			p.await(e, future)
		}()
	}
}

// entry is a shared entry on its way.
type entry struct {
	data      []byte
	proposals []*proposal
	commands  int
}

// gather puts first and whatever else has arrived into one entry, up to its size. It returns
// no entry if everything found was abandoned, and what did not fit.
func (p *proposer) gather(first *proposal) (*entry, *proposal) {
	expect := len(p.queue) + 1
	e := &entry{
		proposals: make([]*proposal, 0, expect),
		data:      make([]byte, 0, min(expect*int(first.weight())*9/8, max(entryBytes, int(first.weight())))),
	}
	at := p.stamps.next(p.now())
	var left *proposal
	for m := first; m != nil; {
		if len(e.data) > 0 && len(e.data)+int(m.weight()) > entryBytes && !mutant.On("raft/entry-bytes") {
			left = m
			break
		}
		if m.state.CompareAndSwap(queued, taken) {
			if !m.barrier {
				e.data = appendCommand(e.data, m.command, at)
				e.commands++
			}
			e.proposals = append(e.proposals, m)
		} else {
			p.release(m)
		}
		select {
		case m = <-p.queue:
		default:
			m = nil
		}
	}
	if len(e.proposals) == 0 {
		return nil, left
	}
	return e, left
}

// await answers the callers of one entry once its fate is known.
func (p *proposer) await(e *entry, future raft.ApplyFuture) {
	err := future.Error()
	p.stuck.saw(err, p.now(), p.stop)
	var results []ledger.Result
	if err == nil {
		var ok bool
		if results, ok = future.Response().([]ledger.Result); !ok || len(results) != e.commands {
			err = errors.New("the entry was not applied to its end")
		}
	}
	p.window.leave()
	p.release(e.proposals...)
	err = proposed(err)
	for _, m := range e.proposals {
		out := outcome{err: err}
		if err == nil && !m.barrier {
			out.result, results = results[0], results[1:]
		}
		m.done <- out
	}
}

// close lets every caller go that still waits; run has ended.
func (p *proposer) close() { close(p.closed) }

// stuckTransfer notices a leadership transfer that never ends: the library can leave its mark
// set for ever, and the node then leads and refuses every write.
type stuckTransfer struct {
	mu    sync.Mutex // guards since
	since time.Time
}

func (s *stuckTransfer) saw(err error, now time.Time, stop *failStop) {
	s.mu.Lock()
	switch {
	case !errors.Is(err, raft.ErrLeadershipTransferInProgress):
		s.since = time.Time{}
	case s.since.IsZero():
		s.since = now
	}
	stuck := !mutant.On("raft/stuck-transfer") && !s.since.IsZero() && now.Sub(s.since) > transferLimit
	s.mu.Unlock()
	if stuck {
		stop.report(fmt.Errorf("%w for %s", ErrStuckTransfer, transferLimit))
	}
}

// stamps are the times of entries, Unix ms.
type stamps struct {
	skew func() time.Duration // of the clock; nil: none
	last int64                // the newest
	made time.Time            // the time up to which it counts
}

// next is the time of an entry that is made now. It never goes back, nor does it stand: where the clock was set back, it
// goes at half its pace until the clock has come up with it. What waits for a time, as the next start of a scope does,
// would else wait for as long as the clock was ahead.
func (s *stamps) next(now time.Time) int64 {
	at := now.UnixMilli()
	if s.skew != nil {
		at += s.skew().Milliseconds()
	}
	if at >= s.last {
		s.last, s.made = at, now
		return at
	}
	if half := now.Sub(s.made).Milliseconds() / 2; half > 0 { // by the monotonic clock
		s.last, s.made = s.last+half, s.made.Add(2*time.Duration(half)*time.Millisecond) // what is left over counts for the next
	}
	return s.last
}
