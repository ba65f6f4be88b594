package kafka

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// Prepare flushes, puts the witness into the transaction beside that, and looks then whether the
// cluster shows the transaction as it must be: ongoing, with our producer and every partition that
// we wrote to, and a leader for each of them. Only then is the vote yes.
func (b *Branch) Prepare(ctx context.Context) (participant.Vote, error) {
	work, leave, err := b.enter(ctx)
	if err != nil {
		return participant.Vote{}, fmt.Errorf("prepare %s: %w", b.name, err)
	}
	defer leave()
	switch b.state {
	case branchPrepared, branchRefused:
		return b.vote, nil
	case branchDone:
		if b.vote.Kind == participant.ReadOnly {
			return b.vote, nil
		}
		if err := b.ended(); err != nil {
			return participant.Vote{Kind: participant.No, Reason: err}, nil
		}
		return participant.Vote{}, fmt.Errorf("prepare %s: %w: the branch was discarded", b.name, participant.ErrBug)
	case branchWriting:
	}
	if err := b.ended(); err != nil {
		return b.refuse(ctx, err), nil
	}
	if no := b.got.failure(); b.written == 0 && no != nil {
		return b.refuse(ctx, b.fencedOr(ctx, no)), nil
	}
	if b.written == 0 {
		b.abandon(ctx) // nothing was sent, so there is nothing to abort but what the client began for itself
		b.state, b.vote = branchDone, participant.Vote{Kind: participant.ReadOnly}
		return b.vote, nil
	}
	body, deadline, no, err := b.prepare(work)
	switch {
	case err != nil && b.ended() != nil:
		return b.refuse(ctx, b.ended()), nil
	case err != nil:
		return participant.Vote{}, fmt.Errorf("prepare %s: %w", b.name, err)
	case no != nil:
		return b.refuse(ctx, b.fencedOr(ctx, no)), nil
	}
	h, err := body.encode(b.name.Resource)
	if err != nil {
		return b.refuse(ctx, err), nil
	}
	b.state, b.vote = branchPrepared, participant.Vote{Kind: participant.Yes, Handle: h, Deadline: deadline}
	b.t.hold(b.slot, body)
	return b.vote, nil
}

// refuse drops the branch and says no, for good.
func (b *Branch) refuse(ctx context.Context, why error) participant.Vote {
	b.abandon(ctx)
	b.state = branchRefused
	b.vote = participant.Vote{Kind: participant.No, Reason: fmt.Errorf("%s: %w", b.name, why)}
	return b.vote
}

// fencedOr turns an error that speaks of a newer producer into ErrFenced if there is a newer
// generation; the broker's time-out and operators cause the same errors.
func (b *Branch) fencedOr(ctx context.Context, no error) error {
	if !fencing(no) {
		return no
	}
	if err := b.t.standing(ctx); err != nil {
		return fmt.Errorf("%w; %w", err, no)
	}
	return fmt.Errorf("the transaction was ended by the broker, as its time-out does, or by an operator: %w", no)
}

// prepare does the work of Prepare. No is why the vote must be no; err means try again.
func (b *Branch) prepare(ctx context.Context) (made *body, deadline time.Time, no, err error) {
	wait := slow()
	for {
		asked := b.ask(ctx)
		flushed := b.slot.client.Flush(ctx)
		if flushed == nil {
			fault.Point("kafka/after-flush")
		}
		got, err := asked()
		if flushed != nil {
			return nil, time.Time{}, nil, fmt.Errorf("flush: %w", context.Cause(ctx))
		}
		// A record that failed says more than what followed from it.
		if no := b.got.complete(ctx, b.written); no != nil {
			if ctx.Err() != nil && b.got.failure() == nil {
				return nil, time.Time{}, nil, fmt.Errorf("flush: %w", no)
			}
			return nil, time.Time{}, no, nil
		}
		made = b.body()
		if err == nil {
			deadline, err = b.promise(ctx, made, got)
		}
		if isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID) {
			if _, gone := b.t.sink.at.topics(ctx, b.t.cl, made.topicNames()...); gone != nil {
				err = fmt.Errorf("what the branch wrote is gone: %w", gone)
			}
		}
		if err == nil || final(err) {
			return made, deadline, err, nil
		}
		if werr := wait.wait(ctx); werr != nil {
			return nil, time.Time{}, nil, fmt.Errorf("%w: %w", werr, err)
		}
	}
}

