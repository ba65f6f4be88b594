package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// A strike hits processes while a round is open: the followers are paused, so that the leader gets
// votes and has no majority to write the decision; once a vote is in, the targets are hit and the
// followers go on. The pause is shorter than the leader's own lease, after which it would step down.
const (
	holdRound   = 400 * time.Millisecond
	strikeTries = 12
)

// strike is one hit, and what the nodes' logs say of it afterwards.
type strike struct {
	epoch string
	at    time.Time
	// Of the epoch's round, by the logs: what had happened before the hit, and what came after.
	barrier, vote   bool
	decided, closed bool
	decidedTooEarly bool
}

// landed reports whether the hit was where it hurts: votes were in, the decision was not, and the
// round came to its end all the same.
func (k strike) landed() bool {
	return k.barrier && k.vote && !k.decidedTooEarly && (k.decided || k.closed)
}

// strikeAt calls hit while a round is open, as far as events show.
func (s *system) strikeAt(t *testing.T, hit func(leader *node)) strike {
	t.Helper()
	for range strikeTries {
		if k, ok := s.tryStrike(t, hit); ok {
			return k
		}
		// Let the group find itself again: the pause may have cost the leader its place.
		s.awaitDecided(t, "an open generation", func(_, n uint64) bool { return n > 0 })
	}
	t.Fatalf("no vote without a decision was seen in %d tries", strikeTries)
	return strike{}
}

func (s *system) tryStrike(t *testing.T, hit func(leader *node)) (strike, bool) {
	t.Helper()
	leader, followers := s.roles(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := newClient(t, leader.client).Events().Watch(ctx, &unisinkv1.WatchRequest{Pipeline: pipelineName})
	if err != nil {
		return strike{}, false
	}
	// Up to the present: whatever is decided while the followers run is of no use.
	began := time.Now()
	for at := (time.Time{}); at.Before(began); {
		e, err := stream.Recv()
		if err != nil {
			return strike{}, false
		}
		at = time.UnixMicro(e.GetAtUs())
	}
	for _, f := range followers {
		kick(t, f.Process, syscall.SIGSTOP)
		defer kick(t, f.Process, syscall.SIGCONT)
	}
	paused := time.Now()
	release := time.AfterFunc(holdRound, cancel)
	defer release.Stop()
	for {
		e, err := stream.Recv()
		if err != nil {
			return strike{}, false
		}
		if e.GetKind() != unisinkv1.EventKind_EVENT_KIND_VOTE || time.UnixMicro(e.GetAtUs()).Before(paused) {
			continue
		}
		hit(leader)
		return strike{epoch: epochText(e.GetEpoch()), at: time.Now()}, true
	}
}

// roles asks who leads, until there is a leader and two followers.
func (s *system) roles(t *testing.T) (leader *node, followers []*node) {
	t.Helper()
	eventually(t, patience, "a leader and two followers", func() bool {
		leader, followers = nil, nil
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		st, err := s.client.Cluster().Status(ctx, &unisinkv1.StatusRequest{})
		if err != nil {
			return false
		}
		for _, n := range s.nodes {
			switch {
			case n.id == st.GetLeader():
				leader = n
			case n.Alive():
				followers = append(followers, n)
			}
		}
		return leader != nil && leader.Alive() && len(followers) == 2
	})
	return leader, followers
}

// examine reads the nodes' logs until they say how the round ended.
func (s *system) examine(t *testing.T, k *strike) {
	t.Helper()
	eventually(t, patience, "the end of round "+k.epoch+" in a log", func() bool {
		*k = strike{epoch: k.epoch, at: k.at}
		for _, n := range s.nodes {
			s.readLog(t, s.log(n.id), k)
		}
		return k.decidedTooEarly || k.decided || k.closed
	})
}

func (s *system) readLog(t *testing.T, name string, k *strike) {
	t.Helper()
	generation, _, _ := strings.Cut(k.epoch, ".")
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l struct {
			Time       time.Time
			Msg, Epoch string
		}
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue // torn by a kill
		}
		before := l.Time.Before(k.at)
		switch {
		case l.Msg == "barrier ordered" && l.Epoch == k.epoch:
			k.barrier = k.barrier || before
		case l.Msg == "vote" && l.Epoch == k.epoch:
			k.vote = k.vote || before
		case l.Msg == "decided" && l.Epoch == k.epoch:
			k.decidedTooEarly = k.decidedTooEarly || before
			k.decided = k.decided || !before
		case l.Msg == "generation closed" && strings.HasPrefix(l.Epoch, generation+"."):
			k.closed = k.closed || !before
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

func epochText(e *unisinkv1.Epoch) string { return fmt.Sprintf("%d.%d", e.GetGeneration(), e.GetN()) }
