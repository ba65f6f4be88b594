package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

const (
	rhythm      = time.Second            // how often an epoch of the pipeline has something to commit
	triggerIn   = 4 * rhythm             // longest wait for a moment of the protocol
	freeze      = 400 * time.Millisecond // of the followers; under the leader's lease
	freezeTries = 4
	leaderAway  = time.Second     // a killed leader's
	leaderStill = 5 * time.Second // a stopped leader's
	decisionIn  = 90 * time.Second
	calmAfter   = 2200 * time.Millisecond
	// In form "all" many are killed sooner, and one in so many lives on.
	calmBetween = 300 * time.Millisecond
	calmEvery   = 5
	reachIn     = 8 * time.Second // longest wait for a fault point to be reached
	pointTries  = 6
	standbyFor  = 3 * time.Second // how long a woken zombie is watched
)

// act is one thing the nemesis does.
type act struct {
	what  string
	point string
}

func (a act) String() string {
	if a.point != "" {
		return "crash at " + a.point
	}
	return a.what
}

// do does one act. It returns once something was decided after it.
func (r *trial) do(ctx context.Context, a act) error {
	var err error
	if r.resolver != nil {
		err = r.resolver.revive()
	}
	if err != nil {
		return err
	}
	switch a.what {
	case killAtPoint:
		err = r.crashAt(ctx, a.point)
	case killPipeline:
		err = r.strikePipeline(ctx)
	case stopPipeline:
		err = r.stopPipeline(ctx)
	case killBroker:
		// Most often while commits are under way: that is what can tear one.
		err = r.killBroker(ctx, []trigger{onDecision, onDecision, onDecision, onVote, anytime}[r.rng.IntN(5)])
	case killLeader:
		err = r.killLeader(ctx, trigger(1+r.rng.IntN(2)))
	case killDatabase:
		err = r.killDatabase(ctx, trigger(r.rng.IntN(3)))
	case killResolver:
		err = r.killResolver(ctx, trigger(r.rng.IntN(3)))
	case stopLeader:
		err = r.stopLeader(ctx, trigger(1+r.rng.IntN(2)))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	return r.awaitDecision(ctx, a.String())
}

// awaitDecision waits until an epoch is decided that was not when it was called, by a generation
// that has lived long enough not to count as one that failed at once: ten of those in a row halt the
// scope, as they should.
func (r *trial) awaitDecision(ctx context.Context, after string) error {
	since := time.Now()
	r.done.acts++
	calm := calmAfter
	if r.c.Sinks == allSinks && r.done.acts%calmEvery != 0 {
		calm = calmBetween
	}
	return rig.Await(ctx, decisionIn, "a decision after: "+after, func() error {
		if err := r.line.update(); err != nil {
			return err
		}
		if r.line.decidedIn(since, time.Now()) == 0 {
			return errors.New("none was logged")
		}
		if age := r.line.age(time.Now()); age < calm {
			return fmt.Errorf("the generation is %s old, wanted %s", age, calm)
		}
		return nil
	})
}

// at waits for a moment and calls hit in it. A vote is caught by stopping the followers, so that
// the leader has votes and no majority to write the decision; a decision is caught as it is told.
func (r *trial) at(ctx context.Context, when trigger, hit func(leader *node) error) error {
	leader, followers, err := r.group.leader(ctx)
	if err != nil {
		return err
	}
	if when != onVote {
		if _, err := r.watch.wait(ctx, when, triggerIn); err != nil {
			return err
		}
		return hit(leader) // if nothing was seen, then at any time
	}
	for try := 1; ; try++ {
		if _, err := r.watch.wait(ctx, onVote, triggerIn); err != nil {
			return err
		}
		if err := rig.Sleep(ctx, rhythm-freeze/2); err != nil {
			return err
		}
		done, err := r.frozen(ctx, leader, followers, try == freezeTries, hit)
		if done || err != nil {
			return err
		}
		if err := rig.Sleep(ctx, rhythm/2); err != nil {
			return err
		}
		if leader, followers, err = r.group.leader(ctx); err != nil {
			return err
		}
	}
}

// frozen calls hit when a vote comes in while the followers stand still, or in any case.
func (r *trial) frozen(ctx context.Context, leader *node, followers []*node, anyway bool, hit func(*node) error) (done bool, err error) {
	defer func() {
		for _, f := range followers {
			err = errors.Join(err, f.process().Signal(syscall.SIGCONT))
		}
	}()
	for _, f := range followers {
		if err := f.process().Signal(syscall.SIGSTOP); err != nil {
			return false, err
		}
	}
	seen, err := r.watch.wait(ctx, onVote, freeze)
	if err != nil || (!seen && !anyway) {
		return false, err
	}
	return true, hit(leader)
}

func (r *trial) record(s strike) {
	r.mu.Lock()
	r.strikes = append(r.strikes, s)
	r.mu.Unlock()
}

func (r *trial) killPipeline(ctx context.Context, when trigger) error {
	l, err := r.killRun(ctx, when)
	if err != nil {
		return err
	}
	_, err = r.worker.after(ctx, l)
	return err
}

// strikePipeline kills the pipeline at a moment. In form "all" every third kill is aimed between two branches of one
// epoch instead: the process dies by itself at a fault point.
func (r *trial) strikePipeline(ctx context.Context) error {
	switch {
	case r.c.Sinks != allSinks:
		return r.killPipeline(ctx, trigger(r.rng.IntN(3)))
	case r.rng.IntN(3) > 0:
		return r.killPipeline(ctx, []trigger{onVote, onVote, onDecision, anytime}[r.rng.IntN(4)])
	}
	deaths := append(r.c.deaths(false), "file/after-stage", "kafka/after-flush", "postgres/after-prepare")
	death := deaths[r.rng.IntN(len(deaths))]
	r.worker.plan(fmt.Sprintf("%s@%d=crash", death, 2+r.rng.IntN(4)))
	l := r.worker.current()
	if err := l.leave(ctx); err != nil {
		return err
	}
	return r.awaitCrash(ctx, l, death)
}

// killRun kills the run that there is when the moment comes, and returns it.
func (r *trial) killRun(ctx context.Context, when trigger) (l *life, err error) {
	err = r.at(ctx, when, func(*node) error {
		l = r.worker.current()
		at, err := l.kill()
		r.record(strike{What: killPipeline, At: at})
		return err
	})
	return l, err
}

// crashAt lets the next run of the pipeline die at a point. The present one is killed, or asked to
// leave; when the point was not reached, it is tried again behind a run that died between its vote
// and the end of its branches, for there are points that only such a death leads to.
func (r *trial) crashAt(ctx context.Context, point string) (err error) {
	if strings.HasSuffix(point, "-drop") && r.resolver != nil {
		// It would be the first to drop what a dead process has left.
		if err := r.resolver.proc.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.resolver.proc.Signal(syscall.SIGCONT)) }()
	}
	for try := 1; try <= pointTries; try++ {
		before, err := r.hits(point)
		if err != nil {
			return err
		}
		hit := 1
		if try == 1 {
			hit += r.rng.IntN(3)
		}
		var l *life
		plan := fmt.Sprintf("%s@%d=crash", point, hit)
		if try > 1 {
			l, err = r.prime(ctx, plan, try%2 == 0)
		} else {
			r.worker.plan(plan)
			l, err = r.endRun(ctx)
		}
		if err != nil {
			return err
		}
		if err := r.awaitCrash(ctx, l, point); err != nil {
			return err
		}
		after, err := r.hits(point)
		if err != nil || after > before {
			return err
		}
		if err := r.awaitDecision(ctx, "looking for "+point); err != nil {
			return err
		}
	}
	return nil // the report names it as missing
}

