package round

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// budget is how often each thing may happen in a case; what is left is part of the state.
type budget [faultKinds]uint8

const (
	moving = iota // a source moves
	electing
	attaching   // again, to the same leader
	doubling    // a call
	losing      // a vote
	breaking    // a stream
	dropping    // a proposal
	unanswering // an applied proposal
	finishing
	demanding // to close: lost
	faultKinds
)

// smallCase is a scope whose every order of events is walked through.
type smallCase struct {
	name    string
	members []string
	solo    bool
	pending int
	budget  budget
	// most states looked at; 0: all there are.
	most int
}

func smallCases() []smallCase {
	return []smallCase{
		{
			name: "a new leader", members: []string{"a*", "sink"}, pending: 2,
			budget: budget{moving: 2, electing: 1},
		},
		{
			name: "a new leader and two sources", members: []string{"a*", "b*"}, pending: 2,
			budget: budget{moving: 2, electing: 1},
		},
		{
			name: "the last epoch, two sources and a new leader", members: []string{"a*", "b*"}, pending: 2,
			budget: budget{moving: 1, electing: 1, finishing: 1},
		},
		{
			name: "calls doubled, lost and repeated", members: []string{"a*", "sink"}, pending: 2,
			budget: budget{moving: 2, doubling: 1, losing: 1},
		},
		{
			name: "streams broken", members: []string{"a*", "b*"}, pending: 2,
			budget: budget{moving: 1, breaking: 1, finishing: 1},
		},
		{
			name: "attached again", members: []string{"a*", "b*"}, pending: 1,
			budget: budget{moving: 1, attaching: 1, finishing: 1},
		},
		{
			name: "proposals dropped, answers lost, a demand to close", members: []string{"a*", "sink"}, pending: 2,
			budget: budget{moving: 2, dropping: 1, unanswering: 1, demanding: 1},
		},
		{
			name: "three members", members: []string{"a*", "win", "sink"}, pending: 1,
			budget: budget{moving: 1, electing: 1, unanswering: 1},
		},
		{
			name: "one member, a new leader", members: []string{"all*"}, solo: true, pending: 2,
			budget: budget{moving: 2, electing: 1, unanswering: 1, finishing: 1},
		},
		{
			name: "one member, three leaders", members: []string{"all*"}, solo: true, pending: 2,
			budget: budget{moving: 1, electing: 2, dropping: 1, demanding: 1},
		},
		{
			name: "one member, calls doubled, lost and repeated", members: []string{"all*"}, solo: true, pending: 2,
			budget: budget{moving: 2, doubling: 1, losing: 1, breaking: 1},
		},
	}
}

// move is one way on from a state.
type move struct {
	name string
	what any // of it
	// fault: the world may also never do it; a state must not depend on it to get on.
	fault bool
	do    func(w *world, left *budget)
}

type adder func(name string, what any, fault bool, do func(w *world, left *budget))

// node is a state with the way to it.
type node struct {
	w      *world
	left   budget
	parent int32
	by     move
}

// TestExploreRounds walks through small cases: every order of deliveries, losses, repeats, leader
// changes and applied or dropped proposals. A state in which nothing can happen but faults must be
// a good end: everything that was opened is decided or closed, and nothing that was asked for is
// left. With -short only the beginning of each case is looked at; STATES sets how much of it.
func TestExploreRounds(t *testing.T) {
	most, whole := 200000, !testing.Short()
	if testing.Short() {
		most = 1500
	}
	if text := os.Getenv("STATES"); text != "" {
		if _, err := fmt.Sscan(text, &most); err != nil {
			t.Fatal(err)
		}
		whole = false
	}
	all := explored{moves: map[string]int{}}
	for _, c := range smallCases() {
		t.Run(c.name, func(t *testing.T) {
			c.most = most
			r := explore(c, switchedOff())
			t.Logf("%d states, %d transitions, %d ends, whole: %v; %v", r.states, r.transitions, r.ends, r.whole, r.moves)
			if r.err != nil {
				t.Fatal(r.err)
			}
			if whole && !r.whole {
				t.Errorf("there are more than %d states; make the case smaller", most)
			}
			all.states, all.transitions = all.states+r.states, all.transitions+r.transitions
			for name, n := range r.moves {
				all.moves[name] += n
			}
		})
	}
	t.Logf("in all %d states, %d transitions; %v", all.states, all.transitions, all.moves)
	for _, name := range moveNames() {
		if whole && all.moves[name] == 0 {
			t.Errorf("no case reaches %q", name)
		}
	}
}

