package ledger

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The explorer walks every order of events of small cases, breadth first, with the real machine.
// Around it stand the least of everything else: two members with a resource each, leaders that
// propose from what they have seen, a log that applies their proposals late, twice or never,
// resolvers, operators. After every step the promises are checked; from every state a fair run
// must come to an end in which each decided epoch is in both resources.

// bounds of a case. The zero value allows nothing but opening, deciding and finishing.
type bounds struct {
	name        string
	generations uint8 // at most so many are opened
	epochs      uint8 // per generation
	pool        int   // proposals on their way
	repeats     uint8 // times that a proposal may be applied again
	states      int   // the search is cut here; 0: walk it all

	crashes, closes, drops, rewinds, retires, lies, stops, removals uint8 // how often each may happen
	old                                                             bool  // generations are no longer young when they decide and end
	sloppy                                                          bool  // leaders propose with whatever votes there are
	ready                                                           bool  // begin with generation 1 open, its members restored, epoch 1 prepared
	sweeps                                                          bool  // debts are paid along the way, not at the end only
	hand                                                            bool  // the hand-run transaction instead of the scope
	readOnly                                                        bool  // member b has nothing to commit in even epochs

	staleRestore bool // mutant: the leader restores from what it saw when it proposed
}

// what one branch of the resource of one member is.
const (
	nothing uint8 = iota
	prepared
	committed
	rolledBack
	dropped // the resource broke its promise
)

const maxGen, maxN = 5, 3

type resource struct {
	is    [maxGen][maxN + 1]uint8
	fence uint8 // the newest generation that opened it
	last  Epoch // newest epoch applied: upserts must not go back
}

type member struct {
	gen      uint8
	base     int64 // offset at which it started
	prepared uint8
	done     uint8 // committed and proven through
	dead     uint8 // the generation in which its process died: a new one joins the next
}

type proposal struct {
	name string
	cmd  Command
	left uint8
	seen Epoch // restore point when it was proposed
}

// world is one state of a case.
type world struct {
	b      *bounds
	m      *Machine
	res    [2]resource
	mem    [2]member
	pool   []proposal
	left   bounds             // what of the bounds is left
	offset int64              // source records decided so far in the present line of epochs
	seen   Epoch              // mutant only
	final  [maxGen]uint8      // answered by a close
	proofs map[string]Verdict // first proofs
	gone   map[string]bool    // parts that were deleted
	told   Outcome            // first verdict on the hand-run transaction
	at     int64
	bad    string // a broken promise
}

var (
	theScope   = ScopeID{Pipeline: "p"}
	memberName = [2]string{"a", "b"}
	resName    = [2]string{"out", "dir"}
	theTxn     = handID(2000, 1)
)

func newWorld(b *bounds, u unguarded) *world {
	w := &world{b: b, m: New(), left: *b, proofs: map[string]Verdict{}, gone: map[string]bool{}, at: 1000}
	w.m.unguarded = u
	p := twoMembers("p")
	p.Settings.RestorePoints = 1
	w.must(Init{Namespace: "x", Incarnation: 1})
	w.must(PutPipeline{Pipeline: p})
	if b.ready {
		w.must(opening("p", 0, "0"))
		for i := range w.mem {
			w.restore(i)
			w.prepare(i)
		}
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.m = w.m.clone()
	c.pool = slices.Clone(w.pool)
	c.proofs, c.gone = maps.Clone(w.proofs), maps.Clone(w.gone)
	return &c
}

func (w *world) key() uint64 {
	var e encoder
	e.num(w.m.digest)
	for _, r := range w.res {
		for _, row := range r.is {
			e.buf = append(e.buf, row[:]...)
		}
		e.buf = append(e.buf, r.fence)
		e.epoch(r.last)
	}
	for _, m := range w.mem {
		e.buf = append(e.buf, m.gen, m.prepared, m.done, m.dead)
		e.int(m.base)
	}
	for _, p := range w.pool {
		e.text(p.name)
		e.epoch(p.seen)
		e.num(uint64(p.left))
	}
	l := w.left
	e.buf = append(e.buf, l.crashes, l.closes, l.drops, l.rewinds, l.retires, l.lies, l.stops, l.removals, uint8(w.told))
	e.buf = append(e.buf, w.final[:]...)
	e.int(w.offset)
	e.epoch(w.seen)
	e.int(w.at)
	for _, k := range slices.Sorted(maps.Keys(w.gone)) {
		e.text(k)
	}
	for _, r := range slices.Sorted(maps.Keys(w.m.unguarded.refused)) {
		e.text(r)
	}
	return e.sum()
}

func (w *world) broken(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
	}
}

