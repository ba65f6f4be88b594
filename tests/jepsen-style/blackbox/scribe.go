package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/house"
	"github.com/unisink/unisink/tests/jepsen-style/check"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

// What the nodes' logs call things.
const (
	saidLeads   = "this node leads"
	saidVote    = "vote"
	saidDecided = "decided"
	saidProven  = "proven"
	saidClosed  = "generation closed"
	saidHalted  = "halted"
	saidBroken  = "heuristic"
	votedYes    = "yes"
)

const (
	readEvery = 25 * time.Millisecond
	askEvery  = 500 * time.Millisecond
)

// scribe writes into the book what the nodes tell: by their logs what they applied and who led, by
// their answers which state they are in. It knows what is under way now, so that faults can be aimed.
type scribe struct {
	book  *house.Book
	nodes []*node

	mu       sync.Mutex // guards the rest; held for memory only
	tails    map[*node]*rig.Tail
	seen     map[string]bool
	terms    map[uint64]bool
	rounds   map[string]bool // voted for and neither decided nor closed: scope and epoch
	unproven map[string]bool // decided with branches and not proven
	txns     map[string]bool // a branch in the accounts is prepared and not finished
	asked    map[uint64]bool // calls that may decide, without an answer yet
	callers  map[uint64]string
	decided  map[string]int // by scope, and those by hand
	epochs   map[string]bool
	halted   []string
	moments  map[moment]chan struct{}
}

// moment is what a fault can wait for.
type moment uint8

const (
	anytime    moment = iota
	onPrepared        // a branch of a transfer was prepared
	onVote            // a member voted for an epoch with branches
	onDecision        // an epoch was decided
)

func (m moment) String() string {
	return [...]string{"at any time", "after a prepare", "after a vote", "after a decision"}[m]
}

func newScribe(book *house.Book, nodes []*node) *scribe {
	s := &scribe{
		book: book, nodes: nodes, tails: map[*node]*rig.Tail{}, seen: map[string]bool{}, terms: map[uint64]bool{},
		rounds: map[string]bool{}, unproven: map[string]bool{}, txns: map[string]bool{}, asked: map[uint64]bool{}, callers: map[uint64]string{},
		decided: map[string]int{}, epochs: map[string]bool{},
		moments: map[moment]chan struct{}{onPrepared: make(chan struct{}), onVote: make(chan struct{}), onDecision: make(chan struct{})},
	}
	for _, n := range nodes {
		s.tails[n] = &rig.Tail{Path: n.log}
	}
	book.Listen(s.hear)
	return s
}

// run reads and asks until ctx ends.
func (s *scribe) run(ctx context.Context) error {
	var all errgroup.Group
	all.Go(func() error {
		for rig.Sleep(ctx, readEvery) == nil {
			if err := s.update(); err != nil {
				return err
			}
		}
		return nil
	})
	for _, n := range s.nodes {
		all.Go(func() error { return s.poll(ctx, n) })
	}
	return all.Wait()
}

