package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/internal/fault"
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
	if n.N <= t.last {
		return fmt.Errorf("begin %s: %w: epoch %d was begun already", n, participant.ErrBug, t.last)
	}
	t.last = n.N
	return nil
}

// fenceKey is where the newest generation stands.
func (t *tenure) fenceKey() witness {
	return witness{Group: t.group, Topic: t.keys.topic, Partition: fencePartition}
}

// raiseFence writes our generation where it is lower, with the note from which generation on
// older ids still wait to be initialised. Higher: we are fenced.
func (t *tenure) raiseFence(ctx context.Context) error {
	at, note, err := fetchOffset(ctx, t.cl, t.fenceKey())
	if err != nil {
		return err
	}
	if at > int64(t.name.Generation) {
		return t.fencedBy(at)
	}
	if floor, ok := strings.CutPrefix(note, "from "); ok && at >= 0 {
		t.floor, err = strconv.ParseUint(floor, 10, 64)
		if err != nil {
			return fmt.Errorf("the fence of %s says %q: %w: delete the group, which only keeps fences and witnesses: %w", t.group, note, participant.ErrMisconfigured, err)
		}
	}
	fault.Point("kafka/before-fence")
	if err := commitOffset(ctx, t.cl, t.fenceKey(), int64(t.name.Generation), fenceNote(t.floor)); err != nil {
		return fmt.Errorf("raise the fence to generation %d: %w", t.name.Generation, err)
	}
	fault.Point("kafka/after-fence")
	return nil
}

func fenceNote(floor uint64) string { return "from " + strconv.FormatUint(floor, 10) }

// standing reports whether no newer generation has been opened. It is a courtesy to the reader of
// logs: what counts is that the ledger refuses the votes of a closed generation.
func (t *tenure) standing(ctx context.Context) error {
	at, _, err := fetchOffset(ctx, t.cl, t.fenceKey())
	if err != nil {
		return err
	}
	if at > int64(t.name.Generation) {
		return t.fencedBy(at)
	}
	return nil
}

func (t *tenure) fencedBy(newer int64) error {
	return fmt.Errorf("%w: generation %d of %s has been opened, this is %d", participant.ErrFenced, newer, t.group, t.name.Generation)
}

// fenceRest runs once, before the first branch: by then what older generations had prepared is
// resolved, so every older id that holds nothing can be initialised without losing anything.
func (t *tenure) fenceRest(ctx context.Context) error {
	t.mu.Lock()
	done := t.fenced
	t.mu.Unlock()
	if done {
		return nil
	}
	if err := t.fenceIdle(ctx, true); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fenced = true
	return nil
}

// fenceIdle initialises older ids of the same resource that hold no transaction, once. Before
// older work is resolved (all is false) those whose last outcome the coordinator still remembers
// are left out: it is the best evidence there is, and initialising erases it.
func (t *tenure) fenceIdle(ctx context.Context, all bool) error {
	own := t.name
	found, err := listTransactions(ctx, t.cl, nil, func(n participant.BranchName) bool {
		older := n.Generation
		n.Generation, n.N = own.Generation, 0
		return n == own && older < own.Generation && older >= t.floor
	})
	if err != nil {
		return classed(fmt.Errorf("list older transactions of %s: %w", t.group, err))
	}
	floor := own.Generation
	for _, f := range found {
		if unfinished(f.State) || (!all && f.State != stateEmpty) {
			floor = min(floor, f.Name.Generation)
			continue
		}
		if err := initialise(ctx, t.cl, f.ID); err != nil {
			return fmt.Errorf("fence %s: %w", f.ID, err)
		}
	}
	if !all || floor == t.floor {
		return nil
	}
	return commitOffset(ctx, t.cl, t.fenceKey(), int64(own.Generation), fenceNote(floor))
}

// initialise raises an id's epoch, so that whoever holds it can write no more. It aborts what the
// id has open: never called before that is known to be nothing.
func initialise(ctx context.Context, cl *kgo.Client, id string) error {
	fault.Point("kafka/before-init")
	wait := short()
	for {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr(id), 60_000
		req.ProducerID, req.ProducerEpoch = -1, -1
		resp, err := req.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			fault.Point("kafka/after-init")
			return classed(err)
		}
		if werr := wait.wait(ctx); werr != nil {
			return fmt.Errorf("%w: %w", err, werr)
		}
	}
}

// askAgain is how often a Begin that waits for a slot asks the cluster itself: the branch may
// have been finished by another process.
const askAgain = 200 * time.Millisecond

// take waits for a slot whose last branch is resolved.
func (t *tenure) take(ctx context.Context) (*slot, error) {
	ask := time.NewTicker(askAgain)
	defer ask.Stop()
	for {
		t.mu.Lock()
		over, changed := t.over, t.changed
		var held []*body
		for _, s := range t.slots {
			if s.use == slotFree || (s.use == slotPrepared && t.sink.reuseUnresolved) {
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
