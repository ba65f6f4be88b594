package sim_test

import (
	"context"
	"strings"
	"time"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// minority takes one node away for a while, with nothing else being wrong: calls must be answered.
func (w *world) minority(ctx context.Context) {
	id := w.role("leader")
	w.hist.Add(check.Event{Who: id, Kind: check.Minority, Text: id})
	w.nodes.crash(id)
	pause(ctx, 10*time.Second)
	w.hist.Add(check.Event{Who: id, Kind: check.MinorityEnd})
	w.nodes.start(id)
}

// storm carries out the plan's faults.
func (w *world) storm(ctx context.Context) {
	began := time.Now()
	for _, s := range w.plan.strikes {
		if d := s.at - time.Since(began); d > 0 {
			pause(ctx, d)
		}
		if s.aim != "" {
			w.await(s.aim)
		}
		w.strike(ctx, s)
	}
	pause(ctx, 2*time.Second)
}

// role fills a role by the node that has it now.
func (w *world) role(who string) string {
	leader := w.watch.leader()
	if leader == "" {
		leader = w.nodes.ids[0]
	}
	switch who {
	case "leader":
		return leader
	case "follower":
		rest := others(w.nodes.ids, leader)
		return rest[w.draw(len(rest))]
	}
	return who
}

// strike carries out one fault, and has it undone when its time is over or all is to be calm.
func (w *world) strike(ctx context.Context, s strike) {
	who := w.role(s.who)
	text := s.kind + " " + who
	if s.lasts > 0 {
		text += " for " + s.lasts.String()
	}
	e := check.Event{Who: who, Kind: check.Fault, Fault: s.kind, InRound: w.rounds.open(), Text: text}
	if e.Who == "" {
		e.Who = "run"
	}
	w.hist.Add(e)
	undo := w.apply(ctx, s, who)
	if undo == nil {
		return
	}
	w.undoing.Go(func() {
		select {
		case <-time.After(s.lasts):
		case <-w.calm:
		}
		undo()
		w.say(e.Who, "%s is over", s.kind)
	})
}

func (w *world) apply(ctx context.Context, s strike, who string) func() {
	switch {
	case strings.HasPrefix(who, "hand"):
		return w.applyHand(s, who)
	case strings.HasSuffix(s.kind, "pipeline"):
		w.undoing.Go(func() { w.applyPipeline(ctx, s, who) })
		return nil
	}
	for _, x := range w.seats {
		if x.id() == who {
			return w.applySeat(s, x)
		}
	}
	return w.applyNode(s, who)
}

// ruled sets a rule on some directions and returns what takes it away.
func (w *world) ruled(r rule, ways ...way) func() {
	for _, x := range ways {
		w.nodes.net.set(x, r)
	}
	return func() {
		for _, x := range ways {
			w.nodes.net.set(x, rule{})
		}
	}
}

func (w *world) applyNode(s strike, id string) func() {
	percent := rule{}
	ms := time.Duration(s.n) * time.Millisecond
	out, in := way{true, id, "*"}, way{true, "*", id}
	toClients, fromClients := way{false, id, "*"}, way{false, "*", id}
	switch s.kind {
	case "crash":
		w.nodes.crash(id)
		return func() { w.revive(id) }
	case "crash all":
		for _, x := range w.nodes.ids {
			w.nodes.crash(x)
		}
		return func() {
			for _, x := range w.nodes.ids {
				w.revive(x)
			}
		}
	case "cut":
		return w.ruled(rule{cut: true}, out, in, toClients, fromClients)
	case "cut from nodes":
		return w.ruled(rule{cut: true}, out, in)
	case "cut from clients":
		return w.ruled(rule{cut: true}, toClients, fromClients)
	case "one way out":
		return w.ruled(rule{cut: true}, out, toClients)
	case "one way in":
		return w.ruled(rule{cut: true}, in, fromClients)
	case "slow net":
		return w.ruled(rule{delay: ms}, out, in, toClients, fromClients)
	case "lose answers":
		percent.lose = s.n
		return w.ruled(percent, out, in, toClients)
	case "repeat messages":
		percent.repeat = s.n
		return w.ruled(percent, out, in)
	case "slow disk":
		d := w.nodes.all[id].disk
		d.slow(ms)
		return func() { d.slow(0); w.revive(id) }
	case "full disk":
		d := w.nodes.all[id].disk
		d.fill(true)
		return func() { d.fill(false); w.revive(id) }
	case "clock step":
		w.nodes.step(id, ms)
		return func() { w.nodes.step(id, 0) }
	}
	w.complain("nobody knows the fault %q", s.kind)
	return nil
}

// revive starts a node that its supervisor finds dead.
func (w *world) revive(id string) {
	for range 100 {
		if w.nodes.start(id) {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (w *world) applySeat(s strike, x *seat) func() {
	out, in := way{false, x.id(), "*"}, way{false, "*", x.id()}
	switch s.kind {
	case "kill":
		x.kill()
		return nil
	case "cut member":
		return w.ruled(rule{cut: true}, out, in)
	case "mute member":
		return w.ruled(rule{cut: true}, out)
	case "deafen member":
		return w.ruled(rule{cut: true}, in)
	case "slow member":
		return w.ruled(rule{delay: time.Duration(s.n) * time.Millisecond}, out, in)
	case "lose member's answers":
		return w.ruled(rule{lose: s.n}, in)
	case "sick resource", "hanging resource":
		x.setHook(w.faulty(s.n, s.kind == "hanging resource"))
		return func() { x.setHook(nil) }
	}
	w.complain("nobody knows the fault %q", s.kind)
	return nil
}

func (w *world) applyHand(s strike, who string) func() {
	for _, h := range w.hands {
		if h.name != who {
			continue
		}
		if s.kind == "kill client" {
			h.kill()
			return nil
		}
		return w.ruled(rule{cut: true}, way{false, who, "*"}, way{false, "*", who})
	}
	return nil
}

// applyPipeline stops a pipeline, may set it back, and starts it again: what an operator does, while
// everything else is going on.
func (w *world) applyPipeline(ctx context.Context, s strike, name string) {
	for _, pl := range w.plan.pipelines {
		if pl.name == name {
			w.desire(ctx, name, pl.atStop())
		}
	}
	defer w.desire(ctx, name, unisinkv1.DesiredState_DESIRED_STATE_RUNNING)
	closed := false
	var st *unisinkv1.ScopeStatus
	for range 100 {
		if st = w.status(ctx, name); st != nil && !st.GetOpen() {
			closed = true
			break
		}
		select {
		case <-w.calm:
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
	points := st.GetRestorePoints()
	if s.kind != "rewind pipeline" || !closed || len(points) == 0 {
		return
	}
	// Of two rewinds at once the answers may come in another order than the log has them, and nobody could tell which
	// was the last.
	w.rewinding <- struct{}{}
	defer func() { <-w.rewinding }()
	to := points[max(0, len(points)-1-s.n)].GetEpoch()
	meta := w.operator.NewMeta()
	err := w.patiently(ctx, time.Minute, func(ctx context.Context) error {
		_, err := w.operator.Pipelines().Rewind(ctx, &unisinkv1.RewindRequest{Meta: meta, Scope: st.GetScope(), RestorePoint: to, Why: "simulated"})
		return err
	})
	if err != nil {
		w.say("operator", "%s is not set back: %v", name, err)
		return
	}
	w.hist.Add(check.Event{Who: "operator", Kind: check.Rewound, Branch: check.Branch{
		Scope: name + "/0", Epoch: check.Epoch{Generation: to.GetGeneration(), N: to.GetN()},
	}})
}
