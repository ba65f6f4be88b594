package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// The fence of a resource is a number that only rises: the newest generation that was opened. It
// stands as an offset in a group of its own and is moved by a transaction of an id of its own,
// generation 0, slot 0, which no ledger gives out. Whoever moves it initialises that id first and
// reads second, so one that was overtaken in between finds its write refused and reads again.
// With it stands from which generation on older ids have not been initialised yet.

// fenceID is the transactional id that moves the fence.
func (t *tenure) fenceID() string {
	n := t.name
	n.Generation, n.N = 0, 0
	return n.String()
}

// fenceKey is where the fence stands.
func (t *tenure) fenceKey() witness {
	return witness{Group: t.group + ".fence", Topic: t.keys.topic, Partition: fencePartition}
}

// raiseFence brings the fence up to our generation. Higher already: we are fenced.
func (t *tenure) raiseFence(ctx context.Context) error {
	_, note, err := t.readFence(ctx)
	if err != nil {
		return err
	}
	if floor, ok := strings.CutPrefix(note, "from "); ok {
		if t.floor, err = strconv.ParseUint(floor, 10, 64); err != nil {
			return fmt.Errorf("the fence in group %s says %q: %w: delete that group, it keeps nothing else: %w", t.fenceKey().Group, note, participant.ErrMisconfigured, err)
		}
	}
	return t.moveFence(ctx, t.floor)
}

// moveFence writes our generation and the floor, unless a newer generation stands there.
func (t *tenure) moveFence(ctx context.Context, floor uint64) error {
	wait := short()
	for {
		err := t.tryFence(ctx, floor)
		if !fencing(err) && !isAny(err, kerr.InvalidTxnState, kerr.ConcurrentTransactions) {
			return err
		}
		if werr := wait.wait(ctx); werr != nil { // somebody else moves it at this moment
			return fmt.Errorf("%w: %w", err, werr)
		}
	}
}

func (t *tenure) tryFence(ctx context.Context, floor uint64) error {
	pid, epoch, err := initialise(ctx, t.cl, t.fenceID())
	if err != nil {
		return err
	}
	if _, _, err := t.readFence(ctx); err != nil {
		return err
	}
	f := &finish{sink: t.sink, cl: t.cl, b: &body{TxnID: t.fenceID(), PID: pid, Epoch: epoch, Class: t.can.class}}
	fault.Point("kafka/before-fence")
	note := "from " + strconv.FormatUint(floor, 10)
	if err := offsetIn(ctx, t.cl, f.b, t.fenceKey(), int64(t.name.Generation), note); err != nil {
		return classed(err)
	}
	if err := f.endTxn(ctx, true); err != nil {
		return classed(fmt.Errorf("move the fence of %s: %w", t.group, err))
	}
	fault.Point("kafka/after-fence")
	wait := short()
	for { // the answer comes before the write is seen
		at, _, err := t.readFence(ctx)
		if err != nil || at == int64(t.name.Generation) {
			return err
		}
		if err := wait.wait(ctx); err != nil {
			return err
		}
	}
}

// readFence reads the fence; one of a newer generation is ErrFenced.
func (t *tenure) readFence(ctx context.Context) (int64, string, error) {
	at, note, err := fetchOffset(ctx, t.cl, t.fenceKey())
	if err == nil && at > int64(t.name.Generation) && !mutant.On("kafka/fence") {
		err = fmt.Errorf("%w: generation %d of %s has been opened, this is %d", participant.ErrFenced, at, t.group, t.name.Generation)
	}
	return at, note, err
}

// standing reports whether no newer generation has been opened. A zombie learns from it early; what
// keeps its work from being committed is the ledger, which counts no vote of a closed generation.
func (t *tenure) standing(ctx context.Context) error {
	_, _, err := t.readFence(ctx)
	return err
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
		return n == own && older < own.Generation && older >= max(t.floor, 1)
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
		if _, _, err := initialise(ctx, t.cl, f.ID); err != nil {
			return fmt.Errorf("fence %s: %w", f.ID, err)
		}
	}
	if !all || floor == t.floor {
		return nil
	}
	return t.moveFence(ctx, floor)
}

// initialise raises an id's epoch, so that whoever holds it can write no more. It aborts what the
// id has open: never called before that is known to be nothing.
func initialise(ctx context.Context, cl *kgo.Client, id string) (pid int64, epoch int16, err error) {
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
			if err != nil {
				return 0, 0, classed(fmt.Errorf("initialise %s: %w", id, err))
			}
			return resp.ProducerID, resp.ProducerEpoch, nil
		}
		if werr := wait.wait(ctx); werr != nil {
			return 0, 0, fmt.Errorf("initialise %s: %w: %w", id, err, werr)
		}
	}
}
