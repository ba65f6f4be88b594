package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// A strike kills a process between a vote and its decision. The followers are paused, so that the
// leader has votes and no majority to write the decision; as soon as a vote is in, the target is
// killed with -9, and the followers go on. A pause is kept shorter than the leader's lease, after
// which it would step down: that would be a fault too, but not the one announced.
const (
	strikePause   = 400 * time.Millisecond
	strikeTries   = 20
	strikeRecover = 600 * time.Millisecond
	evidenceWait  = 10 * time.Second

	// The text of a vote event with branches.
	yesVote = "yes"
	// Messages in the nodes' logs.
	voteEvent    = "vote"
	decidedEvent = "decided"
	closedEvent  = "generation closed"
)

// strike is one kill and what the logs say of it.
type strike struct {
	Target  string    `json:"target"`
	Epoch   string    `json:"epoch"`
	Killed  time.Time `json:"killed"`
	Outcome string    `json:"outcome"` // "decided" or "generation closed", after the kill
	Counted bool      `json:"counted"`
}

// strikeAt tries until a kill fell between a vote and its decision, as far as the events show.
func (d *demo) strikeAt(ctx context.Context, what string, target func(leader *node) victim) (*strike, error) {
	for range strikeTries {
		leader, followers, err := d.roles(ctx)
		if err != nil {
			return nil, err
		}
		s, err := d.tryStrike(ctx, what, leader, followers, target(leader))
		if err != nil || s != nil {
			return s, err
		}
		// Let the group find itself again: a paused majority may have cost the leader its place.
		if err := sleep(ctx, strikeRecover); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no vote without a decision was seen in %d tries to kill the %s", strikeTries, what)
}

func (d *demo) tryStrike(ctx context.Context, what string, leader *node, followers []*node, target victim) (s *strike, err error) {
	if !target.alive() {
		return nil, nil
	}
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	votes, err := d.watch(watch, leader)
	if err != nil {
		return nil, err
	}
	// A vote with branches to commit is what is worth a kill; the next one comes a rhythm later.
	if v, err := nextVote(ctx, votes, time.Now(), 3*d.c.Workload.Rhythm()); v == nil {
		return nil, err
	}
	if err := sleep(ctx, d.c.Workload.Rhythm()-strikePause/2); err != nil {
		return nil, err
	}
	for _, f := range followers {
		if err := f.proc.signal(syscall.SIGSTOP); err != nil {
			return nil, err
		}
	}
	defer func() {
		for _, f := range followers {
			err = errors.Join(err, f.proc.signal(syscall.SIGCONT))
		}
	}()
	// A vote that came before the followers stood still is decided already.
	v, err := nextVote(ctx, votes, time.Now(), strikePause)
	if v == nil {
		return nil, err
	}
	killed, err := target.kill()
	if err != nil {
		return nil, err
	}
	e := v.GetEpoch()
	return &strike{Target: what, Epoch: fmt.Sprintf("%d.%d", e.GetGeneration(), e.GetN()), Killed: killed}, nil
}

// nextVote waits for a vote with branches that came after since; nil without an error when none
// did in time.
func nextVote(ctx context.Context, votes <-chan *unisinkv1.Event, since time.Time, wait time.Duration) (*unisinkv1.Event, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-deadline.C:
			return nil, nil
		case v, ok := <-votes:
			if !ok {
				return nil, nil
			}
			if v.GetKind() == unisinkv1.EventKind_EVENT_KIND_VOTE && v.GetText() == yesVote && !time.UnixMicro(v.GetAtUs()).Before(since) {
				return v, nil
			}
		}
	}
}

// watch streams events of one node that happen from now on.
func (d *demo) watch(ctx context.Context, n *node) (<-chan *unisinkv1.Event, error) {
	cl, err := newClient(n.client)
	if err != nil {
		return nil, err
	}
	stream, err := cl.Events().Watch(ctx, &unisinkv1.WatchRequest{Pipeline: d.pipelineName()})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch node %s: %w", n.id, err), cl.Close())
	}
	out := make(chan *unisinkv1.Event, 64)
	began := time.Now()
	go func() {
		defer func() { _ = cl.Close() }() // only this stream used it
		defer close(out)
		for {
			e, err := stream.Recv()
			if err != nil {
				return // the node died, or ctx ended: either way nothing more is to be seen
			}
			if time.UnixMicro(e.GetAtUs()).Before(began) {
				continue
			}
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// logLine is what the demo reads of a node's log.
type logLine struct {
	Time  time.Time `json:"time"`
	Msg   string    `json:"msg"`
	Epoch string    `json:"epoch"`
}

// evidence looks into the nodes' logs: the kill counts only if the vote stands before it and the
// decision, or the generation's close, behind it.
func (d *demo) evidence(ctx context.Context, s *strike) error {
	end := time.Now().Add(evidenceWait)
	for {
		voted, late, outcome, err := d.readLogs(s)
		if err != nil {
			return err
		}
		if voted && outcome != "" {
			d.mu.Lock() // it is on the screen
			s.Counted, s.Outcome = true, outcome
			d.mu.Unlock()
			return nil
		}
		if late || time.Now().After(end) {
			return nil // stays uncounted
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// readLogs reports whether a vote stands before the kill, whether the decision does too, and what
// stands after it.
func (d *demo) readLogs(s *strike) (voted, late bool, outcome string, err error) {
	generation, _, _ := strings.Cut(s.Epoch, ".")
	for _, n := range d.nodes {
		f, err := os.Open(n.proc.log)
		if err != nil {
			return false, false, "", fmt.Errorf("read the log of %s: %w", n.id, err)
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var l logLine
			if json.Unmarshal(lines.Bytes(), &l) != nil {
				continue // a line torn by a kill
			}
			switch {
			case l.Msg == voteEvent && l.Epoch == s.Epoch && l.Time.Before(s.Killed):
				voted = true
			case l.Msg == decidedEvent && l.Epoch == s.Epoch:
				if l.Time.Before(s.Killed) {
					_ = f.Close()
					return voted, true, "", nil
				}
				outcome = decidedEvent
			case l.Msg == closedEvent && strings.HasPrefix(l.Epoch, generation+".") && l.Time.After(s.Killed) && outcome == "":
				outcome = closedEvent
			}
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			return false, false, "", fmt.Errorf("read the log of %s: %w", n.id, err)
		}
	}
	return voted, false, outcome, nil
}
