package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/unisink/unisink/participant"
)

// record is what the source makes. Record n is the same in every run: that is what makes the source
// replayable, and "where I am" no more than a number.
type record struct {
	N   int64  `json:"n"`
	Key string `json:"key"`
	// At is the event time, Unix milliseconds.
	At int64 `json:"at"`
}

const (
	epochMillis = 1_700_000_000_000 // event time of record 0
	stepMillis  = 5                 // between records
	disorder    = 40                // milliseconds that a record may be late
	keys        = 5
	burst       = 10 * time.Millisecond
)

// recordAt makes record n. Its event time lies up to disorder before its turn.
func recordAt(n int64) record {
	mixed := uint64(n) * 0x9e3779b97f4a7c15 >> 32 //nolint:gosec // numbers are not negative
	return record{
		N: n, Key: fmt.Sprintf("k%d", mixed%keys),
		At: epochMillis + n*stepMillis - int64(mixed/keys%disorder), //nolint:gosec // small
	}
}

// source sends records and answers for the barriers.
type source struct {
	stage
	c    config
	next int64 // to send first
	// barriers that are ordered and not injected. The coordinator orders no more than MaxPending
	// ahead, so there is always room.
	barriers chan participant.Barrier
}

func runSource(ctx context.Context, c config) error {
	if err := need(map[string]string{"to": c.to}); err != nil {
		return err
	}
	cfg := c.member(memberSource)
	cfg.Inputs = map[string]participant.Description{inputName: {Kind: "numbers", Identity: "numbers", Text: "all numbers, in order"}}
	m, err := participant.NewMember(cfg, &source{c: c})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// Restore goes back to the position of the restore point: that is all the source remembers.
func (s *source) Restore(_ context.Context, r participant.Restore) error {
	s.next = 0
	if len(r.Positions) > 0 {
		s.next = r.Positions[0].Offset
	}
	return nil
}

// Start lets the source send.
func (s *source) Start(ctx context.Context, st participant.Start) error {
	s.barriers = make(chan participant.Barrier, st.MaxPending+1)
	from, barriers := s.next, s.barriers
	s.begin(ctx, st.Run, func(ctx context.Context) error { return s.work(ctx, st, from, barriers) })
	return nil
}

// Barrier queues the order; it is injected between two bursts.
func (s *source) Barrier(ctx context.Context, b participant.Barrier) error {
	select {
	case s.barriers <- b:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *source) work(ctx context.Context, st participant.Start, next int64, barriers <-chan participant.Barrier) error {
	link, err := dial(ctx, s.c.to, st.Generation)
	if err != nil {
		return err
	}
	defer link.close()
	pace := time.NewTicker(burst)
	defer pace.Stop()
	many := max(1, int64(s.c.rate)*burst.Milliseconds()/1000)
	for {
		select {
		case <-ctx.Done():
			return nil
		case b := <-barriers:
			// First the barrier behind the last record, then the vote with the position there: what
			// is before the barrier belongs to the epoch, what follows does not.
			if err := link.barrier(b); err != nil {
				return err
			}
			if err := st.Run.Vote(ctx, b, participant.Contribution{Positions: []participant.Position{at(next)}}); err != nil || b.Final {
				return err
			}
		case <-pace.C:
			for range many {
				if err := link.record(recordAt(next)); err != nil {
					return err
				}
				next++
			}
			if err := link.flush(); err != nil {
				return err
			}
			st.Run.HasWork() // the source has moved: there is something to make an epoch of
			s.c.log.LogAttrs(ctx, slog.LevelDebug, "sent", slog.Int64("next", next))
		}
	}
}

func at(next int64) participant.Position {
	return participant.Position{Resource: inputName, Split: "0", Offset: next, LeaderEpoch: -1}
}
