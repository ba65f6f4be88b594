package participant

import (
	"context"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/mutant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// link is one attachment to a leader: its stream brings orders, its connection takes answers.
type link struct {
	addr      string
	term      uint64
	session   unisinkv1.SessionClient
	pipelines unisinkv1.PipelinesClient
	hangUp    context.CancelCauseFunc // ends the stream; the attach loop then looks for a leader again
}

// links holds the present attachment and what was heard from leaders.
type links struct {
	mu      sync.Mutex // guards the rest
	now     *link      // nil while not attached
	changed chan struct{}
	term    uint64 // highest whose orders were obeyed
	stamp   *unisinkv1.Stamp
	lease   time.Duration
	until   time.Time // end of the lease
	waiting string
	leaving bool // no attachment follows the present one
}

func newLinks() *links { return &links{changed: make(chan struct{}), lease: 3 * time.Second} }

// obey reports whether orders of a term are to be obeyed: not when a newer leader was.
func (l *links) obey(term uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if term < l.term && !mutant.On("participant/lower-terms-refused") {
		return false
	}
	l.term = term
	return true
}

// attach makes now the present link; it has been welcomed.
func (l *links) attach(now *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now, l.waiting = now, ""
	close(l.changed)
	l.changed = make(chan struct{})
}

// drop gives a link up. Only its own stream is ended, so an answer that failed late harms no newer link.
func (l *links) drop(old *link, why error) {
	l.mu.Lock()
	if l.now == old {
		l.now = nil
	}
	l.mu.Unlock()
	old.hangUp(why)
}

// present is the present link, nil while there is none.
func (l *links) present() *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// await waits for a link.
func (l *links) await(ctx context.Context) (*link, error) {
	for {
		l.mu.Lock()
		now, changed := l.now, l.changed
		l.mu.Unlock()
		if now != nil {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// renewed notes a lease. It runs from the sending of the request that it answers, so that its end
// here is never later than its end at the leader.
func (l *links) renewed(sent time.Time, lease *unisinkv1.Lease) {
	l.mu.Lock()
	if d := time.Duration(lease.GetDurationMs()) * time.Millisecond; d > 0 {
		l.lease, l.until = d, sent.Add(d)
	}
	l.mu.Unlock()
	l.heard(lease.GetStamp())
}

// heard notes a stamp if it is newer than the newest.
func (l *links) heard(s *unisinkv1.Stamp) {
	if s == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	newest := l.stamp
	if s.GetTerm() > newest.GetTerm() || s.GetTerm() == newest.GetTerm() && s.GetClockNs() > newest.GetClockNs() {
		l.stamp = s
	}
}

// newest is the newest stamp heard; nil when there is none.
func (l *links) newest() *unisinkv1.Stamp {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stamp
}

func (l *links) leaseTime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease
}

// silent reports whether no leader has been heard for a lease.
func (l *links) silent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.until.IsZero() && time.Now().After(l.until)
}

func (l *links) wait(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = what
}

func (l *links) obeyed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// leave says that no attachment is to follow the present one.
func (l *links) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = true
}

func (l *links) left() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaving
}