// endRun ends a run by a kill at some moment, or as an operator would.
func (r *trial) endRun(ctx context.Context) (*life, error) {
	if r.rng.IntN(3) == 0 {
		l := r.worker.current()
		return l, l.leave(ctx)
	}
	return r.killRun(ctx, trigger(r.rng.IntN(3)))
}

// prime ends a run, lets the next one die in the middle of an epoch, before its vote or after the
// decision, and gives the one after it the plan. It returns the run that died.
func (r *trial) prime(ctx context.Context, plan string, beforeVote bool) (*life, error) {
	deaths := r.c.deaths(beforeVote)
	death := deaths[r.rng.IntN(len(deaths))]
	r.worker.plan(death + "@2=crash")
	l := r.worker.current()
	if err := l.leave(ctx); err != nil {
		return nil, err
	}
	l, err := r.worker.after(ctx, l)
	if err != nil {
		return nil, err
	}
	r.worker.plan(plan)
	return l, r.awaitDeath(ctx, l, death)
}

// awaitCrash waits until the run after l has crashed as planned. One that does not reach its point
// is asked to leave, so that it is not hit by the plan later.
func (r *trial) awaitCrash(ctx context.Context, l *life, point string) error {
	next, err := r.worker.after(ctx, l)
	if err != nil {
		return err
	}
	if err := r.awaitDeath(ctx, next, point); err != nil {
		return err
	}
	_, err = r.worker.after(ctx, next)
	return err
}

