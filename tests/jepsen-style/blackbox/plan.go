package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/tests/jepsen-style/blackbox/ground"
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

// family of a fault: how it is done and undone.
type family uint8

const (
	killing  family = iota + 1
	pausing         // SIGSTOP
	cutting         // needs networks
	filling         // needs disks
	powering        // needs disks
)

// fault is one row of what the nemesis can do.
type fault struct {
	kind   kind
	family family
	weight int
	// least and most are how long it lasts.
	least, most time.Duration
}

// nodeFaults strike nodes; one follows the other.
func nodeFaults() []fault {
	const short, long = 500 * time.Millisecond, 5 * time.Second
	return []fault{
		{killOne, killing, 5, short, long},
		{killLeader, killing, 7, short, 2 * time.Second},
		{killTwo, killing, 4, short, 2 * time.Second},
		{killAll, killing, 4, short, 2 * time.Second},
		{pauseOne, pausing, 1, time.Second, time.Second},
		{pauseLeader, pausing, 2, time.Second, 5 * time.Second},
		{cutOne, cutting, 2, time.Second, 6 * time.Second},
		{cutLeader, cutting, 2, time.Second, 5 * time.Second},
		{cutAll, cutting, 1, time.Second, 3 * time.Second},
		{cutIn, cutting, 1, time.Second, 4 * time.Second},
		{cutOut, cutting, 1, time.Second, 4 * time.Second},
		{cutFromClient, cutting, 1, time.Second, 4 * time.Second},
		{fillOne, filling, 1, time.Second, 3 * time.Second},
		{powerOne, powering, 2, short, 2 * time.Second},
		{powerAll, powering, 2, short, 2 * time.Second},
	}
}

// workerFaults strike workers, beside what strikes nodes.
func workerFaults() []fault {
	const short = 300 * time.Millisecond
	return []fault{
		{killTeller, killing, 6, short, time.Second},
		{killTellers, killing, 2, short, time.Second},
		{killSweeper, killing, 2, short, time.Second},
		{killOrders, killing, 3, short, 2 * time.Second},
		{killLines, killing, 2, short, 2 * time.Second},
		{pauseTeller, pausing, 1, time.Second, 5 * time.Second},
		{pauseOrders, pausing, 1, time.Second, 6 * time.Second},
		{pauseLines, pausing, 1, time.Second, 6 * time.Second},
		{fillWork, filling, 1, time.Second, 3 * time.Second},
		{powerWorkers, powering, 3, short, 2 * time.Second},
	}
}

// act is one fault as the plan has it.
type act struct {
	fault
	aim    moment        // what it waits for before it strikes
	linger time.Duration // after that: the moment's messages and syncs are under way
	target int           // of those that it can strike
	lasts  time.Duration // until it is healed
	calm   time.Duration // after that
}

func (a act) String() string { return fmt.Sprintf("%s %s for %s", a.kind, a.aim, a.lasts) }

const longestLinger = 10 * time.Millisecond

// plan draws acts from a seed. The same seed has the same acts in the same order; when each strikes
// depends on what it waits for. Every kind comes up in each round, as often as its weight says.
type plan struct {
	rng    *rand.Rand
	faults []fault
	aims   []moment
	deck   []fault
	calm   time.Duration
}

// newPlan draws from the faults that are possible; calm is about how long it is quiet between two.
func newPlan(seed, stream uint64, faults []fault, able ground.Able, calm time.Duration) *plan {
	return &plan{
		rng: rand.New(rand.NewPCG(seed, stream)), calm: calm, aims: []moment{anytime, onPrepared, onPrepared, onVote, onVote, onDecision},
		faults: slices.DeleteFunc(faults, func(f fault) bool {
			return f.family == cutting && !able.Networks || (f.family == filling || f.family == powering) && !able.Disks
		}),
	}
}

// only leaves those faults whose kinds are named, comma-separated; empty leaves all.
func only(faults []fault, kinds string) []fault {
	if kinds == "" {
		return faults
	}
	return slices.DeleteFunc(faults, func(f fault) bool { return !slices.Contains(strings.Split(kinds, ","), string(f.kind)) })
}

// next is the next act. It is not asked of a plan without faults.
func (p *plan) next() act {
	if len(p.deck) == 0 {
		p.deal()
	}
	f := p.deck[0]
	p.deck = p.deck[1:]
	return act{
		fault: f, aim: p.aims[p.rng.IntN(len(p.aims))], linger: time.Duration(p.rng.Int64N(int64(longestLinger))), target: p.rng.IntN(1 << 16),
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
