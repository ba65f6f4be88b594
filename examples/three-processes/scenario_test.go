package main

import (
	"maps"
	"syscall"
	"testing"
	"time"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// shortLease is the lease where members are paused for longer than that.
const shortLease = time.Second

// hits is how often a scenario may be repeated until its hit has landed.
const hits = 4

// TestMembersKilledAndPausedInTurn: whatever happens to one of the three processes, the other two
// stay, all go back to the same restore point, and every record is in the output once.
func TestMembersKilledAndPausedInTurn(t *testing.T) {
	s := newSystem(t, shortLease)
	for _, name := range []string{memberSource, memberWindow, memberSink} {
		s.untilLanded(t, "kill -9 of the "+name, name, func() strike { return s.killMember(t, name) })
	}
	for _, name := range []string{memberSource, memberWindow, memberSink} {
		s.untilLanded(t, "pause of the "+name, name, func() strike { return s.pauseMember(t, name) })
	}
	s.finish(t, unisinkv1.DesiredState_DESIRED_STATE_DRAINING)
	s.verify(t)
}

// untilLanded repeats a scenario until its hit has landed in an open round, and sees to it that no
// process but the one that was hit ends.
func (s *system) untilLanded(t *testing.T, what, target string, scenario func() strike) {
	t.Helper()
	for try := 1; try <= hits; try++ {
		starts, instances := s.starts(target), s.instances(t, target)
		k := scenario()
		s.examine(t, &k)
		if now := s.starts(target); !maps.Equal(now, starts) {
			t.Fatalf("%s: others were started again: %v, before %v", what, now, starts)
		}
		if now := s.instances(t, target); !maps.Equal(now, instances) {
			t.Fatalf("%s: others are other instances: %v, before %v", what, now, instances)
		}
		t.Logf("%s in round %s: vote before %v, decided before %v; decided after %v, generation closed %v",
			what, k.epoch, k.vote, k.decidedTooEarly, k.decided, k.closed)
		if k.landed() {
			return
		}
	}
	t.Fatalf("%s: none of %d landed between a vote and the end of its round", what, hits)
}

func (s *system) killMember(t *testing.T, name string) strike {
	t.Helper()
	w := s.workers[name]
	started, generation := w.started(), s.present(t).GetGeneration()
	k := s.strikeAt(t, func(*node) { kick(t, w.process(), syscall.SIGKILL) })
	s.awaitProgress(t, generation)
	if got := w.started(); got != started+1 {
		t.Errorf("the %s was started %d times after it was killed once", name, got-started)
	}
	return k
}

func (s *system) pauseMember(t *testing.T, name string) strike {
	t.Helper()
	w := s.workers[name]
	p, generation := w.process(), s.present(t).GetGeneration()
	k := s.strikeAt(t, func(*node) { kick(t, p, syscall.SIGSTOP) })
	// The generation is closed without it, and no other begins.
	eventually(t, patience, "the lease of the "+name+" to end", func() bool {
		sc := s.scope(t)
		return sc != nil && !sc.GetOpen() && time.Since(k.at) > shortLease+shortLease/2
	})
	kick(t, p, syscall.SIGCONT)
	s.awaitProgress(t, generation)
	t.Logf("the %s that was paused was started %d times in all, is the same process: %v", name, w.started(), w.process() == p)
	return k
}

// TestNodesHitInMidRound: when the leader dies or stands still the next one decides the round with the votes
// repeated, when all nodes die the members wait, and in both cases none of them ends.
func TestNodesHitInMidRound(t *testing.T) {
	s := newSystem(t, 3*time.Second)
	s.untilDecided(t, "kill -9 of the leader", s.killLeader)
	s.untilDecided(t, "pause of the leader", s.pauseLeader)
	s.untilDecided(t, "kill -9 of all nodes", s.killAllNodes)
	s.stopAndGoOn(t)
	s.finish(t, unisinkv1.DesiredState_DESIRED_STATE_DRAINING)
	s.verify(t)
}

// untilDecided repeats a scenario until a round that it hit was decided afterwards: the votes that
// had been given to the dead were counted.
func (s *system) untilDecided(t *testing.T, what string, scenario func(*testing.T) strike) {
	t.Helper()
	for range hits {
		var k strike
		s.untilLanded(t, what, "", func() strike { k = scenario(t); return k })
		if s.examine(t, &k); k.decided && !k.decidedTooEarly {
			return
		}
	}
	t.Fatalf("%s: in %d tries no round that was open was decided afterwards", what, hits)
}

func (s *system) killLeader(t *testing.T) strike {
	t.Helper()
	before := s.present(t)
	var struck *node
	k := s.strikeAt(t, func(leader *node) {
		kick(t, leader.Process, syscall.SIGKILL)
		struck = leader
	})
	<-struck.Done()
	// The two that are left go on without it.
	s.awaitGoingOn(t, before)
	s.startNode(t, struck)
	s.roles(t)
	return k
}

// pauseLeader: a leader that stands still is replaced, and is none any more when it goes on.
func (s *system) pauseLeader(t *testing.T) strike {
	t.Helper()
	before := s.present(t)
	var struck *node
	k := s.strikeAt(t, func(leader *node) {
		kick(t, leader.Process, syscall.SIGSTOP)
		struck = leader
	})
	s.awaitGoingOn(t, before)
	kick(t, struck.Process, syscall.SIGCONT)
	s.roles(t)
	return k
}

// killAllNodes: without any coordinator the members wait, held back by their connections, and go
// on when it is there again.
func (s *system) killAllNodes(t *testing.T) strike {
	t.Helper()
	before := s.present(t)
	k := s.strikeAt(t, func(*node) {
		for _, n := range s.nodes {
			kick(t, n.Process, syscall.SIGKILL)
		}
	})
	for _, n := range s.nodes {
		<-n.Done()
	}
	stands, since := int64(-1), time.Now()
	eventually(t, patience, "the source to be held back", func() bool {
		if now := s.sent(t); now != stands {
			stands, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	})
	t.Logf("held back at record %d after %s", stands, since.Sub(k.at).Round(time.Millisecond))
	for _, n := range s.nodes {
		s.startNode(t, n)
	}
	s.awaitGoingOn(t, before)
	eventually(t, patience, "the source to go on", func() bool { return s.sent(t) > stands })
	return k
}

// awaitGoingOn waits until more is decided than before, in the same generation or in another.
func (s *system) awaitGoingOn(t *testing.T, before *unisinkv1.ScopeStatus) {
	t.Helper()
	s.awaitDecided(t, "more decisions", func(g, n uint64) bool {
		return g > before.GetGeneration() && n >= 3 || g == before.GetGeneration() && n >= before.GetFinal()+5
	})
	t.Logf("generation %d before, %d after", before.GetGeneration(), s.present(t).GetGeneration())
}

// stopAndGoOn: a stop keeps open windows, and the next processes go on with them.
func (s *system) stopAndGoOn(t *testing.T) {
	t.Helper()
	generation := s.present(t).GetGeneration()
	s.finish(t, unisinkv1.DesiredState_DESIRED_STATE_STOPPING)
	s.setDesired(t, unisinkv1.DesiredState_DESIRED_STATE_RUNNING)
	s.startWorkers()
	s.awaitProgress(t, generation)
}
