package kafka

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/internal/plural"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// bounds are the first and the last offsets of topics as they are now.
type bounds struct {
	first  kadm.ListedOffsets
	stable kadm.ListedOffsets // behind the last record that readers of committed records see
	last   kadm.ListedOffsets // behind the last record
}

// boundsOf asks for them.
func (s *Source) boundsOf(ctx context.Context, adm *kadm.Client, topics ...string) (b bounds, err error) {
	ask := func(into *kadm.ListedOffsets, list func(context.Context, ...string) (kadm.ListedOffsets, error)) {
		if err != nil {
			return
		}
		if *into, err = list(ctx, topics...); err == nil {
			err = into.Error()
		}
	}
	ask(&b.first, adm.ListStartOffsets)
	ask(&b.stable, adm.ListCommittedOffsets)
	ask(&b.last, adm.ListEndOffsets)
	if err != nil {
		return bounds{}, classed(fmt.Errorf("ask %s where its topics begin and end: %w", s.at, err))
	}
	return b, nil
}

// resolve finds every partition and the exact offset it starts at.
func (s *Source) resolve(ctx context.Context, cl *kgo.Client, from []stream.Position) error {
	topics, err := s.at.topics(ctx, cl, s.cfg.Topics...)
	if err != nil {
		return err
	}
	adm := kadm.NewClient(cl)
	at, err := s.boundsOf(ctx, adm, s.cfg.Topics...)
	if err != nil {
		return err
	}
	positions := make(map[string]stream.Position, len(from))
	for _, p := range from {
		positions[p.Split.ID] = p
	}
	behind := goesOn(from)
	s.parts, s.byName, s.pending, s.due, s.open = nil, make(map[string]map[int32]*part), nil, nil, 0
	for _, name := range s.cfg.Topics {
		s.byName[name] = make(map[int32]*part)
		start := s.cfg.Start
		for _, d := range topics[name].parts {
			if _, known := positions[splitID(name, d.number)]; known {
				start = StartEarliest // a partition without a position was added since: all of it is unread
			}
		}
		for _, d := range topics[name].parts {
			p := s.newPart(name, topics[name].id, d.number)
			pos, known := positions[p.split.ID]
			if !known && len(from) > 0 || known && Added(pos) {
				p.flag(flagAdded)
			}
			if behind {
				p.flag(flagBehind)
			}
			delete(positions, p.split.ID)
			if err := p.startAt(start, pos, known, at); err != nil {
				return err
			}
			s.add(p, !known)
		}
	}
	for id := range positions {
		return fmt.Errorf("%w: the restore point has a position for %s, which %s does not have: was the topic deleted, or taken out of the source?", participant.ErrMisconfigured, id, s.at)
	}
	return s.cutOff(ctx, adm)
}

// Knows says why the source would not go on from a position of a split, as far as its configuration tells: its
// topic is none of those that are read. Nobody is asked, and it may be called at any time.
func (s *Source) Knows(split string) error {
	topic := split[:max(0, strings.LastIndexByte(split, '/'))]
	if !slices.Contains(s.cfg.Topics, topic) {
		return fmt.Errorf("topic %q was read and is none of its topics any more (%s)", topic, strings.Join(s.cfg.Topics, ", "))
	}
	return nil
}

func (s *Source) newPart(topic string, id [16]byte, number int32) *part {
	p := &part{
		split: stream.Split{Resource: s.cfg.Name, ID: splitID(topic, number)},
		topic: topic, number: number, topicID: slices.Clone(id[:]), epoch: -1, end: -1,
	}
	p.mark = p.topicID
	return p
}

// add takes a partition in. What has no position yet gets it into the next epoch, so that it starts
// at the same place after a restart. A bounded one that is at its end has nothing to fetch.
func (s *Source) add(p *part, isNew bool) {
	s.parts = append(s.parts, p)
	s.byName[p.topic][p.number] = p
	s.open++
	if s.cfg.Bounded {
		p.end = p.high
	}
	if isNew || (p.end >= 0 && p.next >= p.end) {
		s.due = append(s.due, p)
	}
}

