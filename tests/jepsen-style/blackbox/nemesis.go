package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/unisink/unisink/tests/jepsen-style/blackbox/ground"
	"github.com/unisink/unisink/tests/jepsen-style/check"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

const (
	momentIn  = 1500 * time.Millisecond // longest wait for a moment to strike in
	recoverIn = 20 * time.Second        // longest wait for a leader between two faults
)

// strike is one fault that struck, as the report has it.
type strike struct {
	Kind    kind          `json:"kind"`
	Targets []string      `json:"targets"`
	From    time.Duration `json:"from"`
	To      time.Duration `json:"to"`
	Aim     string        `json:"aim"`
	Killed  int           `json:"killed"` // processes
	underWay
}

// nemesis breaks things by a plan.
type nemesis struct {
	r *run

	mu      sync.Mutex // guards the rest
	strikes []strike
	doing   [2]string // of each lane
	slow    []string  // faults after which no leader came in time
}

// lane does act after act until ctx ends, and heals what it has broken whatever happens.
func (n *nemesis) lane(ctx context.Context, nr int, p *plan, settle func(context.Context) error) error {
	for ctx.Err() == nil {
		a := p.next()
		n.mu.Lock()
		n.doing[nr] = string(a.kind)
		n.mu.Unlock()
		if err := n.do(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a.kind, err)
		}
		if err := settle(ctx); err != nil && ctx.Err() == nil {
			n.mu.Lock()
			n.slow = append(n.slow, fmt.Sprintf("after %s: %v", a.kind, err))
			n.mu.Unlock()
		}
		_ = rig.Sleep(ctx, a.calm)
	}
	return nil
}

// do strikes, waits and heals.
func (n *nemesis) do(ctx context.Context, a act) error {
	targets, minority, err := n.targets(ctx, a)
	if err != nil {
		return nil //nolint:nilerr // nobody leads now: the next act has better luck
	}
	n.r.scribe.await(ctx, a.aim, momentIn)
	if ctx.Err() != nil {
		return nil
	}
	s := strike{Kind: a.kind, Aim: a.aim.String(), From: n.r.book.Now(), underWay: n.r.scribe.now()}
	for _, t := range targets {
		s.Targets = append(s.Targets, t.name())
		s.Rounds += t.calls(n.r.scribe)
	}
	n.r.book.Add(check.Event{
		Who: "nemesis", Kind: check.Fault, Fault: string(a.kind), InRound: s.Rounds > 0,
		Text: fmt.Sprintf("%s: %v for %s, %s", a.kind, s.Targets, a.lasts, a.aim),
	})
	if minority {
		n.r.book.Add(check.Event{Who: "nemesis", Kind: check.Minority, Text: s.Targets[0]})
	}
	killed, err := n.strike(ctx, a, targets)
	s.Killed = killed
	if err == nil {
		_ = rig.Sleep(ctx, a.lasts) // healed in any case
	}
	if minority {
		n.r.book.Add(check.Event{Who: "nemesis", Kind: check.MinorityEnd})
	}
	err = errors.Join(err, n.heal(context.WithoutCancel(ctx), a, targets))
	s.To = n.r.book.Now()
	n.r.book.Add(check.Event{Who: "nemesis", Kind: check.Note, Text: "over: " + string(a.kind)})
	n.mu.Lock()
	n.strikes = append(n.strikes, s)
	n.mu.Unlock()
	return err
}

// target is a node or a worker.
type target struct {
	node   *node
	worker *keeper
}

func (t target) keeper() *keeper {
	if t.node != nil {
		return t.node.keeper
	}
	return t.worker
}

func (t target) name() string { return t.keeper().name }

// calls are a worker's own calls without an answer, which its death leaves open for ever.
func (t target) calls(s *scribe) int { return s.callsOf(t.name()) }

// targets are whom an act strikes. Minority says that it is one node, wholly.
func (n *nemesis) targets(ctx context.Context, a act) (all []target, minority bool, err error) {
	nodes, w := n.r.group.nodes, n.r.workers
	one := target{node: nodes[a.target%len(nodes)]}
	every := func(ks ...*keeper) (out []target) {
		for _, k := range ks {
			out = append(out, target{worker: k})
		}
		return out
	}
	switch a.kind {
	case killLeader, pauseLeader, cutLeader, cutFromClient:
		leader, err := n.r.group.leader(ctx)
		return []target{{node: leader}}, a.kind != cutFromClient, err
	case killOne, pauseOne, cutOne, fillOne, powerOne:
		return []target{one}, true, nil
	case cutIn, cutOut:
		return []target{one}, false, nil
	case killTwo:
		return []target{one, {node: nodes[(a.target+1)%len(nodes)]}}, false, nil
	case killAll, cutAll, powerAll:
		for _, x := range nodes {
			all = append(all, target{node: x})
		}
		return all, false, nil
	case killTeller, pauseTeller:
		return every(w.tellers[a.target%len(w.tellers)]), false, nil
	case killTellers:
		return every(w.tellers...), false, nil
	case killSweeper:
		return every(w.sweeper), false, nil
	case killOrders, pauseOrders:
		return every(w.orders), false, nil
	case killLines, pauseLines:
		return every(w.lines), false, nil
	case fillWork, powerWorkers:
		return every(w.all()...), false, nil
	}
	return nil, false, fmt.Errorf("nobody knows how to %s", a.kind)
}

