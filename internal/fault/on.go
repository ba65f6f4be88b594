//go:build faults

package fault

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// Enabled reports whether this build has fault points.
const Enabled = true

// ErrInjected is in the chain of every error that Err returns by plan. Only tests ask for
// it; it exists in builds with -tags faults alone, so no other code can come to depend on it.
var ErrInjected = errors.New("injected fault")

// points is what the process knows about its fault points. It is the one package variable
// here that changes: a point must be reachable from anywhere without being handed in.
var points struct {
	load sync.Once

	mu   sync.Mutex // guards what follows; never held while an action or a hook runs
	plan []rule
	bad  error
	hits map[string]uint64
	hook func(name string) error
}

// Point is a place where the process may die or stall. It returns when nothing was to happen
// here, or when a pause is over. Safe for concurrent use.
func Point(name string) {
	if err := reach(name); err != nil {
		panic(fmt.Sprintf("fault.Point(%q) was told to fail, but a point returns no error: "+
			"use crash or pause here, or name a fault.Err", name))
	}
}

// Err is a place where the process may die or stall, or be told that the step failed: then
// the error says so, and the caller must treat it as it would the step's own error. Safe for
// concurrent use.
func Err(name string) error { return reach(name) }

// Set puts a hook in the place of the environment's plan and starts counting afresh. Every
// point calls it, from its own goroutine, with its name; what it returns is what [Err]
// returns, and a [Point] panics on it. The returned function takes the hook away again; hooks
// do not nest, and Set panics if one is set already.
func Set(hook func(name string) error) (restore func()) {
	points.mu.Lock()
	defer points.mu.Unlock()
	if points.hook != nil {
		panic("fault.Set: a hook is set already; tests that use fault points do not run in parallel")
	}
	points.hook = hook
	points.hits = nil
	return func() {
		points.mu.Lock()
		defer points.mu.Unlock()
		points.hook = nil
	}
}

// Names returns the names of the points reached since the last Set (or since the process
// started), sorted, so that a test can crash at each of them in turn.
func Names() []string {
	points.mu.Lock()
	defer points.mu.Unlock()
	names := make([]string, 0, len(points.hits))
	for name := range points.hits {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// reach counts the hit and does what the hook or the plan asks for.
func reach(name string) error {
	points.load.Do(func() {
		plan, err := parse(os.Getenv(Env))
		points.mu.Lock()
		defer points.mu.Unlock()
		points.plan, points.bad = plan, err
	})

	points.mu.Lock()
	if points.hits == nil {
		points.hits = make(map[string]uint64)
	}
	points.hits[name]++
	hit, hook, plan, bad := points.hits[name], points.hook, points.plan, points.bad
	points.mu.Unlock()

	if hook != nil {
		return hook(name)
	}
	if bad != nil {
		panic(bad.Error())
	}
	for _, r := range plan {
		if r.name != name || (r.hit != 0 && r.hit != hit) {
			continue
		}
		if err := r.act(hit); err != nil {
			return err
		}
	}
	return nil
}

// act does what the rule says, and returns an error for an injected one alone.
func (r rule) act(hit uint64) error {
	fmt.Fprintf(os.Stderr, "fault: %s at %s, hit %d\n", r.action, r.name, hit)
	switch r.action {
	case crash:
		die()
	case pause:
		time.Sleep(r.pause)
	case fail:
		return fmt.Errorf("%w at %s", ErrInjected, r.name)
	case actionUnset:
	}
	return nil
}

// die ends the process at once and never returns. Kill is used rather than os.Exit, because
// Exit would still run what the runtime has registered (coverage files, for one).
func die() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		os.Exit(137)
	}
	select {} // until the signal arrives
}