type explored struct {
	states, transitions, ends int
	whole                     bool
	moves                     map[string]int
	err                       error
}

func explore(c smallCase, off guards) explored {
	w := newWorld(c.members, shape{solo: c.solo, pending: c.pending}, off)
	w.quiet = true
	w.elect(0, nil)
	for _, p := range w.members {
		w.attach(p)
	}
	r := explored{whole: true, moves: map[string]int{}}
	nodes := []node{{w: w, left: c.budget, parent: -1}}
	seen := map[string]struct{}{key(w, c.budget): {}}
	for at := 0; at < len(nodes); at++ {
		n := nodes[at]
		if c.most > 0 && at >= c.most {
			r.whole = false
			break
		}
		steady := 0
		for _, mv := range moves(n.w, n.left) {
			if !mv.fault {
				steady++
			}
			r.transitions++
			r.moves[mv.name]++
			next, left := n.w.clone(), n.left
			mv.do(next, &left)
			if next.err == nil {
				k := key(next, left)
				if _, ok := seen[k]; ok {
					continue
				}
				seen[k] = struct{}{}
			}
			nodes = append(nodes, node{w: next, left: left, parent: int32(at), by: mv})
			if next.err != nil {
				r.err = fmt.Errorf("%w\n%s", next.err, way(nodes, len(nodes)-1))
				return r
			}
		}
		if steady == 0 {
			r.ends++
			if why := n.w.badEnd(); why != "" {
				r.err = fmt.Errorf("stuck: %s\n%s%s", why, way(nodes, at), show(n.w.leader().m))
				return r
			}
		}
		r.states++
		nodes[at].w = nil
	}
	return r
}

func way(nodes []node, at int) string {
	var steps []string
	for ; at > 0; at = int(nodes[at].parent) {
		steps = append(steps, fmt.Sprintf("%s %v", nodes[at].by.name, nodes[at].by.what))
	}
	slices.Reverse(steps)
	return strings.Join(steps, "\n") + "\n"
}

// badEnd says what is wrong with a state in which nothing but faults can happen.
func (w *world) badEnd() string {
	if w.closed {
		return ""
	}
	m := w.leader().m
	switch {
	case len(m.open) > 0:
		return "an epoch is open"
	case w.finishAt && (!w.last || !w.over):
		return "the last epoch is not decided and proven"
	case m.mayOrder() && !w.finishAt:
		return "a barrier is due"
	}
	for _, p := range w.members {
		if p.moved > p.covered && !w.last {
			return "work of " + p.name + " is left lying"
		}
	}
	return ""
}

// moveNames are all that can happen.
func moveNames() []string {
	return []string{
		"deliver", "double", "lose", "apply", "apply-unanswered", "drop", "hear", "wait", "order", "attach", "attach-again",
		"vote", "see", "begin", "prove", "move", "break", "repeat", "report", "demand", "elect", "finish",
	}
}

// moves are the ways on, in a fixed order.
func moves(w *world, left budget) []move {
	var list []move
	add := func(name string, what any, fault bool, do func(w *world, left *budget)) {
		list = append(list, move{name, what, fault, do})
	}
	for i, l := range w.leaders {
		if w.matters(l) {
			leaderMoves(w, i, left, add)
		}
	}
	for i := range w.members {
		memberMoves(w, i, left, add)
	}
	if left[electing] > 0 {
		for _, applies := range []bool{true, false} {
			if applies || len(w.leader().proposals) > 0 {
				add("elect", applies, true, func(w *world, left *budget) {
					left[electing]--
					w.elect(0, func() bool { return applies })
				})
			}
		}
	}
	if left[finishing] > 0 {
		add("finish", "", true, func(w *world, left *budget) { left[finishing]--; w.finish() })
	}
	return list
}

