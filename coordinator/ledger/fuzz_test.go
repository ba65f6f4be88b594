package ledger

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
)

// FuzzApply feeds two machines the same commands, made of the fuzzer's bytes: no command may make
// one panic or break an invariant, the two stay equal, and so does a third one that is loaded from
// their state in the middle.
func FuzzApply(f *testing.F) {
	f.Add([]byte("every command once, more or less: \x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13"))
	// open, decide three epochs, prove them, close, sweep, open again, retire
	f.Add([]byte{
		2, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 7, 0, 1, 0, 7, 0, 2, 1, 11, 0, 0, 1, 11, 1, 0, 1, 6, 0, 0, 0, 12, 0, 0, 0, 12, 1, 0, 0,
		5, 0, 0, 0, 16, 0, 0, 0, 13, 0, 1, 0, 14, 0, 0, 0,
	})
	f.Add([]byte{8, 0, 0, 0, 9, 0, 0, 0, 10, 1, 0, 0, 11, 9, 0, 0, 15, 9, 0, 0, 16, 9, 0, 0, 10, 9, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := New(), New()
		start := Command{At: 1000, Body: Init{Namespace: "fuzz", Incarnation: 1}}
		a.Apply(start)
		b.Apply(start)
		at := int64(1000)
		for i := 0; len(data) >= 4 && i < 400; i++ {
			c := commandOf(a, data[:4], &at)
			data = data[4:]
			ra, ea := a.Apply(c)
			rb, eb := b.Apply(c)
			if showResult(ra)+showEffects(ea) != showResult(rb)+showEffects(eb) {
				t.Fatalf("%#v: two answers: %v %v, %v %v", c, ra, ea, rb, eb)
			}
			if err := a.Check(); err != nil {
				t.Fatalf("after %#v: %v", c, err)
			}
			if a.Digest() != b.Digest() {
				t.Fatalf("after %#v: the digests differ", c)
			}
			if i%16 == 7 {
				var err error
				if b, err = Load(a.State()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if a.Hash() != b.Hash() {
			t.Fatal("the hashes differ")
		}
	})
}

// commandOf makes a command of four bytes: which one, two choices, and the rest. Choices lean to
// what the state would accept, or the fuzzer would see refusals only.
func commandOf(m *Machine, b []byte, at *int64) Command {
	kind, x, y, z := b[0]%20, b[1], b[2], b[3]
	*at += int64(z) * int64(z)
	name := [...]string{"p", "q", "p", "p.q"}[x>>6]
	id := ScopeID{Pipeline: name, Shard: uint32(x >> 4 & 1)}
	gen, _ := m.Newest(id)
	g := gen.Generation - Generation(x>>3&1)
	e := Epoch{g, gen.Final + 1 - uint64(y&3)}
	member := memberName[x&1]
	branch := BranchID{Member: member, Resource: resName[x&1]}
	c := Command{At: *at, Actor: "fuzz", Request: fmt.Sprint(kind, x, y)}
	switch kind {
	case 0:
		c.Body = Init{Namespace: "fuzz", Incarnation: uint64(x & 1)}
	case 1:
		c.Body = PutNode{Node: Node{ID: name, ClientAddress: "c", FeatureLevel: uint32(y % 3)}}
	case 2, 3, 4, 17:
		c.Body = fuzzPipeline(m, kind, name, y, z)
	case 5:
		o := opening(name, g, fmt.Sprint(g))
		o.Scope, o.FromScratch = id, y&7 == 7
		c.Body = o
	case 6:
		halt := ""
		if y&7 == 7 {
			halt = "halted"
		}
		c.Body = CloseGeneration{Scope: id, Generation: g, Cause: "fuzz", Halt: halt}
	case 7:
		e.N = gen.Final + 1 + uint64(y>>6)/3
		c.Body = fuzzDecide(id, gen, e, y, z)
	case 8, 9, 10:
		c.Body = fuzzHand(kind, *at, y, z)
	default:
		c.Body = fuzzRest(kind, id, g, e, branch, *at, y)
	}
	return c
}

func fuzzPipeline(m *Machine, kind byte, name string, y, z byte) Body {
	p, _ := m.Pipeline(name)
	switch kind {
	case 2:
		n := twoMembers(name)
		n.Revision, n.Shards, n.Settings.RestorePoints = p.Revision, p.Shards, uint32(z&3)
		if p.Shards == 0 {
			n.Shards = 1 + uint32(y&1)
		}
		if y&28 == 28 {
			n.Members[1].Resources[0].Name = "other"
		}
		return PutPipeline{Pipeline: n}
	case 3:
		return DeletePipeline{Name: name, Revision: p.Revision}
	case 4:
		to := Running
		if y&1 == 1 {
			to = Desired(y / 2 % 6)
		}
		return SetDesired{Pipeline: name, From: p.Desired, To: to}
	default:
		return Reshard{Pipeline: name, Revision: p.Revision, Shards: uint32(y & 3)}
	}
}

func fuzzDecide(id ScopeID, gen GenerationRecord, e Epoch, y, z byte) Body {
	instance := ""
	if len(gen.Members) > 0 {
		instance = gen.Members[0].Instance[1:]
	}
	d := deciding(id.Pipeline, e, instance, min(uint64(y&31), e.N-1))
	d.Scope, d.Final = id, z&7 == 7
	switch z >> 4 {
	case 1:
		d.Votes = d.Votes[:1]
	case 2:
		d.Votes[0].Branches, d.Votes[1].Branches = nil, nil
	case 3:
		d.Votes[0] = d.Votes[1]
	case 4:
		d.Votes[0].Branches[0].Handle.Body = make([]byte, MaxHandle+1)
	case 5:
		d.Votes[1].Parts = append(d.Votes[1].Parts, StatePart{ID: "shared"})
	}
	return d
}

func fuzzHand(kind byte, at int64, y, z byte) Body {
	txn := handID(max(0, at-int64(y>>2)*400+int64(z&7)*10_000), int(y&3))
	bs := []HandBranch{{Resource: "r", Handle: Handle{Kind: "mem"}}, {Resource: "s", Handle: Handle{Kind: "mem"}}}[:y&1+1]
	switch kind {
	case 8:
		return Announce{Txn: txn, Branches: bs, Deadline: at + int64(z)}
	case 9:
		return Commit{Txn: txn, Branches: bs}
	default:
		return PresumeAbort{Txn: txn, Why: "fuzz"}
	}
}

func fuzzRest(kind byte, id ScopeID, g Generation, e Epoch, b BranchID, at int64, y byte) Body {
	txn := EpochTxn(id, e)
	if y&0x40 != 0 {
		txn, b = handID(max(0, at-int64(y>>2)*400), int(y&3)), BranchID{Resource: "r"}
	}
	switch kind {
	case 11:
		r := Resolve{Txn: txn, Branch: b, Proof: Proof{Verdict: Verdict(1 + y>>4&1), Evidence: "fuzz"}}
		if y&0x20 != 0 {
			r.ProvenThrough = uint64(y & 7)
		}
		return r
	case 12:
		return Swept{Scope: id, Generation: g, Branch: b}
	case 13:
		return Rewind{Scope: id, To: e, Why: "fuzz"}
	case 14:
		return Resume{Scope: id, Why: "fuzz"}
	case 15:
		f := Force{Txn: txn, Branch: b, Action: ForceAction(1 + y>>4&1), Why: "fuzz"}
		if y&0x80 != 0 {
			f.Txn, f.Scope, f.Generation = "", id, g
		}
		return f
	case 16:
		return Retire{KeepFor: int64(y) * 10}
	case 18:
		return RaiseFeatureLevel{Level: uint32(y % 3)}
	default:
		return Pin{Scope: id, Epoch: e, Unpin: y&4 != 0}
	}
}

// FuzzParse wants every name that parses to come back from what it shows.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"p/0@7.12", "p", "p/4294967296@1.1", string(handID(1<<40, 7)), "a-b_c/3@0.0", "@", "p/@1.", "018f0000-0000-7000-8000-00000000000G"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if scope, e, ok := TxnID(s).Epoch(); ok {
			again, e2, ok := EpochTxn(scope, e).Epoch()
			if !ok || again != scope || e2 != e {
				t.Fatalf("%q is %s %s, which is not read back", s, scope, e)
			}
		}
		if ms, ok := TxnID(s).Time(); ok {
			if len(s) != 36 || ms < 0 || ms >= 1<<48 {
				t.Fatalf("%q has time %d", s, ms)
			}
		}
	})
}

