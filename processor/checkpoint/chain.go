package checkpoint

import (
	"slices"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

const (
	// cycle is in how many changes every group is written whole again: the most changes that a restart
	// reads, and that a vote names. A share of 1/cycle of the state in each change is what that costs.
	cycle = 96
	// mostChanges is the number of parts behind the base from which a new base is written all the same.
	mostChanges = 2 * cycle
	// sealShare and leastSealed say from how many entries on a change is sealed: this share of the state.
	// Smaller ones are written again, with what has changed since, in place of making the chain longer.
	sealShare   = 1024
	leastSealed = 256
	// overgrown is how many times the entries of the state the parts may hold before a base is written.
	overgrown = 4
)

// link is a part of a chain.
type link struct {
	part participant.StatePart
	info linkInfo
}

// linkInfo is what a part says of itself, and the first part of a snapshot of it.
type linkInfo struct {
	// sealed: later parts build on this one. At most the last change of a chain is not.
	sealed bool
	// whole are the groups of which the part has everything, a range.
	whole groupRange
	// entries counts those that were written, and those that were removed.
	entries int
}

type groupRange struct{ first, count uint32 }

func (r groupRange) has(g uint32) bool { return g >= r.first && g-r.first < r.count }

// chain is the keyed state in the store: parts in the order in which they were written. Every group is
// whole in one of them, and every later one has its changes.
type chain struct {
	groups uint32
	links  []link
	// first is the number of links[0]; parts are numbered one after the other, for as long as the chain lives.
	first int
	// wholeIn is the newest part in which each group is whole; -1 none.
	wholeIn []int
	// next is the group whose turn it is to be written whole, and owed how many entries are due.
	next uint32
	owed int
}

func (c *chain) clear(groups uint32) {
	*c = chain{groups: groups, links: c.links[:0], wholeIn: slices.Repeat([]int{-1}, int(groups))}
}

// last is the id of the part that the next one comes behind.
func (c *chain) last() string {
	if len(c.links) == 0 {
		return ""
	}
	return c.links[len(c.links)-1].part.ID
}

// add puts a part behind the others.
func (c *chain) add(l link) {
	for g := l.info.whole.first; l.info.whole.has(g); g++ {
		c.wholeIn[g] = c.first + len(c.links)
	}
	c.links = append(c.links, l)
}

// unseal lets the changes at the end go that are not sealed: the next part holds what they do.
func (c *chain) unseal() {
	for n := len(c.links); n > 0 && !c.links[n-1].info.sealed; n = len(c.links) {
		c.links = c.links[:n-1]
	}
}

// prune lets the parts go that are older than every group's newest whole one.
func (c *chain) prune() {
	old := slices.Min(c.wholeIn) - c.first
	if old > 0 {
		c.links = slices.Delete(c.links, 0, old)
		c.first += old
	}
}

// resume goes on with a chain that was read: the group whose whole is oldest has its turn.
func (c *chain) resume() { c.next = uint32(slices.Index(c.wholeIn, slices.Min(c.wholeIn))) } // a group

func (c *chain) entries() int {
	n := 0
	for _, l := range c.links {
		n += l.info.entries
	}
	return n
}

// plan is what an epoch writes.
type plan struct {
	// base: everything, in place of the chain.
	base bool
	// sealed and whole: see linkInfo.
	sealed bool
	whole  groupRange
}

// plan says how a state of that size is written. A change takes some groups along as a whole, in turn:
// as many entries as have changed, and at least as many as it takes to come round in one cycle. So what a
// restart reads stays below three times the state, and what is written below twice the changes and 1/cycle of the state.
func (c *chain) plan(size state.Size) plan {
	switch {
	case len(c.links) == 0,
		size.Changed*2 >= size.Entries,
		len(c.links) > int(c.groups)+mostChanges,
		c.entries() > overgrown*max(size.Entries, leastSealed):
		return plan{base: true, sealed: true, whole: groupRange{0, c.groups}}
	case size.Changed < max(size.Entries/sealShare, leastSealed):
		return plan{}
	}
	p := plan{sealed: true, whole: groupRange{first: c.next}}
	c.owed += max((size.Entries+cycle-1)/cycle, size.Changed)
	for c.next < c.groups && c.owed >= size.Groups[c.next] {
		c.owed -= size.Groups[c.next]
		c.next++
	}
	p.whole.count = c.next - p.whole.first
	if c.next == c.groups { // a range does not go round the end
		c.next, c.owed = 0, 0
	}
	return p
}