func (w *world) must(b Body) {
	if r := w.apply(Command{At: w.at, Body: b}); !r.OK() {
		w.broken("%T was refused: %s", b, r.Text)
	}
}

// coverage counts what the commands were answered.
type coverage map[string]map[Refusal]int

var covered = coverage{}

// apply moves the machine and checks what the answer and the effects promise.
func (w *world) apply(c Command) Result {
	r, effects := w.m.Apply(c)
	kind := strings.TrimPrefix(fmt.Sprintf("%T", c.Body), "ledger.")
	if covered[kind] == nil {
		covered[kind] = map[Refusal]int{}
	}
	covered[kind][r.Refusal]++
	for _, e := range effects {
		w.observe(e)
	}
	if b, ok := c.Body.(CloseGeneration); ok && r.OK() {
		w.closed(uint8(b.Generation), uint8(r.Final))
	}
	if r.Opened != nil {
		w.opened(r.Opened)
	}
	if _, isHand := c.Body.(Decide); !isHand && (r.Outcome == Committed || r.Outcome == Aborted) {
		if w.told != outcomeUnset && w.told != r.Outcome {
			w.broken("the transaction was %s, now it is %s", w.told, r.Outcome)
		}
		w.told = r.Outcome
	}
	if b, ok := c.Body.(Resolve); ok && r.OK() {
		w.proven(b)
	}
	for _, p := range r.Retired {
		if w.m.Refs(p.Part) {
			w.broken("part %s is given up and still named", p.Part)
		}
		w.gone[p.Part] = true
	}
	return r
}

// proven wants the first proof of a branch to stand.
func (w *world) proven(b Resolve) {
	_, at, _ := b.Txn.Epoch()
	r, _ := w.m.Epoch(theScope, at)
	for _, x := range r.Branches {
		if x.ID != b.Branch {
			continue
		}
		id := at.String() + x.ID.String()
		if first, found := w.proofs[id]; found && first != x.Proof.Verdict {
			w.broken("branch %s was proven %s, now it is %s", id, first, x.Proof.Verdict)
		}
		w.proofs[id] = x.Proof.Verdict
	}
}

func (w *world) observe(e Effect) {
	switch e.Kind {
	case EffectDecided:
		w.decided(e.Epoch)
	case EffectClosed:
		w.closed(uint8(e.Epoch.Generation), uint8(e.Epoch.N))
	case EffectPipeline:
		if e.Text == "deleted" {
			w.offset = 0
		}
	default:
	}
}

// decided wants numbers without gaps, nothing after a close, and every source record once.
func (w *world) decided(e Epoch) {
	r, _ := w.m.Epoch(theScope, e)
	if e.N > 1 && w.m.EpochOutcome(theScope, Epoch{e.Generation, e.N - 1}) != Committed {
		w.broken("%s was decided before %d.%d", e, e.Generation, e.N-1)
	}
	if f := w.final[e.Generation]; f > 0 && uint8(e.N) >= f {
		w.broken("%s was decided after its generation was closed with %d", e, f-1)
	}
	if o := r.Votes[0].Positions[0].Offset; o != w.offset+1 {
		w.broken("%s ends at record %d, the last one decided is %d", e, o, w.offset)
	}
	w.offset++
	for _, v := range r.Votes {
		for _, p := range v.Parts {
			if w.gone[p.ID] {
				w.broken("%s names part %s, which was deleted", e, p.ID)
			}
		}
	}
	for i := range w.res {
		if s := w.res[i].is[e.Generation][e.N]; s == rolledBack {
			w.broken("%s was decided, %s had rolled it back", e, resName[i])
		}
	}
}

// closed keeps the first final that was answered, plus one, so that zero is none.
func (w *world) closed(g, final uint8) {
	if had := w.final[g]; had != 0 && had != final+1 {
		w.broken("generation %d closed with final %d, then with %d", g, had-1, final)
	}
	w.final[g] = final + 1
}

func (w *world) opened(o *Opened) {
	for g := Generation(1); g < o.Generation; g++ {
		if r, ok := w.generation(g); ok && r.Open {
			w.broken("generation %d was opened while %d is open", o.Generation, g)
		}
	}
	// While a stop is under way a generation opens for what is left to prove, and for nothing else.
	if p, _ := w.m.Pipeline("p"); p.Desired == Stopping && len(o.Unfinished) == 0 || p.Desired == Stopped {
		w.broken("generation %d was opened though the pipeline is wanted %s", o.Generation, p.Desired)
	}
	if w.b.staleRestore {
		return
	}
	if start := offsetOf(o.RestorePoint); start != w.offset {
		w.broken("generation %d starts at record %d, the last decided is %d", o.Generation, start, w.offset)
	}
	if o.RestorePoint != nil {
		for _, v := range o.RestorePoint.Votes {
			for _, p := range v.Parts {
				if w.gone[p.ID] {
					w.broken("restore point %s names part %s, which was deleted", o.RestorePoint.Epoch, p.ID)
				}
			}
		}
	}
}