// FuzzLoad breaks single numbers of a good state: Load refuses, or what it makes is sound.
func FuzzLoad(f *testing.F) {
	f.Add(uint16(0), uint64(3))
	f.Fuzz(func(t *testing.T, where uint16, v uint64) {
		m := running(t)
		apply(t, m, 1000, deciding("p", Epoch{1, 1}, "1", 0), Commit{Txn: handID(1000, 1), Branches: []HandBranch{{Resource: "r", Handle: Handle{Kind: "k"}}}})
		s := m.State()
		numbers := []*uint64{
			(*uint64)(&s.LastGeneration), &s.Scopes[0].Generations[0].Final, (*uint64)(&s.Scopes[0].Generations[0].Generation),
			&s.Scopes[0].Epochs[0].Epoch.N, (*uint64)(&s.Scopes[0].RestorePoint.Generation), &s.Pipelines[0].Revision,
		}
		*numbers[int(where)%len(numbers)] = v
		switch where >> 8 {
		case 1:
			s.Scopes[0].ID.Shard = uint32(v)
		case 2:
			s.Pipelines[0].Desired = Desired(v)
		case 3:
			s.Txns[0].Outcome = Outcome(v)
		case 4:
			s.Txns[0].ID = TxnID(binary.BigEndian.AppendUint64(nil, v))
		case 5:
			s.Scopes[0].Epochs[0].Branches = nil
		case 6:
			s.Floor = int64(v)
		}
		if l, err := Load(s); err == nil {
			check(t, l)
		}
	})
}