// strike breaks something. It returns how many processes it killed.
func (n *nemesis) strike(ctx context.Context, a act, targets []target) (killed int, err error) {
	switch a.kind {
	case killOne, killLeader, killTwo, killAll, killTeller, killTellers, killSweeper, killOrders, killLines:
		return hold(targets)
	case pauseOne, pauseLeader, pauseTeller, pauseOrders, pauseLines:
		return 0, each(targets, func(t target) error {
			t.keeper().expect() // one that stood still for too long may end itself
			return t.keeper().signal(syscall.SIGSTOP)
		})
	case cutOne, cutLeader, cutAll, cutIn, cutOut, cutFromClient:
		return 0, each(targets, func(t target) error { return n.cut(ctx, a, t.node) })
	case fillOne:
		targets[0].node.expect()
		return 0, targets[0].node.disk.Fill()
	case fillWork:
		for _, t := range targets {
			t.worker.expect()
		}
		return 0, n.r.workers.disk.Fill()
	case powerOne, powerAll:
		// All disks first: what is lost on one is lost on all at the same time.
		err := each(targets, func(t target) error { return t.node.disk.PowerOff() })
		killed, held := hold(targets)
		return killed, errors.Join(err, held)
	case powerWorkers:
		err := n.r.workers.disk.PowerOff()
		killed, held := hold(targets)
		return killed, errors.Join(err, held)
	}
	return 0, fmt.Errorf("nobody knows how to %s", a.kind)
}

func hold(targets []target) (killed int, err error) {
	var errs []error
	for _, t := range targets {
		was, err := t.keeper().hold()
		if was {
			killed++
		}
		errs = append(errs, err)
	}
	return killed, errors.Join(errs...)
}

func each(targets []target, f func(target) error) error {
	var errs []error
	for _, t := range targets {
		errs = append(errs, f(t))
	}
	return errors.Join(errs...)
}

// cut drops what goes between a node and others. Half of those that are cut off are so from clients too.
func (n *nemesis) cut(ctx context.Context, a act, x *node) error {
	var others []*ground.Host
	for _, o := range n.r.group.nodes {
		if o != x {
			others = append(others, o.host)
		}
	}
	direction := ground.Both
	switch a.kind {
	case cutIn:
		direction = ground.In
	case cutOut:
		direction = ground.Out
	case cutFromClient:
		others = []*ground.Host{nil}
	default:
		if a.target%2 == 0 {
			others = append(others, nil)
		}
	}
	return x.host.Cut(ctx, direction, others...)
}

// heal mends what an act has broken.
func (n *nemesis) heal(ctx context.Context, a act, targets []target) error {
	switch a.kind {
	case pauseOne, pauseLeader, pauseTeller, pauseOrders, pauseLines:
		return each(targets, func(t target) error { return t.keeper().signal(syscall.SIGCONT) })
	case cutOne, cutLeader, cutAll, cutIn, cutOut, cutFromClient:
		return each(targets, func(t target) error { return t.node.host.Heal(ctx) })
	case fillOne:
		return targets[0].node.disk.Empty()
	case fillWork:
		return n.r.workers.disk.Empty()
	case powerOne, powerAll:
		err := each(targets, func(t target) error { return t.node.disk.PowerOn(ctx) })
		release(targets)
		return err
	case powerWorkers:
		err := n.r.workers.disk.PowerOn(ctx)
		release(targets)
		return err
	default:
		release(targets)
		return nil
	}
}

func release(targets []target) {
	for _, t := range targets {
		t.keeper().release()
	}
}

// tally is what struck, by kind.
type tally struct {
	kinds   map[kind]int
	kills   int // processes killed by hand
	inRound int // of these, those that found an epoch voted for or a decision asked for, and none made
	open    int // of these, those that found a branch prepared or decided, and not finished
	cuts    int
	powers  int
}

func (n *nemesis) tally() tally {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := tally{kinds: map[kind]int{}}
	for _, s := range n.strikes {
		t.kinds[s.Kind]++
		t.kills += s.Killed
		if s.Rounds > 0 {
			t.inRound += s.Killed
		}
		if s.Unfinished > 0 {
			t.open += s.Killed
		}
		switch s.Kind {
		case cutOne, cutLeader, cutAll, cutIn, cutOut, cutFromClient:
			t.cuts++
		case powerOne, powerAll, powerWorkers:
			t.powers++
		}
	}
	return t
}
