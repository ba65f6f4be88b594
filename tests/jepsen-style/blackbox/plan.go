package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// kind of a fault, as the report names it.
type kind string

// What is done to nodes, and to workers.
const (
	killOne    kind = "kill a node"
	killLeader kind = "kill the leader"
	killTwo    kind = "kill a majority"
	killAll    kind = "kill all nodes"

	pauseOne    kind = "pause a node"
	pauseLeader kind = "pause the leader"

	cutOne        kind = "cut a node off"
	cutLeader     kind = "cut the leader off"
	cutAll        kind = "cut every node from every other"
	cutIn         kind = "deafen a node"
	cutOut        kind = "mute a node"
	cutFromClient kind = "cut the leader from clients"

	fillOne  kind = "fill a node's disk"
	powerOne kind = "power loss of a node"
	powerAll kind = "power loss of all nodes"

	killTeller   kind = "kill a teller"
	killTellers  kind = "kill every teller"
	killSweeper  kind = "kill the sweeper"
	killOrders   kind = "kill the window pipeline"
	killLines    kind = "kill the file pipeline"
	pauseTeller  kind = "pause a teller"
	pauseOrders  kind = "pause the window pipeline"
	pauseLines   kind = "pause the file pipeline"
	fillWork     kind = "fill the workers' disk"
	powerWorkers kind = "power loss of the workers"
)

// needs of a fault.
type needs uint8

const (
	nothing needs = iota
	networks
	disks
)

// fault is one row of what the nemesis can do.
type fault struct {
	kind   kind
	needs  needs
	weight int
	// least and most are how long it lasts.
	least, most time.Duration
}

// nodeFaults strike nodes; one follows the other.
func nodeFaults() []fault {
	const short, long = 500 * time.Millisecond, 5 * time.Second
	return []fault{
		{killOne, nothing, 5, short, long},
		{killLeader, nothing, 7, short, 2 * time.Second},
		{killTwo, nothing, 4, short, 2 * time.Second},
		{killAll, nothing, 4, short, 2 * time.Second},
		{pauseOne, nothing, 1, time.Second, time.Second},
		{pauseLeader, nothing, 2, time.Second, 5 * time.Second},
		{cutOne, networks, 2, time.Second, 6 * time.Second},
		{cutLeader, networks, 2, time.Second, 5 * time.Second},
		{cutAll, networks, 1, time.Second, 3 * time.Second},
		{cutIn, networks, 1, time.Second, 4 * time.Second},
		{cutOut, networks, 1, time.Second, 4 * time.Second},
		{cutFromClient, networks, 1, time.Second, 4 * time.Second},
		{fillOne, disks, 1, time.Second, 3 * time.Second},
		{powerOne, disks, 2, short, 2 * time.Second},
		{powerAll, disks, 2, short, 2 * time.Second},
	}
}

// workerFaults strike workers, beside what strikes nodes.
func workerFaults() []fault {
	const short = 300 * time.Millisecond
	return []fault{
		{killTeller, nothing, 6, short, time.Second},
		{killTellers, nothing, 2, short, time.Second},
		{killSweeper, nothing, 2, short, time.Second},
		{killOrders, nothing, 3, short, 2 * time.Second},
		{killLines, nothing, 2, short, 2 * time.Second},
		{pauseTeller, nothing, 1, time.Second, 5 * time.Second},
		{pauseOrders, nothing, 1, time.Second, 6 * time.Second},
		{pauseLines, nothing, 1, time.Second, 6 * time.Second},
		{fillWork, disks, 1, time.Second, 3 * time.Second},
		{powerWorkers, disks, 2, short, 2 * time.Second},
	}
}

// act is one fault as the plan has it.
type act struct {
	fault
	aim    moment        // what it waits for before it strikes
	target int           // of those that it can strike
	lasts  time.Duration // until it is healed
	calm   time.Duration // after that
}

func (a act) String() string { return fmt.Sprintf("%s %s for %s", a.kind, a.aim, a.lasts) }

// plan draws acts from a seed. The same seed has the same acts in the same order; when each strikes
// depends on what it waits for. Every kind comes up in each round, as often as its weight says.
type plan struct {
	rng    *rand.Rand
	faults []fault
	aims   []moment
	deck   []fault
	calm   time.Duration
}

// newPlan draws from the faults that are possible.
func newPlan(seed, stream uint64, faults []fault, possible func(fault) bool, aims []moment, calm time.Duration) *plan {
	p := &plan{rng: rand.New(rand.NewPCG(seed, stream)), aims: aims, calm: calm}
	for _, f := range faults {
		if possible(f) {
			p.faults = append(p.faults, f)
		}
	}
	return p
}

// next is the next act.
func (p *plan) next() act {
	if len(p.deck) == 0 {
		p.deal()
	}
	f := p.deck[0]
	p.deck = p.deck[1:]
	return act{
		fault: f, aim: p.aims[p.rng.IntN(len(p.aims))], target: p.rng.IntN(1 << 16),
		lasts: f.least + time.Duration(p.rng.Int64N(int64(f.most-f.least)+1)).Round(time.Millisecond),
		calm:  (p.calm/2 + time.Duration(p.rng.Int64N(int64(p.calm)))).Round(time.Millisecond),
	}
}

// deal shuffles a round: first every kind once, so that a short run has all of them, then the rest.
func (p *plan) deal() {
	once, rest := append([]fault(nil), p.faults...), []fault(nil)
	for _, f := range p.faults {
		for range f.weight - 1 {
			rest = append(rest, f)
		}
	}
	for _, cards := range [][]fault{once, rest} {
		p.rng.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
	}
	p.deck = append(once, rest...)
}