func leaderMoves(w *world, i int, left budget, add adder) {
	l := w.leaders[i]
	newest := l == w.leader()
	for k, c := range l.calls {
		add("deliver", c, !newest, func(w *world, _ *budget) { w.deliver(w.leaders[i], k, false) })
		if left[doubling] > 0 {
			add("double", c, true, func(w *world, left *budget) { left[doubling]--; w.deliver(w.leaders[i], k, true) })
		}
		if left[losing] > 0 && c.kind == callVote && c.vote.Kind != Lost {
			add("lose", c, true, func(w *world, left *budget) {
				left[losing]--
				w.leaders[i].calls = slices.Delete(w.leaders[i].calls, k, k+1)
			})
		}
	}
	if !newest {
		return
	}
	for k, p := range l.proposals {
		add("apply", p.n, false, func(w *world, _ *budget) { w.resolve(w.leader(), k, true, false) })
		if left[unanswering] > 0 {
			add("apply-unanswered", p.n, true, func(w *world, left *budget) { left[unanswering]--; w.resolve(w.leader(), k, true, true) })
		}
		if left[dropping] > 0 {
			add("drop", p.n, true, func(w *world, left *budget) { left[dropping]--; w.resolve(w.leader(), k, false, false) })
		}
	}
	if len(l.applied) > 0 {
		add("hear", "", false, func(w *world, _ *budget) { w.hear(w.leader()) })
	}
	if at, ok := l.m.NextWake(); ok && at < l.clock(w.now).Add(modelTimeout/2) {
		add("wait", "", false, func(w *world, _ *budget) {
			w.now = max(w.now, at)
			w.obey(w.leader(), w.leader().m.Tick(w.now))
		})
	}
}

func memberMoves(w *world, i int, left budget, add adder) {
	p := w.members[i]
	newest := p.leader == w.leader()
	if len(p.stream) > 0 {
		add("order", p.name, false, func(w *world, _ *budget) { w.deliverOrder(w.members[i]) })
	}
	if !newest {
		add("attach", p.name, false, func(w *world, _ *budget) { w.attach(w.members[i]) })
	} else if left[attaching] > 0 {
		add("attach-again", p.name, true, func(w *world, left *budget) { left[attaching]--; w.attach(w.members[i]) })
	}
	if p.voted < p.newest {
		add("vote", p.name, false, func(w *world, _ *budget) { w.vote(w.members[i], 0) })
	}
	if w.maySee(p) {
		add("see", p.name, false, func(w *world, _ *budget) { w.see(w.members[i]) })
	}
	if w.mayBegin(p) {
		add("begin", p.name, false, func(w *world, _ *budget) { w.begin(w.members[i]) })
	}
	if p.proven < p.outcome {
		add("prove", p.name, false, func(w *world, _ *budget) { w.prove(w.members[i]) })
	}
	if p.source && left[moving] > 0 {
		add("move", p.name, true, func(w *world, left *budget) { left[moving]--; w.move(w.members[i]) })
	}
	if newest && left[breaking] > 0 {
		add("break", p.name, true, func(w *world, left *budget) { left[breaking]--; w.detach(w.members[i]) })
	}
	if n := w.unheard(p); n > 0 {
		add("repeat", p.name, false, func(w *world, _ *budget) { w.sendVote(w.members[i], n) })
	}
	if w.untold(p) {
		add("report", p.name, false, func(w *world, _ *budget) { w.send(w.members[i], call{member: p.name, kind: callWork}) })
	}
	if left[demanding] > 0 && p.newest > p.outcome {
		add("demand", p.name, true, func(w *world, left *budget) { left[demanding]--; w.lose(w.members[i]) })
	}
}
