package participant_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/participant/participanttest"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds the random runs take; 0 is 12, or 4 with -short")
	seed  = flag.Uint64("seed", 0, "replay this seed alone")
)

// howMany is how many seeds the random runs take. The race detector, under which the short run is made, finds a race in
// whichever seed comes by it; what a plan of faults does to the records needs many, and is looked for without the detector.
func howMany() int {
	switch {
	case *seeds > 0:
		return *seeds
	case testing.Short():
		return 4
	}
	return 12
}

// Two members under whatever may happen to them, to their resource and to the leader. At the end
// every record is there once and in order, and nothing is left.
func TestRandomFaultsLoseAndDoubleNothing(t *testing.T) {
	for i := range howMany() {
		s := uint64(i + 1)
		if *seed != 0 {
			s = *seed
		}
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) { bubble(t, func(t *testing.T) { chaos(t, s) }) })
		if *seed != 0 {
			return
		}
	}
}

// turmoil is one random run.
type turmoil struct {
	t     *testing.T
	rnd   *rand.Rand
	g     *group
	store *participanttest.Store
	names []string
	ps    []*process
	story []string
}

func chaos(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	set := ledger.Settings{EpochInterval: 20 + rnd.Int64N(200), PrepareTimeout: 2000, MaxPending: uint32(1 + rnd.IntN(3)), Lease: 1500}
	c := &turmoil{t: t, rnd: rnd, store: participanttest.NewStore("s"), names: []string{"one", "two"}}
	if rnd.IntN(3) == 0 {
		c.names = c.names[:1]
	}
	c.g = newGroup(t, set, c.names...)
	for _, name := range c.names {
		c.ps = append(c.ps, c.g.run(name, c.store, nil))
	}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, settings %+v\n%q", seed, set, c.story)
		}
	}()
	for range 25 {
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		c.act()
	}
	c.calm()
	// The scope may have to wait for its next generation: up to a minute after many barren ones.
	before := len(c.store.Records())
	within(t, 3*time.Minute, "it goes on when all is calm", func() bool { return len(c.store.Records()) > before+20*len(c.names) })
	c.g.desire(ledger.Stopping)
	var errs []error
	for _, p := range c.ps {
		errs = append(errs, p.wait(t, 20*time.Second))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("run: %v", err)
	}
	for _, name := range c.names {
		exactlyOnce(t, c.store, name, 10)
	}
	inOrder(t, c.store)
	if left := c.store.Prepared(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func (c *turmoil) say(format string, args ...any) {
	c.story = append(c.story, fmt.Sprintf(format, args...))
}

// act does one bad thing, or ends one.
func (c *turmoil) act() {
	i := c.rnd.IntN(len(c.ps))
	p := c.ps[i]
	switch c.rnd.IntN(9) {
	case 0:
		c.say("kill %s", p.name)
		p.kill()
		c.ps[i] = c.g.run(p.name, c.store, nil)
	case 1:
		c.say("tell %s to go", p.name)
		p.cancel()
		<-p.done
		c.ps[i] = c.g.run(p.name, c.store, nil)
	case 2:
		c.say("cut %s", p.name)
		p.wire.cut()
	case 3, 4:
		c.say("heal %s", p.name)
		p.wire.heal()
		p.memory.SetHook(nil)
	case 5, 6:
		addr := addresses()[c.rnd.IntN(3)]
		c.say("let %s lead", addr)
		c.g.lead(addr)
	case 7:
		c.say("nobody leads")
		c.g.fall()
		time.Sleep(time.Duration(c.rnd.IntN(3000)) * time.Millisecond)
		c.g.lead(addresses()[c.rnd.IntN(3)])
	case 8:
		odds, hang := c.rnd.IntN(60), c.rnd.IntN(2) == 0
		c.say("%s's resource fails %d in 100, hangs %t", p.name, odds, hang)
		p.memory.SetHook(faulty(rand.New(rand.NewPCG(c.rnd.Uint64(), 2)), odds, hang))
	}
	// A process that was found out of the group has ended; its supervisor starts another.
	for i, p := range c.ps {
		select {
		case <-p.done:
			c.say("%s ended: %v", p.name, p.err)
			c.ps[i] = c.g.run(p.name, c.store, nil)
		default:
		}
	}
}

func (c *turmoil) calm() {
	c.say("calm")
	c.g.lead("a:1")
	for i, p := range c.ps {
		p.wire.heal()
		p.memory.SetHook(nil)
		select {
		case <-p.done:
			c.ps[i] = c.g.run(p.name, c.store, nil)
		default:
		}
	}
}

// faulty fails so many calls in a hundred, before or after their effect, some of them late. What
// it draws is drawn under a lock; it waits outside of it, for a lock also holds virtual time.
func faulty(rnd *rand.Rand, odds int, hang bool) participanttest.Hook {
	var mu sync.Mutex // guards rnd
	draw := func() (fails, late bool) {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(100) < odds, hang && rnd.IntN(10) == 0
	}
	return func(ctx context.Context, _ participanttest.Call, _ participanttest.When, _ string) error {
		fails, late := draw()
		if !fails {
			return nil
		}
		if late {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
		return errors.New("injected")
	}
}