// answers are what a promise rests on besides the records and the transaction itself.
type answers struct {
	topics   map[string]topicInfo
	retained map[string]retention
}

// ask begins what need not wait for the records: the witness is written, and three questions are asked.
// What it returns waits for the end of all that, and must be called.
func (b *Branch) ask(ctx context.Context) func() (answers, error) {
	var got answers
	names := slices.Sorted(maps.Keys(b.tally.topics))
	g, gctx := errgroup.WithContext(ctx)
	if b.t.can.class == classNew {
		g.Go(func() error { return b.testify(gctx) })
	}
	g.Go(func() (err error) {
		got.topics, err = topicsOf(gctx, b.t.cl, names)
		return err
	})
	g.Go(func() (err error) {
		got.retained, err = b.t.sink.retention(gctx, b.t.cl, names)
		return err
	})
	g.Go(func() error { return b.t.standing(gctx) })
	return func() (answers, error) {
		err := g.Wait()
		return got, err
	}
}

// testify writes the witness. While the coordinator adds a partition to the transaction it takes no other.
func (b *Branch) testify(ctx context.Context) error {
	wait := short()
	for {
		err := testify(ctx, b.t.cl, b.identity(), b.name.N)
		if err == nil {
			fault.Point("kafka/after-witness")
			return nil
		}
		if !isAny(err, kerr.ConcurrentTransactions, kerr.NetworkException) {
			return err
		}
		if werr := wait.wait(ctx); werr != nil {
			return fmt.Errorf("%w: %w", werr, err)
		}
	}
}

// topicsOf asks for the topics that were written to; one that cannot be told of is an error.
func topicsOf(ctx context.Context, cl *kgo.Client, names []string) (map[string]topicInfo, error) {
	_, topics, err := metadata(ctx, cl, names...)
	if err != nil {
		return nil, classed(fmt.Errorf("ask for the leaders of %v: %w", names, err))
	}
	for _, name := range names {
		if t := topics[name]; t.err != nil {
			return nil, fmt.Errorf("topic %q: %w", name, t.err)
		}
	}
	return topics, nil
}

// promise looks, once records and witness are written, whether the cluster shows the transaction as it
// must be, and says until when. It waits for partitions that have no leader: a commit whose marker finds none can
// be torn for ever.
func (b *Branch) promise(ctx context.Context, made *body, got answers) (time.Time, error) {
	if b.t.can.class == classOld { // there the client adds partitions by requests of its own, one at a time
		if err := b.testify(ctx); err != nil {
			return time.Time{}, err
		}
	}
	d, err := describe(ctx, b.t.cl, made.TxnID)
	switch {
	case err != nil:
		return time.Time{}, err
	case len(d) != 1:
		return time.Time{}, fmt.Errorf("describe %s: %d answers", made.TxnID, len(d))
	case d[0].err != nil:
		return time.Time{}, d[0].err
	}
	if err := made.confirm(d[0]); err != nil {
		return time.Time{}, err
	}
	wait := slow()
	for {
		without := made.without(got.topics)
		if without == "" {
			break
		}
		if err := wait.wait(ctx); err != nil {
			return time.Time{}, fmt.Errorf("%s has no leader: %w", without, err)
		}
		if got.topics, err = topicsOf(ctx, b.t.cl, made.topicNames()); err != nil {
			return time.Time{}, err
		}
	}
	for i := range made.Topics {
		id := got.topics[made.Topics[i].Topic].id
		made.Topics[i].ID = id[:]
	}
	return b.deadline(got.retained)
}

// identity names the transaction.
func (b *Branch) identity() *body {
	key := b.slot.key
	return &body{
		Cluster: b.t.can.cluster, TxnID: b.slot.id, PID: b.as.pid, Epoch: b.as.epoch, Class: b.t.can.class,
		Branch: b.name.String(), Witness: &key,
	}
}

// body names the transaction with what was acknowledged.
func (b *Branch) body() *body {
	made := b.identity()
	made.Topics = b.got.topics()
	return made
}

