package resolver_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/participant/resolver"
)

// point is a call of the killed process: the n-th of its kind, before or after its effect.
type point struct {
	call participanttest.Call
	when participanttest.When
	n    int
}

func (p point) String() string {
	when := "before"
	if p.when == participanttest.After {
		when = "after"
	}
	return fmt.Sprintf("%s_%s_%d", when, p.call, p.n)
}

// points are all steps of the member's work, several epochs into it.
func points() []point {
	var all []point
	for _, call := range []participanttest.Call{participanttest.CallOpen, participanttest.CallList, participanttest.CallBegin, participanttest.CallPrepare, participanttest.CallCommit} {
		for _, when := range []participanttest.When{participanttest.Before, participanttest.After} {
			for _, n := range []int{1, 2, 6} {
				if (call == participanttest.CallOpen || call == participanttest.CallList) && n > 2 {
					continue // once per resource, and twice
				}
				all = append(all, point{call, when, n})
			}
		}
	}
	return all
}

// Rows L1, L2, S3. The only process of a pipeline is killed for good at each of its steps. A resolver that was there
// has finished everything within the lease and a second; two resolvers beside each other do so as well. With -short one and
// two take turns from step to step.
func TestL1_L2_S3_WhatADeadPipelineLeftIsFinishedInTime(t *testing.T) {
	var longest atomic.Int64
	for i, at := range points() {
		for resolvers := 1; resolvers <= 2; resolvers++ {
			if testing.Short() && resolvers != 1+i%2 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", at, resolvers), func(t *testing.T) {
				bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
					for i := range resolvers {
						r.resolve(func(c *resolver.Config) { c.Name = fmt.Sprint("r", i) })
					}
					p := r.start(killedAt(at))
					r.until(20*time.Second, "the process came to its end", p.isDead)
					took := r.within(lease+time.Second, "everything is finished", r.left)
					r.ordered()
					for old := longest.Load(); took.Nanoseconds() > old && !longest.CompareAndSwap(old, took.Nanoseconds()); old = longest.Load() {
					}
				})
			})
		}
	}
	t.Logf("the longest took %s (virtual time), of %s that are allowed", time.Duration(longest.Load()), lease+time.Second)
}

// killedAt kills the process at a step.
func killedAt(at point) func(*process, participanttest.Call, participanttest.When) error {
	var mu sync.Mutex
	n := 0
	return func(p *process, call participanttest.Call, when participanttest.When) error {
		mu.Lock()
		defer mu.Unlock()
		if call == at.call && when == at.when {
			if n++; n == at.n {
				p.kill()
			}
		}
		return nil
	}
}

// A resolver that comes later needs a second, since the lease is over by then.
func TestL1_AResolverThatComesLaterFinishesAtOnce(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		p := r.start(killedAt(point{participanttest.CallPrepare, participanttest.After, 5}))
		r.until(20*time.Second, "the process came to its end", p.isDead)
		time.Sleep(5 * lease)
		if r.left() == "" {
			t.Fatal("the dead process has left nothing: this shows nothing")
		}
		r.resolve(nil)
		r.within(time.Second, "everything is finished", r.left)
		r.ordered()
	})
}

// Row P6. Two decided epochs are left unfinished in each resource.
func TestP6_EpochsOfAMemberAreFinishedInOrder(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		expired := &atomic.Bool{}
		r.stuck(expired).kill()
		r.resolve(nil)
		r.within(lease+time.Second, "everything is finished", r.left)
		r.ordered()
		if r.commits("out") != 2 {
			t.Fatalf("%d epochs were committed, 2 were decided: this shows nothing", r.commits("out"))
		}
	})
}

// stuck is a process whose commits fail, with as many decided epochs as may be pending.
func (r *rig) stuck(expired *atomic.Bool) *process {
	r.Helper()
	expired.Store(true)
	p := r.start(func(_ *process, call participanttest.Call, when participanttest.When) error {
		if expired.Load() && call == participanttest.CallCommit && when == participanttest.Before {
			return fmt.Errorf("the credentials have expired")
		}
		return nil
	})
	r.until(20*time.Second, "two epochs are decided and not finished", func() bool { return strings.Count(r.left(), "duty ") == 4 })
	return p
}