func (w *world) generation(g Generation) (GenerationRecord, bool) {
	s, _ := w.m.Scope(theScope)
	for _, r := range s.Generations {
		if r.Generation == g {
			return r, true
		}
	}
	return GenerationRecord{}, false
}

func offsetOf(r *RestorePoint) int64 {
	if r == nil {
		return 0
	}
	return r.Votes[0].Positions[0].Offset
}

// change sets a branch in a resource and checks that it goes with the verdict.
func (w *world) change(i int, e Epoch, to uint8) {
	r := &w.res[i]
	was := r.is[e.Generation][e.N]
	verdict := w.m.EpochOutcome(theScope, e)
	switch {
	case to == committed && verdict != Committed:
		w.broken("%s is committed in %s and is %s", e, resName[i], verdict)
	case to == committed && was != prepared:
		w.broken("%s is committed in %s, where it was %d", e, resName[i], was)
	case to == committed && r.last.Compare(e) > 0:
		w.broken("%s is committed in %s after %s", e, resName[i], r.last)
	case to == rolledBack && verdict == Committed:
		w.broken("%s is rolled back in %s, and decided", e, resName[i])
	case to == committed:
		r.last = e
	}
	r.is[e.Generation][e.N] = to
}

// verify is done in every new state.
func (w *world) verify() {
	if err := w.m.Check(); err != nil {
		w.broken("%v", err)
	}
}

type search struct {
	states, transitions, depth int
	cut                        bool
	found                      string
	trail                      string
}

// explore walks the case; it stops at the first broken promise.
func explore(b *bounds, u unguarded) (s search) {
	type node struct {
		w     *world
		trail *trail
	}
	start := newWorld(b, u)
	seen := map[uint64]struct{}{start.key(): {}}
	frontier := []node{{w: start}}
	for len(frontier) > 0 {
		var next []node
		for _, n := range frontier {
			for _, a := range n.w.actions() {
				s.transitions++
				w, t := n.w.clone(), &trail{n.trail, a.name}
				guarded(w, func() { a.do(w) })
				k := w.key()
				if _, old := seen[k]; old && w.bad == "" {
					continue
				}
				seen[k] = struct{}{}
				guarded(w, w.verify)
				if w.bad == "" && k%4 == 0 {
					f := w.clone()
					guarded(f, f.fairEnd)
					w.bad = f.bad
				}
				if w.bad != "" {
					s.states, s.found, s.trail = len(seen), w.bad, t.String()
					return s
				}
				if b.states > 0 && len(seen) >= b.states {
					s.states, s.cut = len(seen), true
					return s
				}
				next = append(next, node{w, t})
			}
		}
		frontier = next
		s.depth++
	}
	s.states = len(seen)
	return s
}

// wander goes deep where the search goes wide: walks of random steps, each ended fairly.
func wander(b *bounds, u unguarded, walks, steps int) (s search) {
	for seed := range uint64(walks) {
		w, t, rnd := newWorld(b, u), (*trail)(nil), seed*2+1
		for range steps {
			as := w.actions()
			if len(as) == 0 {
				break
			}
			rnd = rnd*6364136223846793005 + 1442695040888963407
			a := as[rnd>>33%uint64(len(as))]
			t = &trail{t, a.name}
			s.transitions++
			guarded(w, func() { a.do(w); w.verify() })
			if w.bad != "" {
				break
			}
		}
		if w.bad == "" {
			guarded(w, w.fairEnd)
		}
		if w.bad != "" {
			s.found, s.trail = w.bad, t.String()
			return s
		}
	}
	return s
}

// guarded turns the panic of a violated invariant into a broken promise.
func guarded(w *world, f func()) {
	defer func() {
		if v := recover(); v != nil {
			w.broken("%v", v)
		}
	}()
	f()
}

// trail is the way to a state, newest step first.
type trail struct {
	before *trail
	step   string
}

func (t *trail) String() string {
	var steps []string
	for ; t != nil; t = t.before {
		steps = append(steps, t.step)
	}
	slices.Reverse(steps)
	return strings.Join(steps, "; ")
}

// deeper picks a bound: default, -short, UNISINK_EXPLORE=deep, or the number that stands there.
func deeper(short, usual, deep int) int {
	env := os.Getenv("UNISINK_EXPLORE")
	if n, err := strconv.Atoi(env); err == nil {
		return n
	}
	switch {
	case env == "deep":
		return deep
	case testing.Short():
		return short
	default:
		return usual
	}
}
