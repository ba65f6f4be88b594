package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant"
)

// tenure is one opened generation: its slots, and the fence that it holds.
type tenure struct {
	sink  *Sink
	can   capability
	cl    *kgo.Client // the shared client of our class
	name  participant.BranchName
	group string
	keys  keys
	cap   int // bytes a branch may hold unacknowledged

	mu      sync.Mutex // guards what follows; never held across I/O
	slots   []*slot
	changed chan struct{} // closed, and made anew, when a slot is free
	last    uint64        // newest epoch begun
	floor   uint64        // ids of this generation and later may not be fenced yet
	fenced  bool          // every idle older id is fenced
	over    bool
}

// slot is one transactional id. It carries one branch after another, and takes the next one only
// when the last is resolved: to begin on an unresolved transaction would abort it.
type slot struct {
	id  string
	key witness

	use     slotUse
	holds   *body               // what is prepared in it
	verdict participant.Verdict // of the last branch, which the client has not been told
	client  *kgo.Client         // in the hands of whoever took the slot
	branch  *Branch             // with slotTaken
}

type slotUse uint8

const (
	slotFree slotUse = iota + 1
	slotTaken
	slotPrepared
)

func newTenure(s *Sink, c capability, cl *kgo.Client, o participant.Opening, name participant.BranchName, k keys) *tenure {
	t := &tenure{
		sink: s, can: c, cl: cl, name: name, group: groupOf(name), keys: k,
		cap: s.cfg.bufferedBytes(o.EpochInterval), changed: make(chan struct{}),
	}
	n := max(o.MaxPending, 1) + 1
	for i := range n {
		t.slots = append(t.slots, &slot{
			id:  slotID(o, name.Pipeline, name.Shard, i),
			key: k.slotKey(t.group, name.Generation, i), use: slotFree,
		})
	}
	return t
}