// confirm compares the transaction as the cluster describes it with what was written, and takes
// the partition of the offsets topic from it.
func (b *body) confirm(seen described) error {
	if seen.state != stateOngoing || seen.pid != b.PID || seen.epoch != b.Epoch {
		return fmt.Errorf("%w: the cluster shows %s as %s of producer %d epoch %d, not as ongoing of %d epoch %d: its time-out passed, or somebody ended it",
			participant.ErrLost, b.TxnID, seen.state, seen.pid, seen.epoch, b.PID, b.Epoch)
	}
	var missing error
	b.partitions(func(topic string, partition int32) {
		if !slices.Contains(seen.partitions[topic], partition) && missing == nil {
			missing = fmt.Errorf("%w: the cluster does not count %s as a part of %s", participant.ErrLost, splitID(topic, partition), b.TxnID)
		}
	})
	for _, p := range seen.partitions[offsetsTopic] {
		b.Offsets = &p
	}
	return missing
}

// final reports whether trying again changes nothing, so that the answer is no.
func final(err error) bool {
	return setup(err) || fencing(err) || isAny(err,
		participant.ErrFenced, participant.ErrMisconfigured, participant.ErrLost, participant.ErrBug)
}

// deadline is when the transaction, or the first of its records, would be dropped by the broker;
// zero if never.
func (b *Branch) deadline(retained map[string]retention) (time.Time, error) {
	now := time.Now()
	left := time.Duration(math.MaxInt64)
	if !b.t.can.unbounded {
		left = b.begun.Add(b.t.can.timeout).Sub(now)
	}
	for topic, w := range b.tally.topics {
		r, ok := retained[topic]
		if !ok || r.keeps == 0 || mutant.On("kafka/retention-in-deadline") {
			continue
		}
		oldest := time.UnixMilli(w.oldest)
		if r.appendTime {
			oldest = b.begun
		}
		keeps := oldest.Add(r.keeps).Sub(now)
		if keeps <= 0 {
			return time.Time{}, fmt.Errorf("%w: topic %q keeps records for %s (retention.ms), and the branch wrote one of %s to it, which would be deleted at once: lengthen the retention, or write newer timestamps",
				participant.ErrMisconfigured, topic, r.keeps, oldest.UTC().Format(time.RFC3339))
		}
		left = min(left, keeps)
	}
	if left == math.MaxInt64 {
		return time.Time{}, nil
	}
	return now.Add(left), nil
}

// leadersNow asks for the topics of a handle, and names a partition that has no leader. A topic that is
// gone has none to wait for.
func leadersNow(ctx context.Context, cl *kgo.Client, b *body) (topics map[string]topicInfo, without string, err error) {
	names := b.topicNames()
	if b.Offsets != nil {
		names = append(names, offsetsTopic)
	}
	if len(names) == 0 {
		return nil, "", nil
	}
	if _, topics, err = metadata(ctx, cl, names...); err != nil {
		return nil, "", classed(fmt.Errorf("ask for the leaders of %v: %w", names, err))
	}
	return topics, b.without(topics), nil
}

// without names a partition of the handle that has no leader; "" if each that is known has one.
func (b *body) without(topics map[string]topicInfo) (without string) {
	b.places(func(topic string, partition int32) {
		for _, p := range topics[topic].parts {
			if p.number == partition && p.leader < 0 {
				without = splitID(topic, partition)
			}
		}
	})
	return without
}

// retention tells how long topics keep records, from memory where that is fresh.
func (s *Sink) retention(ctx context.Context, cl *kgo.Client, topics []string) (map[string]retention, error) {
	out := make(map[string]retention, len(topics))
	var ask []string
	s.mu.Lock()
	for _, topic := range topics {
		r, ok := s.retained[topic]
		if !ok || time.Since(r.at) > retentionAge {
			ask = append(ask, topic)
			continue
		}
		out[topic] = r
	}
	s.mu.Unlock()
	if len(ask) == 0 {
		return out, nil
	}
	asked, err := askRetention(ctx, s.at, cl, ask...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, r := range asked {
		s.retained[topic], out[topic] = r, r
	}
	return out, nil
}