// startAt sets where to read from, or says why a position can't be read any more.
func (p *part) startAt(start Start, pos stream.Position, known bool, at bounds) error {
	begins, _ := at.first.Lookup(p.topic, p.number)
	stable, _ := at.stable.Lookup(p.topic, p.number)
	ends, _ := at.last.Lookup(p.topic, p.number)
	p.high = stable.Offset
	first, end := begins.Offset, max(stable.Offset, ends.Offset)
	switch {
	case !known && start == StartLatest:
		p.next = stable.Offset
	case !known:
		p.next = first
	case len(pos.Opaque) > 0 && !bytes.Equal(topicOf(pos), p.topicID):
		return p.madeAgain()
	case pos.Offset < first:
		return fmt.Errorf("%w: position %d of %s is no longer in the log, which begins at %d now: what is between them, %s at most, was deleted unread; lengthen the topic's retention, and rewind the pipeline or start it anew", participant.ErrMisconfigured, pos.Offset, p.split.ID, first, plural.Of(first-pos.Offset, "record"))
	case pos.Offset > end:
		return fmt.Errorf("%w: position %d of %s is past its end at %d: the log was cut off, or the topic made again; rewind the pipeline, or start it anew", participant.ErrMisconfigured, pos.Offset, p.split.ID, end)
	default:
		p.next, p.epoch = pos.Offset, pos.LeaderEpoch
	}
	return nil
}

func (p *part) madeAgain() error {
	return fmt.Errorf("%w: topic %q was deleted and made again since its positions were taken; its old records are gone, so reading cannot go on where it stopped: rewind the pipeline, or start it anew", participant.ErrMisconfigured, p.topic)
}

// cutOff refuses positions behind which a change of leader has put other records: the log was cut
// off below them, and has grown past them since.
func (s *Source) cutOff(ctx context.Context, adm *kadm.Client) error {
	var ask kadm.OffsetForLeaderEpochRequest
	for _, p := range s.parts {
		if p.epoch >= 0 {
			ask.Add(p.topic, p.number, p.epoch)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	answers, err := adm.OffsetForLeaderEpoch(ctx, ask)
	if err != nil {
		return classed(fmt.Errorf("ask %s whether its logs were cut off: %w", s.at, err))
	}
	for _, p := range s.parts {
		got, ok := answers[p.topic][p.number]
		if p.epoch < 0 || !ok {
			continue
		}
		if got.Err != nil {
			return classed(fmt.Errorf("ask %s whether %s was cut off: %w", s.at, p.split.ID, got.Err))
		}
		if got.EndOffset >= 0 && got.EndOffset < p.next {
			return fmt.Errorf("%w: %s was cut off at %d by a change of leader, below position %d: records that were read are gone from the topic, and others stand in their place; rewind the pipeline, or start it anew", participant.ErrMisconfigured, p.split.ID, got.EndOffset, p.next)
		}
	}
	return nil
}

// lookWait is how long a look for new partitions may hold up a Poll.
const lookWait = time.Second

// grow takes in partitions that were added to the topics, now and then. What fails is tried again
// the next time.
func (s *Source) grow(ctx context.Context, cl *kgo.Client) error {
	if s.cfg.Bounded || time.Since(s.looked) < s.cfg.NewPartitions {
		return nil
	}
	s.looked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	_, topics, err := metadata(ctx, cl, s.cfg.Topics...)
	if err != nil {
		s.at.log.DebugContext(ctx, "cannot look for new partitions", obs.Err(err))
		return nil
	}
	for _, name := range s.cfg.Topics {
		t := topics[name]
		if t.err != nil {
			continue // the fetches say it
		}
		var fresh []*part
		for _, d := range t.parts {
			switch p := s.byName[name][d.number]; {
			case p == nil:
				p = s.newPart(name, t.id, d.number)
				p.flag(flagAdded)
				fresh = append(fresh, p)
			case !bytes.Equal(p.topicID, t.id[:]):
				return p.madeAgain()
			}
		}
		if err := s.take(ctx, cl, name, fresh); err != nil {
			s.at.log.DebugContext(ctx, "new partitions cannot be read yet", obs.Topic(name), obs.Err(err))
		}
	}
	return nil
}

// take begins to read partitions of a topic from their beginning.
func (s *Source) take(ctx context.Context, cl *kgo.Client, topic string, fresh []*part) error {
	if len(fresh) == 0 {
		return nil
	}
	at, err := s.boundsOf(ctx, kadm.NewClient(cl), topic)
	if err != nil {
		return err
	}
	assign := make(map[int32]kgo.Offset, len(fresh))
	for _, p := range fresh {
		if err := p.startAt(StartEarliest, stream.Position{}, false, at); err != nil {
			return err
		}
		s.add(p, true)
		assign[p.number] = kgo.NewOffset().At(p.next)
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: assign})
	s.at.log.InfoContext(ctx, "new partitions are read", obs.Topic(topic), obs.Count(len(fresh)))
	return nil
}