// update reads what the logs have more.
func (s *scribe) update() error {
	for _, n := range s.nodes {
		err := s.tails[n].Lines(func(line []byte) { s.line(n.name, line) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// poll asks one node for its state, again and again.
func (s *scribe) poll(ctx context.Context, n *node) error {
	cl, err := newClient(n.client)
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	tick := time.NewTicker(askEvery)  // the nodes are asked at the same time, so that their states compare
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s.askState(ctx, cl)
	}
}

// askState writes a node's state down, with the newest entry that it holds.
func (s *scribe) askState(ctx context.Context, cl *participant.Client) {
	ctx, cancel := context.WithTimeout(ctx, askEvery)
	defer cancel()
	st, err := cl.Cluster().Status(ctx, &unisinkv1.StatusRequest{StateHash: true})
	if err != nil || st.GetStateIndex() == 0 {
		return // it is down, cut off, or has applied nothing yet
	}
	s.book.Add(check.Event{Who: st.GetNode(), Kind: check.State, Index: st.GetStateIndex(), Term: st.GetTerm(), Hash: st.GetStateHash()})
}

// line takes one line of a log in. What does not parse was torn by a kill, or is no line of ours.
func (s *scribe) line(who string, line []byte) {
	var l struct {
		Msg, Scope, Epoch, Member, Text string
		Term, Index                     uint64
	}
	if json.Unmarshal(line, &l) != nil {
		return
	}
	e := check.Event{Who: who, Index: l.Index, Term: l.Term, Text: l.Text, Branch: check.Branch{Scope: l.Scope, Member: l.Member}}
	if l.Epoch != "" {
		if _, err := fmt.Sscanf(l.Epoch, "%d.%d", &e.Branch.Epoch.Generation, &e.Branch.Epoch.N); err != nil {
			return
		}
	}
	switch l.Msg {
	case saidLeads:
		e.Kind = check.Leads
	case saidVote:
		e.Kind = check.Voted
	case saidDecided:
		e.Kind = check.Decided
	case saidClosed:
		e.Kind = check.Closed
	case saidBroken:
		e.Kind = check.Heuristic
	case saidHalted:
		e.Kind, e.Text = check.Note, "halted "+l.Scope+": "+l.Text
	case saidProven:
		s.proven(l.Scope + "@" + l.Epoch)
		return
	default:
		return
	}
	if s.first(e) {
		s.book.Add(e)
	}
}

// first reports whether a node tells something for the first time: after a start it tells again what it
// reads in its log.
func (s *scribe) first(e check.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprint(e.Who, e.Kind, e.Branch, e.Index, e.Term, e.Text)
	if e.Kind == check.Voted {
		return true // of a leader, which reads none
	}
	was := s.seen[key]
	s.seen[key] = true
	return !was
}

func (s *scribe) proven(epoch string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unproven, epoch)
}

// hear follows what is written into the book. It is called while the book is locked.
func (s *scribe) hear(e check.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	txn := e.Branch.Transaction()
	//exhaustive:ignore
	switch e.Kind {
	case check.Leads:
		s.terms[e.Term] = true
	case check.Voted:
		if e.Text == votedYes {
			s.rounds[txn] = true
			s.fire(onVote)
		}
	case check.Decided:
		if s.rounds[txn] {
			delete(s.rounds, txn)
			s.unproven[txn] = true
			s.fire(onDecision)
		}
		if !s.epochs[txn] {
			s.epochs[txn] = true
			s.decided[e.Branch.Scope]++
		}
	case check.Closed:
		for r := range s.rounds {
			if strings.HasPrefix(r, fmt.Sprintf("%s@%d.", e.Branch.Scope, e.Branch.Epoch.Generation)) {
				delete(s.rounds, r)
			}
		}
	case check.Prepared:
		if e.Store == house.Accounts {
			s.txns[e.Handle] = true
			s.fire(onPrepared)
		}
	case check.Committed, check.RolledBack:
		delete(s.txns, e.Handle)
		if e.Kind == check.Committed && e.Store == house.Accounts {
			s.decided[transfers]++
		}
	case check.Invoke:
		if e.Op == house.OpCommit || e.Op == house.OpRun {
			s.asked[e.Call] = true
		}
		s.callers[e.Call] = e.Who
	case check.Return:
		delete(s.asked, e.Call)
		delete(s.callers, e.Call)
	case check.Note:
		if scope, halted := strings.CutPrefix(e.Text, "halted "); halted {
			s.halted = append(s.halted, scope)
		}
	}
}

// fire wakes whoever waits for a moment. Called with mu held.
func (s *scribe) fire(m moment) {
	close(s.moments[m])
	s.moments[m] = make(chan struct{})
}

// await waits for a moment, at most for limit.
func (s *scribe) await(ctx context.Context, m moment, limit time.Duration) {
	if m == anytime {
		return
	}
	s.mu.Lock()
	at := s.moments[m]
	s.mu.Unlock()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-at:
	case <-t.C:
	case <-ctx.Done():
	}
}

// underWay is what a fault finds: rounds are epochs voted for or transfers prepared and asked about, without a
// decision; unfinished are decided or prepared branches without an end.
type underWay struct {
	Rounds     int `json:"rounds"`
	Unfinished int `json:"unfinished"`
}

func (s *scribe) now() underWay {
	s.mu.Lock()
	defer s.mu.Unlock()
	return underWay{Rounds: len(s.rounds) + len(s.asked), Unfinished: len(s.unproven) + len(s.txns)}
}

// callsOf is the number of calls of a worker that wait for an answer.
func (s *scribe) callsOf(who string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, caller := range s.callers {
		if caller == who {
			n++
		}
	}
	return n
}

// decisions are how many were seen, by scope and by hand.
func (s *scribe) decisions() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.decided)
}

// totals are what was decided, and how often the leader changed.
func (s *scribe) totals() (epochs, byHand, leaders int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.epochs), s.decided[transfers], max(0, len(s.terms)-1)
}