func (r *trial) awaitDeath(ctx context.Context, l *life, point string) error {
	t := time.NewTimer(reachIn)
	defer t.Stop()
	select {
	case <-l.proc.Done():
		if killed(l.proc.Err()) {
			r.record(strike{What: killAtPoint, Point: point, At: time.Now()})
		}
		return nil
	case <-t.C:
		return l.leave(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *trial) hits(point string) (int, error) {
	all, _, err := crashes(r.worker.log)
	return all[point], err
}

// stopPipeline stops the process right after a decision for longer than any lease. Every second
// time another takes its place meanwhile, and it wakes as a zombie.
func (r *trial) stopPipeline(ctx context.Context) error {
	var l *life
	err := r.at(ctx, onDecision, func(*node) error {
		l = r.worker.current()
		r.record(strike{What: stopPipeline, At: time.Now(), AwayMS: r.c.Pause.Milliseconds()})
		return l.proc.Signal(syscall.SIGSTOP)
	})
	if err != nil {
		return err
	}
	r.done.zombies++
	replaced := r.done.zombies%2 == 0
	if replaced {
		l.expect()
		l.letGo()
	}
	if err := rig.Sleep(ctx, r.c.Pause); err != nil {
		return errors.Join(err, l.proc.Kill())
	}
	if err := l.proc.Signal(syscall.SIGCONT); err != nil || !replaced {
		return err
	}
	// It must not disturb its successor, and does not get to be asked: after a while it is killed.
	if err := rig.Sleep(ctx, standbyFor); err != nil {
		return errors.Join(err, l.proc.Kill())
	}
	at, err := l.kill()
	r.record(strike{What: killPipeline, Point: "woken after it was replaced", At: at})
	return err
}

func (r *trial) killBroker(ctx context.Context, when trigger) error {
	b := r.kafka.Broker(1)
	err := r.at(ctx, when, func(*node) error {
		at := time.Now()
		r.record(strike{What: killBroker, At: at})
		return b.Kill()
	})
	if err != nil {
		return err
	}
	r.done.brokers++
	if err := rig.Sleep(ctx, time.Duration(r.rng.Int64N(int64(3*time.Second)))); err != nil {
		return err
	}
	return b.Restart(ctx)
}

func (r *trial) killLeader(ctx context.Context, when trigger) error {
	err := r.at(ctx, when, func(leader *node) error {
		r.record(strike{What: killLeader, At: time.Now()})
		return leader.process().Kill()
	})
	if err != nil {
		return err
	}
	if err := rig.Sleep(ctx, leaderAway); err != nil {
		return err
	}
	return r.group.revive()
}

func (r *trial) stopLeader(ctx context.Context, when trigger) error {
	var p *child.Process
	err := r.at(ctx, when, func(leader *node) error {
		p = leader.process()
		r.record(strike{What: stopLeader, At: time.Now(), AwayMS: leaderStill.Milliseconds()})
		return p.Signal(syscall.SIGSTOP)
	})
	if err != nil {
		return err
	}
	err = rig.Sleep(ctx, leaderStill)
	return errors.Join(err, p.Signal(syscall.SIGCONT))
}
