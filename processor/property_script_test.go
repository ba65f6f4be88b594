package processor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// trial is one life of a pipeline as a script: how it is built, and what happens to it. Every list of
// happenings is a trial; what is impossible when its turn comes does nothing. So a trial stays one
// whatever is left out of it, and a failing one shrinks to what a person can read.
type trial struct {
	setup
	ops []happening
}

// setup is how the pipeline is built. Times are milliseconds.
type setup struct {
	size, every int64 // windows; every < size: sliding
	gap         int64 // sessions instead, if it is more than 0
	lateness    int64
	disorder    int64
	idle        int64
	clock       string // which time counts: "field" (read before the filter), "filtered" (after it), "source"
	bad         string // "fail", "skip", "dead"
	late        bool   // late records have a sink
	ends        bool   // the source knows where its splits end
	inline      int64  // bytes of state in a vote, 0: everything fits; else there is a store
	splits      int64
}

// happening is one line of a script: a word and up to three numbers.
type happening struct {
	what    string
	a, b, c int64
}

// Kinds of records. A record happening is: kind, split, key, event time.
const (
	kindGood       = "good"
	kindHuge       = "huge"       // two in one window are more than a sum can hold
	kindSour       = "sour"       // the aggregate refuses it, whatever there is already
	kindDropped    = "dropped"    // by the filter
	kindIllegible  = "illegible"  // cannot be decoded
	kindUnmappable = "unmappable" // decoded, and cannot be mapped
	kindTimeless   = "timeless"   // its event time is out of range
	kindStubborn   = "stubborn"   // good, but the encoder of late records refuses it
	kindTombstone  = "tombstone"  // no value; good
	kindTorn       = "torn"       // no value; cannot be decoded
	kindAgain      = "again"      // the last record of its split once more
)

// Everything else that happens.
const (
	opPoll    = "poll"    // split, at most so many records, after so many milliseconds
	opSilence = "silence" // milliseconds
	opCut     = "barrier"
	opDecide  = "decide" // the oldest epoch that was voted for
	opFinish  = "finish" // commit what is decided
	opCrash   = "crash"  // and a new process at the last decided epoch
	opStop    = "stop"   // final barrier, decided, and a new process
	opDrain   = "drain"  // the same with the end of event time
	opFlood   = "flood"  // split, so many good records of as many keys, event time
	opAppear  = "appear" // a new split
	opClose   = "close"  // split: nothing more will come of it
	opVanish  = "vanish" // split, closed and read: no longer listed from the next start on
	opEOF     = "eof"    // the source has ended, if all is read, and may go on at the next start
)

var recordKinds = []string{kindGood, kindHuge, kindSour, kindDropped, kindIllegible, kindUnmappable, kindTimeless, kindStubborn, kindTombstone, kindTorn, kindAgain}

func (h happening) String() string {
	switch h.what {
	case opCut, opDecide, opFinish, opCrash, opStop, opDrain, opAppear, opEOF:
		return h.what
	case opSilence, opClose, opVanish, kindAgain:
		return fmt.Sprint(h.what, " ", h.a)
	}
	return fmt.Sprint(h.what, " ", h.a, " ", h.b, " ", h.c)
}

func (s setup) String() string {
	return fmt.Sprintf("size=%d every=%d gap=%d lateness=%d disorder=%d idle=%d clock=%s bad=%s late=%t ends=%t inline=%d splits=%d",
		s.size, s.every, s.gap, s.lateness, s.disorder, s.idle, s.clock, s.bad, s.late, s.ends, s.inline, s.splits)
}

func (t trial) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, t.setup)
	for _, h := range t.ops {
		fmt.Fprintln(&b, h)
	}
	return b.String()
}

// readTrial reads what String wrote. Lines that begin with # are comments.
func readTrial(text string) (t trial, err error) {
	first := true
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if first {
			first = false
			_, err := fmt.Sscanf(line, "size=%d every=%d gap=%d lateness=%d disorder=%d idle=%d clock=%s bad=%s late=%t ends=%t inline=%d splits=%d",
				&t.size, &t.every, &t.gap, &t.lateness, &t.disorder, &t.idle, &t.clock, &t.bad, &t.late, &t.ends, &t.inline, &t.splits)
			if err != nil {
				return t, fmt.Errorf("%q: %w", line, err)
			}
			continue
		}
		words := strings.Fields(line)
		h := happening{what: words[0]}
		for i, to := range []*int64{&h.a, &h.b, &h.c} {
			if i+1 < len(words) {
				if *to, err = strconv.ParseInt(words[i+1], 10, 64); err != nil {
					return t, fmt.Errorf("%q: %w", line, err)
				}
			}
		}
		t.ops = append(t.ops, h)
	}
	return t, nil
}

// chooser draws the numbers of a trial.
type chooser struct{ *rand.Rand }

func (c chooser) upTo(n int64) int64 { return c.Int64N(n + 1) }

func (c chooser) oneIn(n int) bool { return c.IntN(n) == 0 }

func choose[E any](c chooser, from ...E) E { return from[c.IntN(len(from))] }

// someTrial makes the trial of a seed.
func someTrial(seed uint64, length int) trial {
	return chosenTrial(rand.New(rand.NewPCG(seed, 0)), length)
}

