package kafka

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/participant"
)

// Prepare flushes, puts the witness into the transaction, and looks whether the cluster shows
// the transaction as it must be: ongoing, with our producer and every partition that we wrote
// to, and a leader for each of them. Only then is the vote yes.
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
	if err := b.slot.client.Flush(ctx); err != nil {
		return nil, time.Time{}, nil, fmt.Errorf("flush: %w", context.Cause(ctx))
	}
	fault.Point("kafka/after-flush")
	if no := b.got.complete(b.written); no != nil {
		return nil, time.Time{}, no, nil
	}
	made = b.body()
	wait := slow()
	for {
		deadline, err = b.ask(ctx, made)
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

// ask writes the witness and asks all that a promise rests on: four questions and one write, of
// which only the first question waits for the write.
func (b *Branch) ask(ctx context.Context, made *body) (time.Time, error) {
	var seen described
	var topics map[string]topicInfo
	var retained map[string]retention
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { // the transaction is described with its witness in it
		if err := testify(gctx, b.t.cl, made, b.name.N); err != nil {
			return err
		}
		fault.Point("kafka/after-witness")
		d, err := describe(gctx, b.t.cl, made.TxnID)
		if err == nil && len(d) == 1 {
			seen, err = d[0], d[0].err
		}
		return err
	})
	g.Go(func() (err error) {
		topics, err = leaders(gctx, b.t.cl, made)
		for _, name := range made.topicNames() {
			if t := topics[name]; err == nil && t.err != nil {
				err = fmt.Errorf("topic %q: %w", name, t.err)
			}
		}
		return err
	})
	g.Go(func() (err error) {
		retained, err = b.t.sink.retention(gctx, b.t.cl, made)
		return err
	})
	g.Go(func() error { return b.t.standing(gctx) })
	if err := g.Wait(); err != nil {
		return time.Time{}, err
	}
	if err := made.confirm(seen); err != nil {
		return time.Time{}, err
	}
	for i := range made.Topics {
		id := topics[made.Topics[i].Topic].id
		made.Topics[i].ID = id[:]
	}
	return b.deadline(retained)
}

// body names the transaction with what was acknowledged.
func (b *Branch) body() *body {
	key := b.slot.key
	return &body{
		Cluster: b.t.can.cluster, TxnID: b.slot.id, PID: b.as.pid, Epoch: b.as.epoch, Class: b.t.can.class,
		Branch: b.name.String(), Witness: &key, Topics: b.got.topics(),
	}
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
		if !ok || r.keeps == 0 {
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

// leaders asks for the topics of a handle until each of its partitions has a leader: a commit
// whose marker finds none can be torn for ever.
func leaders(ctx context.Context, cl *kgo.Client, b *body) (map[string]topicInfo, error) {
	wait := slow()
	for {
		topics, without, err := leadersNow(ctx, cl, b)
		if err != nil {
			return nil, err
		}
		if without == "" {
			return topics, nil
		}
		if err := wait.wait(ctx); err != nil {
			return nil, fmt.Errorf("%s has no leader: %w", without, err)
		}
	}
}

// leadersNow asks once, and names a partition that has no leader. A topic that is gone has none
// to wait for.
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
	led := func(topic string, partition int32) {
		for _, p := range topics[topic].parts {
			if p.number == partition && p.leader < 0 {
				without = splitID(topic, partition)
			}
		}
	}
	b.places(led)
	return topics, without, nil
}

// retention tells how long the topics of a handle keep records, from memory where that is fresh.
func (s *Sink) retention(ctx context.Context, cl *kgo.Client, b *body) (map[string]retention, error) {
	out := make(map[string]retention, len(b.Topics))
	var ask []string
	s.mu.Lock()
	for _, t := range b.Topics {
		r, ok := s.retained[t.Topic]
		if !ok || time.Since(r.at) > retentionAge {
			ask = append(ask, t.Topic)
			continue
		}
		out[t.Topic] = r
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
