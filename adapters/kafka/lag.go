package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/internal/obs"
)

// lagEvery is how often the offsets that lag tools look at are written.
const lagEvery = 5 * time.Second

// lag writes how far a source has been read to a consumer group, for tools alone. Nothing depends
// on it, so what fails is tried again with newer offsets.
type lag struct {
	at    endpoint
	adm   *kadm.Client
	group string
	quit  chan struct{}
	done  chan struct{}

	mu   sync.Mutex // guards next; never held across I/O
	next map[place]kadm.Offset
}

// newLag starts writing; stop ends it.
func newLag(at endpoint, cl *kgo.Client, group string) *lag {
	l := &lag{
		at: at, adm: kadm.NewClient(cl), group: group,
		quit: make(chan struct{}), done: make(chan struct{}), next: make(map[place]kadm.Offset),
	}
	go l.run()
	return l
}

// reached notes where a partition stands.
func (l *lag) reached(p *part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next[place{p.topic, p.number}] = kadm.Offset{Topic: p.topic, Partition: p.number, At: p.next, LeaderEpoch: p.epoch}
}

// stop writes once more and waits until that is over.
func (l *lag) stop() {
	close(l.quit)
	<-l.done
}

func (l *lag) run() {
	defer close(l.done)
	every := time.NewTicker(lagEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			l.write()
		case <-l.quit:
			l.write()
			return
		}
	}
}

// write commits what was reached since the last time.
func (l *lag) write() {
	l.mu.Lock()
	var offsets kadm.Offsets
	for _, o := range l.next {
		offsets.Add(o)
	}
	clear(l.next)
	l.mu.Unlock()
	if len(offsets) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	got, err := l.adm.CommitOffsets(ctx, l.group, offsets)
	if err == nil {
		err = got.Error()
	}
	if err != nil {
		l.at.log.WarnContext(ctx, "offsets for lag tools could not be written", obs.Cause(l.group), obs.Err(err))
	}
}