func chosenTrial(r *rand.Rand, length int) trial {
	c := chooser{r}
	t := trial{setup: someSetup(c)}
	clock := make([]int64, 8)
	for i := range clock {
		clock[i] = c.upTo(50)
	}
	splits := t.splits
	// How things go in this life: how far records are behind, how often it crashes.
	behind := choose(c, 0, t.disorder, t.disorder+10, 150, 400)
	if t.lateness > 0 {
		behind = choose(c, t.disorder+t.lateness, 150, 400)
	}
	floods := t.inline > 0 && c.oneIn(20) // so much state that it is kept as base and changes
	stride, crashes := choose[int64](c, 5, 20, 60), choose(c, 3, 8, 30)
	for range length {
		split := c.Int64N(splits)
		switch n := c.IntN(100); {
		case n < 40:
			kind := kindGood
			if c.oneIn(4) {
				kind = choose(c, recordKinds...)
			}
			clock[split] += c.upTo(stride)
			at := clock[split]
			if c.oneIn(3) {
				at -= c.upTo(behind)
			}
			t.ops = append(t.ops, happening{kind, split, c.Int64N(3), at})
		case n < 43 && floods:
			t.ops = append(t.ops, happening{opFlood, split, 300, clock[split]}, happening{opPoll, split, 1000, 0}, happening{what: opCut})
		case n < 65:
			t.ops = append(t.ops, happening{opPoll, split, 1 + c.upTo(4), choose[int64](c, 0, 0, 0, 1, 30)})
		case n < 70:
			t.ops = append(t.ops, happening{what: opSilence, a: choose[int64](c, 1, 20, 60, 200)})
		case n < 79:
			t.ops = append(t.ops, happening{what: opCut})
		case n < 86:
			t.ops = append(t.ops, happening{what: opDecide})
		case n < 90:
			t.ops = append(t.ops, happening{what: opFinish})
		case n < 97:
			if c.oneIn(crashes) {
				t.ops = append(t.ops, happening{what: opCrash})
			}
		default:
			rare := happening{what: choose(c, opStop, opDrain, opAppear, opClose, opVanish, opEOF), a: split}
			if rare.what == opAppear && splits < 5 {
				splits++
			}
			t.ops = append(t.ops, rare)
		}
	}
	return t
}

func someSetup(c chooser) setup {
	s := setup{
		size: choose[int64](c, 100, 100, 100, 7, 1), disorder: choose[int64](c, 0, 0, 10, 60), idle: choose[int64](c, 0, 50),
		clock: choose(c, "field", "filtered", "source"), bad: choose(c, "fail", "skip", "dead"),
		late: !c.oneIn(4), ends: c.oneIn(2), inline: choose[int64](c, 0, tightVote, tightVote), splits: 1 + c.Int64N(3),
	}
	s.every = s.size
	switch choose(c, "tumbling", "tumbling", "sliding", "session") {
	case "sliding":
		s.size = 100
		s.every = choose[int64](c, 50, 25, 10)
	case "session":
		s.gap = choose[int64](c, 1, 20, 50)
	}
	if s.gap == 0 && !c.oneIn(3) {
		s.lateness = choose[int64](c, 1, 40, 150, 1000)
	}
	return s
}

// shrink leaves out of a failing trial whatever it fails without, and makes its numbers small.
func shrink(t trial, fails func(trial) bool) trial {
	try := func(next trial) bool {
		if !fails(next) {
			return false
		}
		t = next
		return true
	}
	for progress := true; progress; {
		progress = false
		for size := max(1, len(t.ops)/2); size > 0; size /= 2 {
			for from := 0; from+size <= len(t.ops); {
				next := t
				next.ops = slices.Delete(slices.Clone(t.ops), from, from+size)
				if try(next) {
					progress = true
				} else {
					from += size
				}
			}
		}
		for i := range t.ops {
			for _, simpler := range simplerThan(t.ops[i]) {
				next := t
				next.ops = slices.Clone(t.ops)
				next.ops[i] = simpler
				progress = try(next) || progress
			}
		}
		for _, s := range simplerSetups(t.setup) {
			next := t
			next.setup = s
			progress = try(next) || progress
		}
	}
	return t
}

func simplerThan(h happening) (out []happening) {
	if slices.Contains(recordKinds[1:], h.what) && h.what != kindAgain {
		out = append(out, happening{kindGood, h.a, h.b, h.c})
	}
	for _, smaller := range []func(h *happening){
		func(h *happening) { h.a = 0 }, func(h *happening) { h.b = 0 }, func(h *happening) { h.c = 0 },
		func(h *happening) { h.c /= 10 }, func(h *happening) { h.c -= h.c % 10 }, func(h *happening) { h.b = min(h.b, 1) },
	} {
		next := h
		if smaller(&next); next != h {
			out = append(out, next)
		}
	}
	return out
}

func simplerSetups(s setup) (out []setup) {
	for _, simpler := range []func(s *setup){
		func(s *setup) { s.lateness = 0 }, func(s *setup) { s.disorder = 0 }, func(s *setup) { s.idle = 0 },
		func(s *setup) { s.inline = 0 }, func(s *setup) { s.clock = "field" }, func(s *setup) { s.bad = "skip" },
		func(s *setup) { s.every = s.size }, func(s *setup) { s.gap = 0 }, func(s *setup) { s.late = true },
		func(s *setup) { s.ends = false }, func(s *setup) { s.splits = max(1, s.splits-1) }, func(s *setup) { s.size, s.every = 100, 100 },
	} {
		next := s
		if simpler(&next); next != s {
			out = append(out, next)
		}
	}
	return out
}