// accepts refuses names that are not of this generation, or not in order.
func (t *tenure) accepts(n participant.BranchName) error {
	if n.Txn != "" {
		return nil // by hand: in no order, in no generation
	}
	own := t.name
	own.N = n.N
	if n != own {
		return fmt.Errorf("begin %s: %w: %s is open", n, participant.ErrBug, t.name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.N < t.last { // the last one is begun again when its answer was an error
		return fmt.Errorf("begin %s: %w: epoch %d was begun already", n, participant.ErrBug, t.last)
	}
	t.last = n.N
	return nil
}

// askAgain is how often a Begin that waits for a slot asks the cluster itself: the branch may
// have been finished by another process.
const askAgain = 200 * time.Millisecond

// take waits for a slot whose last branch is resolved.
func (t *tenure) take(ctx context.Context) (*slot, error) {
	var ask *time.Ticker
	for {
		t.mu.Lock()
		over, changed := t.over, t.changed
		var held []*body
		for _, s := range t.slots {
			if s.use == slotFree || (s.use == slotPrepared && (t.sink.reuseUnresolved || mutant.On("kafka/slot-until-resolved"))) {
				s.use, s.holds = slotTaken, nil
				t.mu.Unlock()
				return s, nil
			}
			if s.use == slotPrepared {
				held = append(held, s.holds)
			}
		}
		t.mu.Unlock()
		if over {
			return nil, fmt.Errorf("%w: generation %d of %s is over", participant.ErrFenced, t.name.Generation, t.group)
		}
		if ask == nil {
			ask = time.NewTicker(askAgain)
			defer ask.Stop()
		}
		select {
		case <-changed:
		case <-ask.C:
			t.askAbout(ctx, held)
		case <-ctx.Done():
			return nil, fmt.Errorf("every slot of %s holds a branch that is not resolved: %w", t.group, context.Cause(ctx))
		}
	}
}

// askAbout frees the slots whose branches another process has finished.
func (t *tenure) askAbout(ctx context.Context, held []*body) {
	for _, b := range held {
		f := finish{sink: t.sink, cl: t.cl, b: b}
		proof, found, err := f.proven(ctx)
		if err != nil {
			t.sink.log().DebugContext(ctx, "cannot tell whether a branch is resolved", obs.Branch(b.Branch), obs.Err(err))
			continue
		}
		if found {
			t.resolved(b.name(), proof.Verdict)
		}
	}
}

// resolved frees the slot that holds a branch, if one of ours does.
func (t *tenure) resolved(handle string, v participant.Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.slots {
		if s.use == slotPrepared && s.holds.name() == handle {
			s.use, s.holds, s.verdict = slotFree, nil, v
			t.wake()
		}
	}
}

// wake lets those who wait for a slot look again. The caller holds mu.
func (t *tenure) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// writing is the branch of a name that was begun and not prepared, nil if there is none.
func (t *tenure) writing(name participant.BranchName) *Branch {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.slots {
		if s.use == slotTaken && s.branch != nil && s.branch.name == name {
			return s.branch
		}
	}
	return nil
}

// release gives a slot back that holds nothing.
func (t *tenure) release(s *slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.use, s.branch = slotFree, nil
	t.shut(s)
	t.wake()
}

// shut closes the client of a slot that nobody will need again. The caller holds mu.
func (t *tenure) shut(s *slot) {
	if t.over && s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

// hold marks a slot as holding a prepared branch.
func (t *tenure) hold(s *slot, b *body) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.use, s.holds, s.branch = slotPrepared, b, nil
	t.shut(s)
}

// ready gives a slot's client, in step with the cluster and in a new transaction, with the
// producer id and epoch that every record of it must carry.
func (t *tenure) ready(ctx context.Context, s *slot) (pid int64, epoch int16, err error) {
	if s.client != nil {
		if pid, epoch, err = t.begin(ctx, s); err == nil {
			return pid, epoch, nil
		}
		if fencing(err) {
			// Whoever raised the epoch may be a successor; then this process must not raise it again.
			if err := t.standing(ctx); err != nil {
				return 0, 0, err
			}
		}
		t.sink.log().DebugContext(ctx, "a producing client is made anew", obs.Cause(err.Error()), obs.Branch(s.id))
		s.client.Close()
		s.client, s.verdict = nil, 0
	}
	opts := append([]kgo.Opt{
		kgo.TransactionalID(s.id),
		kgo.TransactionTimeout(t.can.timeout),
		kgo.MaxBufferedRecords(1 << 24), // what bounds the buffer is the branch's own account
	}, t.sink.producing...)
	if s.client, err = t.sink.at.client(opts...); err != nil {
		return 0, 0, err
	}
	if pid, epoch, err = t.begin(ctx, s); err != nil {
		s.client.Close()
		s.client = nil
		return 0, 0, classed(fmt.Errorf("begin a transaction with %s: %w", s.id, err))
	}
	return pid, epoch, nil
}

// begin tells the client how its last transaction ended, with the same verdict and no other, and
// begins the next one. After any error the client must be thrown away.
func (t *tenure) begin(ctx context.Context, s *slot) (int64, int16, error) {
	if s.verdict != 0 {
		if t.can.class == classOld {
			return 0, 0, errors.New("transaction version 1 leaves the epoch as it is: every transaction is initialised for itself")
		}
		how := kgo.TryAbort
		if s.verdict == participant.Committed {
			how = kgo.TryCommit
		}
		s.verdict = 0
		if err := s.client.EndTransaction(ctx, how); err != nil {
			return 0, 0, fmt.Errorf("tell the client how its last transaction ended: %w", err)
		}
	}
	if _, _, err := s.client.ProducerID(ctx); err != nil { // initialises, and can be cancelled
		return 0, 0, err
	}
	if err := s.client.BeginTransaction(); err != nil {
		return 0, 0, err
	}
	return s.client.ProducerID(ctx)
}

// end drops what is not prepared and closes the clients; what is prepared stays so.
func (t *tenure) end(ctx context.Context) {
	t.mu.Lock()
	t.over = true
	var open []*Branch
	var idle []*kgo.Client
	for _, s := range t.slots {
		if s.use == slotTaken && s.branch != nil {
			open = append(open, s.branch)
			continue
		}
		if s.client != nil {
			idle = append(idle, s.client)
			s.client = nil
		}
	}
	t.wake()
	t.mu.Unlock()
	for _, cl := range idle {
		cl.Close()
	}
	for _, b := range open {
		b.drop(ctx, fmt.Errorf("%w: generation %d of %s is over", participant.ErrFenced, t.name.Generation, t.group))
	}
}