// TestLongHistory runs long histories of mostly sensible commands, which a fuzzer seldom finds.
func TestLongHistory(t *testing.T) {
	applied := map[string]int{}
	seeds := uint64(40)
	switch {
	case os.Getenv("UNISINK_EXPLORE") != "":
		seeds = 2000
	case testing.Short():
		seeds = 4 // in one goroutine
	}
	for seed := range seeds {
		m, at, rnd := New(), int64(1000), seed*2+1
		m.Apply(Command{At: at, Body: Init{Namespace: "fuzz", Incarnation: 1}})
		for i := range 600 {
			rnd = rnd*6364136223846793005 + 1442695040888963407
			b := binary.BigEndian.AppendUint64(nil, rnd)
			if b[4] < 200 { // more of what moves epochs on, of one pipeline
				b[0] = [...]byte{5, 5, 7, 7, 7, 7, 7, 6, 11, 11, 12, 12, 12, 16, 14, 4, 9, 10, 19, 15}[b[4]/10]
				b[1] &= 1
			}
			if b[5] < 220 {
				b[3] &= 1
			}
			c := commandOf(m, b[:4], &at)
			before := m.Digest()
			r, effects := m.Apply(c)
			at = max(at, r.RetryAt)
			switch {
			case r.OK():
				applied[fmt.Sprintf("%T", c.Body)]++
			case len(effects) > 0 || m.Digest() != before:
				t.Fatalf("seed %d, command %d, %#v: refused, and changed something", seed, i, c)
			}
			if err := m.Check(); err != nil {
				t.Fatalf("seed %d, command %d, %#v: %v", seed, i, c, err)
			}
		}
		check(t, m)
	}
	t.Log(applied)
	if len(applied) < 20 {
		t.Errorf("only %d of 20 commands were ever applied", len(applied))
	}
}
