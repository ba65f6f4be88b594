package session

import (
	"slices"
	"strings"
	"sync"

	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// resource is what a member's processes write to. It outlives them, and fences.
type resource struct {
	mu     sync.Mutex
	fenced uint64
	state  map[string]string // name -> prepared, committed, rolled back
	broken []string
}

func (w *world) resource(member string) *resource {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out[member] == nil {
		w.out[member] = &resource{state: map[string]string{}}
	}
	return w.out[member]
}

// prepare keeps a branch; false: a newer generation has fenced this one.
func (x *resource) prepare(name string, gen uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if gen < x.fenced {
		return false
	}
	if x.state[name] == "" {
		x.state[name] = "prepared"
	}
	return true
}

func (x *resource) finish(name, how string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if was := x.state[name]; was == "committed" && how != was || was == "rolled back" && how != was {
		x.broken = append(x.broken, name+" was "+was+", then "+how)
	}
	x.state[name] = how
}

// restore fences, commits what is listed and rolls back the rest of older generations.
func (x *resource) restore(gen uint64, listed []*unisinkv1.Unfinished) {
	x.mu.Lock()
	x.fenced = max(x.fenced, gen)
	var dead []string
	for name, how := range x.state {
		if how == "prepared" && generationOf(name) < gen {
			dead = append(dead, name)
		}
	}
	x.mu.Unlock()
	for _, u := range listed {
		name := u.GetHandle().GetName()
		x.finish(name, "committed")
		dead = slices.DeleteFunc(dead, func(d string) bool { return d == name })
	}
	for _, name := range dead {
		x.finish(name, "rolled back")
	}
}

func generationOf(name string) uint64 { e := epochOf(name); return uint64(e.Generation) }

// epochOf reads the epoch from a branch's name, "test.member.7.12".
func epochOf(name string) ledger.Epoch {
	_, rest, _ := strings.Cut(name, ".")
	_, rest, _ = strings.Cut(rest, ".")
	e, err := ledger.ParseEpoch(rest)
	if err != nil {
		panic(err)
	}
	return e
}

// atomic checks the promise: what any member committed is decided, what is decided nobody rolled
// back, and nothing goes both ways.
func (w *world) atomic() {
	w.t.Helper()
	for _, member := range sortedNames(w.out) {
		x := w.resource(member)
		x.mu.Lock()
		for _, b := range x.broken {
			w.t.Error(b)
		}
		for _, name := range sortedNames(x.state) {
			var o ledger.Outcome
			w.log.view(func(m *ledger.Machine) { o = m.EpochOutcome(scope0, epochOf(name)) })
			if how := x.state[name]; how == "committed" && o != ledger.Committed || how == "rolled back" && o != ledger.Aborted {
				w.t.Errorf("branch %s is %s, its epoch is %s", name, how, o)
			}
		}
		x.mu.Unlock()
	}
}

// sortedNames of what a map holds.
func sortedNames[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
