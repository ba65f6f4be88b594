package round

import (
	"slices"
	"time"
)

// chooser makes the choices of a run.
type chooser interface {
	pick(n int, what string) int // 0 <= result < n
}

// player lets a world go wrong at random.
type player struct {
	*world
	choose chooser
}

// run lets the world go wrong for some steps, then right; its err is the first broken promise.
func run(choose chooser, off guards, steps int) *world {
	s := shape{
		solo: choose.pick(4, "solo") == 0, limited: choose.pick(3, "limited") == 0,
		wantFinish: choose.pick(2, "finish") == 0, wantLost: choose.pick(6, "lost") == 0,
		pending: 1 + choose.pick(3, "pending"), leaders: 1 + choose.pick(5, "leaders"),
		interval: 100 * time.Millisecond,
	}
	names := []string{"a*", "b*", "win", "sink"}
	if s.solo {
		names = []string{"all*"}
	}
	w := player{newWorld(names, s, off), choose}
	w.elect()
	for range steps {
		if w.err == nil {
			w.step()
		}
	}
	w.faults = false
	w.note("no more faults")
	w.recover()
	return w.world
}

func (w player) chance(n int, what string) bool { return w.choose.pick(n, what) == 0 }

func (w player) elect() {
	w.world.elect(Time(w.choose.pick(1000, "clock"))*Time(time.Second), func() bool { return w.chance(2, "old proposal applies") })
}

// step does one thing.
func (w player) step() {
	l := w.leaders[len(w.leaders)-1-w.choose.pick(min(2, len(w.leaders)), "leader")]
	p := w.members[w.choose.pick(len(w.members), "member")]
	switch w.choose.pick(16, "step") {
	case 0:
		w.now = w.now.Add(time.Duration(w.choose.pick(8, "time")) * 100 * time.Millisecond)
		w.obey(l, l.m.Tick(l.clock(w.now)))
	case 1:
		w.attach(p)
	case 2, 3, 4:
		w.someCall(l)
	case 5, 6, 7:
		if len(p.stream) > 0 {
			w.deliverOrder(p)
		}
	case 8, 9:
		if len(l.proposals) > 0 {
			w.resolve(l, w.choose.pick(len(l.proposals), "proposal"), !w.chance(3, "dropped"), w.chance(4, "answer lost"))
		}
	case 10:
		if len(l.applied) > 0 {
			w.hear(l)
		}
	case 11, 12:
		w.act(p)
	case 13:
		if p.proven < p.outcome {
			w.prove(p)
		}
	case 14:
		if n := p.voted; n > p.outcome {
			w.sendVote(p, n-uint64(w.choose.pick(int(n-p.outcome), "repeat")))
		}
	case 15:
		w.mishap(p)
	}
}

func (w player) mishap(p *simMember) {
	switch w.choose.pick(5, "mishap") {
	case 0:
		if len(w.leaders) < w.shape.leaders {
			w.elect()
		}
	case 1:
		if p.leader == w.leader() {
			w.detach(p)
		}
	case 2:
		if w.shape.wantFinish && !w.finishAt {
			w.finish()
		}
	case 3:
		if w.shape.wantLost && !w.doomed && p.newest > p.outcome {
			w.lose(p)
		}
	case 4:
		if w.shape.wantLost && w.chance(4, "lease is over") {
			w.doomed = true
			w.obey(w.leader(), w.leader().m.Close("a lease is over", "", w.leader().clock(w.now)))
		}
	}
}

// someCall delivers, doubles or loses a call.
func (w player) someCall(l *simLeader) {
	if len(l.calls) == 0 {
		return
	}
	k := w.choose.pick(len(l.calls), "call")
	switch w.choose.pick(6, "fate") {
	case 0:
		w.deliver(l, k, true)
	case 1:
		w.note("lost: %s", l.calls[k])
		l.calls = slices.Delete(l.calls, k, k+1)
	default:
		w.deliver(l, k, false)
	}
}

// act lets a member do what is next for it.
func (w player) act(p *simMember) {
	switch {
	case p.voted < p.newest:
		keep := time.Duration(0)
		if w.shape.limited && !w.chance(3, "no deadline") {
			keep = modelBudget + time.Duration(1+w.choose.pick(60, "deadline"))*100*time.Millisecond
		}
		w.vote(p, keep)
	case p.source && w.chance(2, "moves"):
		w.move(p)
	case w.mayBegin(p):
		w.begin(p)
	case w.maySee(p):
		w.see(p)
	}
}

// recover lets everything go well and demands progress: an epoch, or the end when one is wanted.
func (w player) recover() {
	if w.shape.wantFinish && w.chance(2, "new leader") {
		w.elect()
	}
	for _, p := range w.members {
		w.attach(p)
	}
	goal := w.final + 2
	for range 200 {
		if w.err != nil || w.over || w.closed && w.leader().told || !w.finishAt && w.final >= goal {
			return
		}
		w.fair()
	}
	w.fail("no progress: final %d, goal %d, finishing %v, closed %v, doomed %v: %s", w.final, goal, w.finishAt, w.closed, w.doomed, show(w.leader().m))
}

// fair gives everyone a turn.
func (w player) fair() {
	l := w.leader()
	for len(l.calls) > 0 {
		w.deliver(l, w.choose.pick(len(l.calls), "call"), false)
	}
	for len(l.proposals) > 0 {
		w.resolve(l, 0, true, false)
	}
	for len(l.applied) > 0 {
		w.hear(l)
	}
	for _, p := range w.members {
		for len(p.stream) > 0 {
			w.deliverOrder(p)
		}
		w.act(p)
		if p.proven < p.outcome {
			w.prove(p)
		}
		if p.source && !w.finishAt {
			w.move(p)
		}
	}
	w.now = w.now.Add(100 * time.Millisecond)
	if at, ok := l.m.NextWake(); ok && at <= l.clock(w.now) {
		w.obey(l, l.m.Tick(l.clock(w.now)))
	}
}
