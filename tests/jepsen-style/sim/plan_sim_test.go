package sim_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// strike is one planned fault. Who may be a role ("leader"), which is filled when it strikes.
type strike struct {
	at    time.Duration // since the storm began
	kind  string
	who   string
	aim   string // strikes at the next such moment, if one comes within two seconds
	lasts time.Duration
	n     int // how bad it is, in the kind's own measure
}

func (s strike) String() string {
	text := fmt.Sprintf("%8.3fs  %s", s.at.Seconds(), s.kind)
	if s.who != "" {
		text += " " + s.who
	}
	if s.lasts > 0 {
		text += fmt.Sprintf(" for %s", s.lasts)
	}
	if s.n != 0 {
		text += fmt.Sprintf(" (%d)", s.n)
	}
	if s.aim != "" {
		text += ", at " + s.aim
	}
	return text
}

// pipelinePlan is one pipeline of a run.
type pipelinePlan struct {
	name       string
	members    []string
	resources  map[string][]string // by member: its aliases
	kinds      map[string]string   // by member/alias: memory, file or kafka
	interval   time.Duration
	lease      time.Duration
	maxPending int
	every      time.Duration         // between records
	windows    map[string]windowPlan // by member: of those that do not just copy what they read
	drain      bool                  // when it is stopped it is drained: what its windows owe fires
}

// plan is everything that a seed determines.
type plan struct {
	seed      uint64
	nodes     int
	tune      tuning
	pipelines []pipelinePlan
	hands     int
	storm     time.Duration
	strikes   []strike
}

// The kinds of faults.
var (
	nodeKinds = []string{
		"crash", "crash", "crash all", "cut", "cut from nodes", "cut from clients", "one way out", "one way in",
		"slow net", "lose answers", "repeat messages", "slow disk", "full disk", "clock step",
	}
	memberKinds = []string{
		"kill", "kill", "cut member", "mute member", "deafen member", "slow member", "lose member's answers", "sick resource", "hanging resource",
	}
	otherKinds = []string{"kill client", "cut client", "restart pipeline", "rewind pipeline"}
	aims       = []string{
		"barrier", "barrier", "before prepare", "after prepare", "after prepare", "before commit", "after commit", "before open", "after open", "before begin",
	}
)

func newPlan(seed uint64) plan {
	rnd := rand.New(rand.NewPCG(seed, 1))
	ms := func(least, most int) time.Duration {
		return time.Duration(least+rnd.IntN(most-least+1)) * time.Millisecond
	}
	p := plan{
		seed: seed, nodes: 3, hands: 1 + rnd.IntN(3), storm: 40 * time.Second,
		tune: tuning{snapshots: []uint64{30, 200, 8192}[rnd.IntN(3)], trailing: []uint64{10, 50, 0}[rnd.IntN(3)]},
	}
	if rnd.IntN(5) == 0 {
		p.nodes = 5
	}
	var seats []string
	for i := range 1 + rnd.IntN(3) {
		pl := pipelinePlan{
			name: fmt.Sprintf("p%d", i+1), resources: map[string][]string{}, kinds: map[string]string{}, interval: ms(30, 250), lease: ms(1200, 3000),
			maxPending: 1 + rnd.IntN(3), every: ms(5, 25), windows: map[string]windowPlan{},
		}
		for j := range 1 + rnd.IntN(3) {
			name := fmt.Sprintf("m%d", j+1)
			pl.members = append(pl.members, name)
			pl.resources[name] = []string{"a", "b"}[:1+rnd.IntN(2)]
			for _, alias := range pl.resources[name] {
				pl.kinds[name+"/"+alias] = []string{"memory", "memory", "memory", "file", "kafka"}[rnd.IntN(5)]
			}
			seats = append(seats, pl.name+"."+name)
		}
		p.pipelines = append(p.pipelines, pl)
	}
	for at := ms(200, 1500); at < p.storm; at += ms(100, 1800) {
		p.strikes = append(p.strikes, newStrike(rnd, at, p, seats))
	}
	p.drawWindows()
	return p
}

func newStrike(rnd *rand.Rand, at time.Duration, p plan, seats []string) strike {
	pick := func(from []string) string { return from[rnd.IntN(len(from))] }
	ms := func(least, most int) time.Duration {
		return time.Duration(least+rnd.IntN(most-least+1)) * time.Millisecond
	}
	s := strike{at: at, lasts: ms(100, 6000)}
	if rnd.IntN(3) > 0 {
		s.aim = pick(aims)
	}
	switch x := rnd.IntN(100); {
	case x < 50:
		s.kind = pick(nodeKinds)
		roles := []string{"leader", "leader", "follower"}
		for i := range p.nodes {
			roles = append(roles, fmt.Sprintf("n%d", i+1))
		}
		s.who = pick(roles)
	case x < 88:
		s.kind, s.who = pick(memberKinds), pick(seats)
	default:
		s.kind = pick(otherKinds)
		s.who = fmt.Sprintf("hand%d", 1+rnd.IntN(p.hands))
		if strings.HasSuffix(s.kind, "pipeline") {
			s.who = p.pipelines[rnd.IntN(len(p.pipelines))].name
		}
	}
	switch s.kind {
	case "crash all":
		s.who = ""
	case "slow net", "slow member":
		s.n = 5 + rnd.IntN(300) // ms
	case "lose answers", "repeat messages", "lose member's answers":
		s.n = 5 + rnd.IntN(60) // of a hundred
	case "slow disk":
		s.n = 10 + rnd.IntN(2000) // ms; the watchdog barks at 3 s
		if rnd.IntN(4) == 0 {
			s.n = 4000
		}
	case "clock step":
		s.n = rnd.IntN(240_000) - 120_000 // ms
	case "sick resource", "hanging resource":
		s.n = 5 + rnd.IntN(60) // of a hundred
	case "rewind pipeline":
		s.n = 1 + rnd.IntN(3) // restore points back
	case "kill", "kill client", "restart pipeline":
		s.lasts = 0
	}
	return s
}

func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d nodes, a snapshot each %d entries, %d trailing, %d clients by hand\n", p.seed, p.nodes, p.tune.snapshots, p.tune.trailing, p.hands)
	for _, pl := range p.pipelines {
		fmt.Fprintf(&b, "pipeline %s: an epoch each %s, lease %s, %d pending, a record each %s, drained %t\n",
			pl.name, pl.interval, pl.lease, pl.maxPending, pl.every, pl.drain)
		for _, m := range pl.members {
			if windows, ok := pl.windows[m]; ok {
				fmt.Fprintf(&b, "    %s: %s\n", m, windows)
			}
			for _, r := range pl.resources[m] {
				fmt.Fprintf(&b, "    %s/%s: %s\n", m, r, pl.kinds[m+"/"+r])
			}
		}
	}
	for _, s := range p.strikes {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}
