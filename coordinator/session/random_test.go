package session

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// chaos is one random life: processes killed, paused, doubled and cut off, leaders that fall,
// proposals whose outcome is unknown. What comes out is atomic, and it goes on afterwards.
type chaos struct {
	*world
	r       *rand.Rand
	alive   map[string]*robot
	twins   []*robot
	members []string
	born    int
	led     bool
}

func TestRandomLivesAreAtomicAndComeToTheirStop(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomLife(t, seed) })
		})
	}
}

func randomLife(t *testing.T, seed uint64) {
	members := []string{"source", "window", "sink"}[:1+seed%3]
	c := &chaos{
		world: newWorld(t, members...), r: rand.New(rand.NewPCG(seed, 1)), alive: map[string]*robot{}, members: members, led: true,
	}
	for _, m := range members {
		c.bear(m)
	}
	for range 25 {
		time.Sleep(time.Duration(c.r.IntN(900)) * time.Millisecond) // of the bubble
		c.strike()
	}
	c.heal()
	at := c.newest()
	c.within(4*time.Minute, "epochs after all is healed", func() bool {
		g := c.newest()
		return g.Open && g.Final >= 2 && (g.Generation > at.Generation || g.Final >= at.Final+2)
	})
	c.desire(ledger.Stopping)
	c.within(time.Minute, "stopped", func() bool { return c.pipeline().Desired == ledger.Stopped })
	for _, r := range c.alive {
		<-r.gone
	}
	for _, r := range c.twins {
		r.die()
	}
	c.atomic()
	c.log.view(func(m *ledger.Machine) {
		if u, _ := m.ScopeOutstanding(scope0); len(u) > 0 {
			t.Errorf("stopped with %d branches unproven", len(u))
		}
		if err := m.Check(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d processes, %d leaders, %d generations, %d epochs decided", c.born, c.log.term, c.log.count("OpenGeneration"), c.log.count("Decide"))
	c.fall()
}

// bear starts a process for a member and puts it where the source sends its barriers.
func (c *chaos) bear(member string) *robot {
	c.born++
	r := &robot{w: c.world, member: member, instance: fmt.Sprintf("%s-%d", member, c.born)}
	c.alive[member] = r
	r.run()
	c.connect()
	return r
}

func (c *chaos) connect() {
	var down []*robot
	for _, m := range c.members[1:] {
		if r := c.alive[m]; r != nil {
			down = append(down, r)
		}
	}
	if s := c.alive[c.members[0]]; s != nil {
		s.set(func() { s.down = down })
	}
}

func (c *chaos) strike() {
	member := c.members[c.r.IntN(len(c.members))]
	r := c.alive[member]
	switch c.r.IntN(7) {
	case 0: // killed, and started again by its supervisor
		r.die()
		time.Sleep(time.Duration(c.r.IntN(4000)) * time.Millisecond) // of the bubble
		c.bear(member)
	case 1: // paused, perhaps longer than its lease
		r.sleep()
		time.Sleep(time.Duration(c.r.IntN(6000)) * time.Millisecond) // of the bubble
		r.wake()
		c.revive(member)
	case 2: // its connection breaks
		r.set(func() {
			if r.cut != nil {
				r.cut()
			}
		})
	case 3: // another process of that name, while the first is paused
		twin := &robot{w: c.world, member: member, instance: fmt.Sprintf("%s-twin-%d", member, c.born)}
		c.born++
		r.sleep()
		twin.run()
		time.Sleep(time.Duration(c.r.IntN(5000)) * time.Millisecond) // of the bubble
		r.wake()
		time.Sleep(100 * time.Millisecond) // of the bubble
		c.twins = append(c.twins, twin)
		c.settleTwin(member, r, twin)
	case 4: // the leader falls
		c.fall()
		time.Sleep(time.Duration(c.r.IntN(4000)) * time.Millisecond) // of the bubble
		c.lead()
	case 5:
		c.faults(c.r.IntN(2) == 0)
	case 6: // the log is slow
		c.log.mu.Lock()
		c.log.delay = time.Duration(1+c.r.IntN(500)) * time.Millisecond
		c.log.mu.Unlock()
	}
}

// settleTwin goes on with whoever has the name, and ends the other.
func (c *chaos) settleTwin(member string, r, twin *robot) {
	select {
	case <-r.gone:
		c.alive[member] = twin
		c.twins = c.twins[:len(c.twins)-1]
	default:
		twin.die()
	}
	c.connect()
	c.revive(member)
}

// revive starts a member again that was told to end.
func (c *chaos) revive(member string) {
	select {
	case <-c.alive[member].gone:
		c.bear(member)
	default:
	}
}

// faults switches on, or off, that every fifth outcome of the leader's proposals is unknown.
func (c *chaos) faults(on bool) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.log.fault = nil
	if !on {
		return
	}
	seed := c.r.Uint64()
	c.log.fault = func(cmd ledger.Command) (error, bool) {
		c.log.mu.Lock()
		defer c.log.mu.Unlock()
		seed = seed*6364136223846793005 + 1442695040888963407
		if cmd.Actor == "test" || seed>>60 > 3 {
			return nil, false
		}
		return errUnknown, seed>>59&1 == 0
	}
}

func (c *chaos) heal() {
	c.faults(false)
	c.log.mu.Lock()
	c.log.delay = time.Millisecond
	c.log.mu.Unlock()
	time.Sleep(2 * time.Second) // of the bubble
	for _, m := range c.members {
		c.revive(m)
	}
	if h := c.halted(); h != "" {
		c.admin(ledger.Resume{Scope: scope0, Why: "healed"})
	}
}

func (c *chaos) halted() (why string) {
	c.log.view(func(m *ledger.Machine) { why = m.Halted(scope0) })
	return why
}
