package checkpoint

import (
	"fmt"
	"testing"
)

// TestAChainGoesOnBehindARestart: a process that is new in every epoch writes what one that never died would:
// changes and never a base, one group after the other whole, so that the chain does not grow.
func TestAChainGoesOnBehindARestart(t *testing.T) {
	for name, fresh := range map[string]func() subject{"windows": windowSubject, "sessions": sessionSubject} {
		t.Run(name, func(t *testing.T) {
			const keys, changes = 3000, 300
			epochs := 60
			if testing.Short() {
				epochs = 24 // the turn comes to each group, and to the first again
			}
			store := newMemory()
			s, x := New(config(store, groups)), fresh()
			for i := range keys {
				x.add(fmt.Appendf(nil, "key-%d", i), 0, 1)
			}
			p := point{generation: 1, n: 1, parts: take(t, s, 1, 1, x.k, 2000)}
			next := uint32(0) // the group whose turn it is to be whole
			for n := range epochs {
				s, x = New(config(store, groups)), fresh()
				if err := load(t, s, p.restore(uint64(n+2), nil), x.k); err != nil {
					t.Fatal(err)
				}
				for i := range changes {
					x.add(fmt.Appendf(nil, "key-%d", (n*changes+i)%keys), 0, 1)
				}
				p = point{generation: uint64(n + 2), n: 1, parts: take(t, s, uint64(n+2), 1, x.k, 2000), state: dump(t, x.k, groups)}
				if len(s.chain.links) == 0 {
					t.Fatalf("epoch %d is no chain", n)
				}
				whole := s.chain.links[len(s.chain.links)-1].info.whole
				if whole.first != next || whole.count == 0 || whole.count == groups {
					t.Fatalf("epoch %d has groups %+v whole, and it is the turn of group %d", n, whole, next)
				}
				next = (whole.first + whole.count) % groups
				if len(s.chain.links) > 2*groups {
					t.Fatalf("epoch %d has a chain of %d parts", n, len(s.chain.links))
				}
			}
			again := fresh()
			if err := load(t, New(config(store, groups)), p.restore(uint64(epochs+2), nil), again.k); err != nil {
				t.Fatal(err)
			}
			equal(t, dump(t, again.k, groups), p.state)
		})
	}
}

// TestAChangeThatIsNotSealedIsChangedAgainBehindARestart: the next part takes its place, so what it has
// must count as changed, and no more than that.
func TestAChangeThatIsNotSealedIsChangedAgainBehindARestart(t *testing.T) {
	for name, fresh := range map[string]func() subject{"windows": windowSubject, "sessions": sessionSubject} {
		t.Run(name, func(t *testing.T) {
			store := newMemory()
			s, x := New(config(store, groups)), fresh()
			for i := range 3000 {
				x.add(fmt.Appendf(nil, "key-%d", i), 0, 1)
			}
			take(t, s, 1, 1, x.k, 2000)
			x.add([]byte("key-7"), 0, 10)
			p := point{generation: 1, n: 2, parts: take(t, s, 1, 2, x.k, 2000)}
			if s.chain.links[len(s.chain.links)-1].info.sealed {
				t.Fatal("the second part is sealed")
			}
			s, x = New(config(store, groups)), fresh()
			if err := load(t, s, p.restore(2, nil), x.k); err != nil {
				t.Fatal(err)
			}
			x.add([]byte("key-8"), 0, 100)
			next := point{generation: 2, n: 1, parts: take(t, s, 2, 1, x.k, 2000), state: dump(t, x.k, groups)}
			if last := s.chain.links[len(s.chain.links)-1]; last.info.sealed || last.info.entries != 2 || len(next.parts) != len(p.parts) {
				t.Errorf("the next part has %+v, and the snapshot %d parts; want the two entries that have changed since the base, and %d", last.info, len(next.parts), len(p.parts))
			}
			again := fresh()
			if err := load(t, New(config(store, groups)), next.restore(3, nil), again.k); err != nil {
				t.Fatal(err)
			}
			equal(t, dump(t, again.k, groups), next.state)
		})
	}
}

// TestOfAGroupOnlyItsNewestWholeCounts: a part that has a group whole does not say which entries went since the
// part before, so what older parts have of the group must not be read.
func TestOfAGroupOnlyItsNewestWholeCounts(t *testing.T) {
	store := newMemory()
	s, x := New(config(store, groups)), sessionSubject()
	for i := range 3000 {
		x.add(fmt.Appendf(nil, "key-%d", i), int64(i), 1)
	}
	take(t, s, 1, 1, x.k, 2000)
	before := x.k.Index().Groups[0]
	x.expire(330) // the 300 of the first keys
	p := point{generation: 1, n: 2, parts: take(t, s, 1, 2, x.k, 2000), state: dump(t, x.k, groups)}
	if whole := s.chain.links[len(s.chain.links)-1].info.whole; !whole.has(0) || whole.count == groups || x.k.Index().Groups[0] == before {
		t.Fatalf("groups %+v are whole, and the first had %d sessions and has %d", whole, before, x.k.Index().Groups[0])
	}
	again := sessionSubject()
	if err := load(t, New(config(store, groups)), p.restore(2, nil), again.k); err != nil {
		t.Fatal(err)
	}
	equal(t, dump(t, again.k, groups), p.state)
}