// A member that lives and cannot finish is helped after a while, and not before.
func TestS5_AMemberThatIsStuckIsHelped(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		expired := &atomic.Bool{}
		r.stuck(expired)
		r.resolve(nil)
		time.Sleep(20 * time.Second)
		if n := r.commits("out"); n > 0 {
			t.Fatalf("%d branches were taken out of the hands of a living member", n)
		}
		r.until(15*time.Second, "the resolver helps", func() bool { return r.commits("out") >= 2 && r.commits("dir") >= 2 })
		expired.Store(false)
		r.until(time.Minute, "the pipeline goes on once the member can work again", func() bool { _, final := r.newest(); return final > 2 })
	})
}

// A resolver is killed at each of its own steps; the next one does the rest.
func TestAResolverThatDiesHalfWayLeavesTheRestToTheNext(t *testing.T) {
	for n := 1; n <= 12; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
				r.stuck(&atomic.Bool{}).kill()
				var steps atomic.Int64
				died := make(chan struct{})
				first := r.resolve(func(c *resolver.Config) {
					for i := range c.Resources {
						m := c.Resources[i].Finisher.(*participanttest.Memory)
						m.SetHook(func(context.Context, participanttest.Call, participanttest.When, string) error {
							if steps.Add(1) == int64(n) {
								close(died)
							}
							if steps.Load() >= int64(n) {
								m.Crash()
							}
							return nil
						})
					}
				})
				select {
				case <-died:
				case <-time.After(10 * time.Second):
				}
				first.stop()
				r.resolve(func(c *resolver.Config) { c.Name = "second" })
				r.within(lease+time.Second, "everything is finished", r.left)
				r.ordered()
			})
		})
	}
}

// The leader is cut off just after the process died.
func TestAChangeOfTheLeaderHoldsUpNothingForLong(t *testing.T) {
	bubble(t, 3, 200*time.Millisecond, func(t *testing.T, r *rig) {
		r.resolve(nil)
		p := r.start(killedAt(point{participanttest.CallPrepare, participanttest.After, 6}))
		r.until(20*time.Second, "the process came to its end", p.isDead)
		r.Isolate(r.Leader())
		r.within(15*time.Second, "everything is finished", r.left)
		r.ordered()
	})
}

// Row P13, L3. A branch is prepared after everything was swept and paid.
func TestL3_P13_ALatePrepareIsFoundWithinTheSweepInterval(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		r.resolve(nil)
		p := r.start(killedAt(point{participanttest.CallCommit, participanttest.After, 5}))
		r.until(20*time.Second, "the process came to its end", p.isDead)
		r.within(lease+time.Second, "everything is finished", r.left)
		time.Sleep(10 * time.Second)
		g, final := r.newest()
		r.stores["out"].Plant(r.branch(g, final+1, "out"), "late")
		took := r.within(sweepInterval+time.Second, "the late branch is gone", r.left)
		t.Logf("it took %s", took)
		r.ordered()
	})
}

// Row L3. What is being prepared while a debt's first listing is made shows in its second.
func TestL3_ADebtIsPaidAfterTwoListings(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		p := r.start(killedAt(point{participanttest.CallCommit, participanttest.After, 5}))
		r.until(20*time.Second, "the process came to its end", p.isDead)
		time.Sleep(2 * lease)
		g, final := r.newest()
		r.resolve(func(c *resolver.Config) {
			m := c.Resources[0].Finisher.(*participanttest.Memory)
			listed := 0
			m.SetHook(func(_ context.Context, call participanttest.Call, when participanttest.When, _ string) error {
				if call == participanttest.CallList && when == participanttest.After {
					if listed++; listed == 1 {
						r.stores["out"].Plant(r.branch(g, final+1, "out"), "in time for the second")
					}
				}
				return nil
			})
		})
		r.within(2*time.Second, "everything is finished", r.left)
		r.ordered()
	})
}
