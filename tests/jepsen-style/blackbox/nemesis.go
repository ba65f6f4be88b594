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
	Family  family        `json:"-"`
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
	if len(p.faults) == 0 {
		<-ctx.Done()
	}
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
	targets, minority := n.targets(ctx, a)
	n.r.scribe.await(ctx, a.aim, momentIn)
	_ = rig.Sleep(ctx, a.linger)
	over := ctx.Err() != nil
	if over || len(targets) == 0 {
		return nil //nolint:nilerr // the storm is over, or nobody leads now and the next act has better luck
	}
	s := strike{Kind: a.kind, Family: a.family, Aim: a.aim.String(), From: n.r.book.Now(), underWay: n.r.scribe.now()}
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

// targets are whom an act strikes; nobody, when it is the leader and there is none. Minority says that it
// is one node, wholly.
func (n *nemesis) targets(ctx context.Context, a act) (all []target, minority bool) {
	nodes, w := n.r.group.nodes, n.r.workers
	one := target{node: nodes[a.target%len(nodes)]}
	switch a.kind {
	case killLeader, pauseLeader, cutLeader, cutFromClient:
		leader, err := n.r.group.leader(ctx)
		if err != nil {
			return nil, false
		}
		return []target{{node: leader}}, a.kind != cutFromClient
	case killOne, pauseOne, cutOne, fillOne, powerOne:
		return []target{one}, true
	case cutIn, cutOut:
		return []target{one}, false
	case killTwo:
		return []target{one, {node: nodes[(a.target+1)%len(nodes)]}}, false
	case killAll, cutAll, powerAll:
		for _, x := range nodes {
			all = append(all, target{node: x})
		}
		return all, false
	case killTeller, pauseTeller:
		return crowd(w.tellers[a.target%len(w.tellers)]), false
	case killTellers:
		return crowd(w.tellers...), false
	case killSweeper:
		return crowd(w.sweeper), false
	case killOrders, pauseOrders:
		return crowd(w.orders), false
	case killLines, pauseLines:
		return crowd(w.lines), false
	case fillWork, powerWorkers:
		return crowd(w.all()...), false
	}
	return nil, false
}

func crowd(ks ...*keeper) (all []target) {
	for _, k := range ks {
		all = append(all, target{worker: k})
	}
	return all
}

// disks are those that an act on disks is about: each node's own, and the one of all workers.
func (n *nemesis) disks(targets []target) (all []*ground.Disk) {
	for _, t := range targets {
		if t.node == nil {
			return []*ground.Disk{n.r.workers.disk}
		}
		all = append(all, t.node.disk)
	}
	return all
}

// strike breaks something. It returns how many processes it killed.
func (n *nemesis) strike(ctx context.Context, a act, targets []target) (killed int, err error) {
	switch a.family {
	case killing:
		return hold(targets)
	case pausing:
		return 0, each(targets, func(t target) error {
			t.keeper().expect() // one that stood still for too long may end itself
			return t.keeper().signal(syscall.SIGSTOP)
		})
	case cutting:
		return 0, each(targets, func(t target) error { return n.cut(ctx, a, t.node) })
	case filling:
		for _, t := range targets {
			t.keeper().expect()
		}
		return 0, each(n.disks(targets), (*ground.Disk).Fill)
	case powering:
		// All disks first: what is lost on one is lost on all at the same time.
		err := each(n.disks(targets), (*ground.Disk).PowerOff)
		killed, held := hold(targets)
		return killed, errors.Join(err, held)
	}
	return 0, fmt.Errorf("nobody knows how to %s", a.kind)
}

// heal mends what an act has broken.
func (n *nemesis) heal(ctx context.Context, a act, targets []target) error {
	switch a.family {
	case killing:
		release(targets)
		return nil
	case pausing:
		return each(targets, func(t target) error { return t.keeper().signal(syscall.SIGCONT) })
	case cutting:
		return each(targets, func(t target) error { return t.node.host.Heal(ctx) })
	case filling:
		return each(n.disks(targets), (*ground.Disk).Empty)
	case powering:
		err := each(n.disks(targets), func(d *ground.Disk) error { return d.PowerOn(ctx) })
		release(targets)
		return err
	}
	return fmt.Errorf("nobody knows how to mend %s", a.kind)
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

func each[T any](all []T, f func(T) error) error {
	var errs []error
	for _, t := range all {
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
	if one, oneWay := map[kind]ground.Direction{cutIn: ground.In, cutOut: ground.Out}[a.kind]; oneWay {
		direction = one
	} else if a.kind == cutFromClient {
		others = []*ground.Host{nil}
	} else if a.target%2 == 0 {
		others = append(others, nil)
	}
	return x.host.Cut(ctx, direction, others...)
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
		if s.Family == cutting {
			t.cuts++
		}
		if s.Family == powering {
			t.powers++
		}
	}
	return t
}
