package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/participant"
)

func TestRealBroker_UnknownOutcomes(t *testing.T) {
	onRealBroker(t, "O1/a fenced answer after a commit is proven by the witness", func(t *testing.T, r *rig) {
		s := r.opened(1)
		h := r.prepared(s, r.name(1, 1), 10)
		r.commit(s, h, participant.Committed)
		r.forget(s, h)
		r.sameFromAnywhere(h, participant.Committed)
		r.sees(10)
	})
	onRealBroker(t, "O1/a fenced answer after an abort is not taken for a commit", func(t *testing.T, r *rig) {
		s := r.opened(1)
		h := r.prepared(s, r.name(1, 1), 10)
		r.forget(s, h) // aborts what is undecided, as a second holder of the id would
		r.sameFromAnywhere(h, participant.RolledBack)
		r.sees(0)
	})
	onRealBroker(t, "O5/a lost answer is asked again with the same handle", func(t *testing.T, r *rig) {
		h := r.prepared(r.opened(1), r.name(1, 1), 10)
		var lost atomic.Int64
		s := r.sink(func(c *SinkConfig) { c.Options = []kgo.Opt{kgo.Dialer(deaf(kmsg.EndTxn, &lost))} })
		r.commit(s, h, participant.Committed)
		r.commit(s, h, participant.Committed)
		if lost.Load() != 1 {
			t.Errorf("%d answers were lost, want one", lost.Load())
		}
		r.sees(10)
	})
	onRealBroker(t, "O10/a witness that somebody deleted does not make a commit a rollback", func(t *testing.T, r *rig) {
		s := r.opened(1)
		h := r.prepared(s, r.name(1, 1), 10)
		r.commit(s, h, participant.Committed)
		b, err := decode(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.a.adm.DeleteGroup(t.Context(), b.Witness.Group); err != nil {
			t.Fatal(err)
		}
		r.sameFromAnywhere(h, participant.Committed) // the coordinator remembers
		r.forget(s, h)
		r.sameFromAnywhere(h, participant.Committed) // the markers are in the log
		if _, err := r.a.adm.DeleteRecords(t.Context(), r.ends()); err != nil {
			t.Fatal(err)
		}
		// Nothing is left that shows anything: then it stays in doubt.
		if p, err := r.sink().Commit(t.Context(), h); !errors.Is(err, participant.ErrUndeterminable) {
			t.Errorf("commit without a trace: %+v, %v; want in doubt for good", p, err)
		}
		if st, err := r.sink().Inspect(t.Context(), h); err != nil || st != participant.Unknown {
			t.Errorf("inspect without a trace: %d, %v; want unknown", st, err)
		}
	})
}

// forget makes the coordinator forget how the handle's transaction ended, and ends it if it has not.
func (r *rig) forget(s *Sink, h participant.Handle) {
	r.Helper()
	b, err := decode(h)
	if err != nil {
		r.Fatal(err)
	}
	cl, err := s.client(b.Class)
	if err != nil {
		r.Fatal(err)
	}
	if _, _, err := initialise(r.Context(), cl, b.TxnID); err != nil {
		r.Fatal(err)
	}
}

// sameFromAnywhere finishes a handle, both ways, from a process that knows nothing else of it.
func (r *rig) sameFromAnywhere(h participant.Handle, want participant.Verdict) {
	r.Helper()
	other := r.sink(func(c *SinkConfig) { c.Topic = "" })
	r.commit(other, h, want)
	r.rollback(other, h, want)
	r.commit(other, h, want)
}

// ends is the end of each partition of the rig's topic.
func (r *rig) ends() kadm.Offsets {
	r.Helper()
	ends, err := r.a.EndOffsets(r.Context(), r.topic, false)
	if err != nil {
		r.Fatal(err)
	}
	var out kadm.Offsets
	for p, end := range ends {
		out.Add(kadm.Offset{Topic: r.topic, Partition: p, At: end, LeaderEpoch: -1})
	}
	return out
}

// deaf dials connections of which one loses the answer to the first request of a kind.
func deaf(key kmsg.Key, lost *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
	var spent atomic.Bool
	return func(ctx context.Context, network, host string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, host)
		return &deafConn{Conn: c, key: key, lost: lost, spent: &spent}, err
	}
}

type deafConn struct {
	net.Conn
	key   kmsg.Key
	lost  *atomic.Int64
	spent *atomic.Bool // the one answer is chosen
	next  atomic.Bool  // on this connection
}

func (c *deafConn) Write(p []byte) (int, error) {
	if len(p) > 6 && int(p[4])<<8|int(p[5]) == int(c.key) && c.spent.CompareAndSwap(false, true) {
		c.next.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p) // the broker has done its work
	if err == nil && c.next.Swap(false) {
		c.lost.Add(1)
		return 0, errors.Join(io.EOF, c.Close())
	}
	return n, err
}

func TestRealBroker_Identity(t *testing.T) {
	onRealBroker(t, "I1/a slot is reused only when its branch is resolved", func(t *testing.T, r *rig) {
		if got := r.fourBranches(false); got != 30 {
			t.Errorf("readers see %d of 30 committed records", got)
		}
	})
	onRealBroker(t, "I1/without the guard a decided branch is lost", func(t *testing.T, r *rig) {
		if got := r.fourBranches(true); got == 30 {
			t.Error("the guard guards nothing: the slot was reused and no record was lost")
		}
	})
	onRealBroker(t, "I3/the handle pins the version of EndTxn", func(t *testing.T, r *rig) {
		s := r.opened(1)
		h := r.prepared(s, r.name(1, 1), 10)
		b, err := decode(h)
		if err != nil {
			t.Fatal(err)
		}
		if b.Class != classNew {
			t.Errorf("class %d, want %d on this broker", b.Class, classNew)
		}
		r.commit(s, h, participant.Committed)
		r.sameFromAnywhere(h, participant.Committed)
		// With another version the same question is answered as if somebody else had ended it; the
		// proof does not rest on that answer.
		b.Class = classOld
		other, err := b.encode(h.Alias)
		if err != nil {
			t.Fatal(err)
		}
		r.sameFromAnywhere(other, participant.Committed)
		r.sees(10)
	})
	onRealBroker(t, "I6/two holders of one name: the older is refused, and they do not fence each other in turns", func(t *testing.T, r *rig) {
		one, two := r.opened(1), r.opened(2)
		for range 3 {
			if err := r.sink().Open(t.Context(), r.opening(1)); !errors.Is(err, participant.ErrFenced) {
				t.Fatalf("open the older generation: %v, want fenced", err)
			}
		}
		if _, err := one.Begin(t.Context(), r.name(1, 1)); !errors.Is(err, participant.ErrFenced) {
			t.Errorf("begin of the older: %v, want fenced", err)
		}
		for n := uint64(1); n <= 4; n++ {
			r.commit(two, r.prepared(two, r.name(2, n), 10), participant.Committed)
		}
		r.sees(40)
	})
	onRealBroker(t, "I8/a hundred epochs need no more ids than slots", func(t *testing.T, r *rig) {
		s := r.opened(1)
		for n := uint64(1); n <= 100; n++ {
			r.commit(s, r.prepared(s, r.name(1, n), 2), participant.Committed)
		}
		ids, err := r.a.ListTransactions(t.Context(), participant.Namespace{Name: r.ns, Incarnation: 1})
		if err != nil || len(ids) > 3+1 {
			t.Errorf("%d transactional ids, %v; want three slots and the fence", len(ids), err)
		}
		r.sees(200)
	})
}

// fourBranches prepares four branches where there are three slots, commits all that voted, and counts
// what readers see.
func (r *rig) fourBranches(unguarded bool) int {
	r.Helper()
	s := r.opened(1)
	s.reuseUnresolved = unguarded
	var handles []participant.Handle
	for n := uint64(1); n <= 3; n++ {
		handles = append(handles, r.prepared(s, r.name(1, n), 10))
	}
	ctx, cancel := context.WithTimeout(r.Context(), 300*time.Millisecond)
	defer cancel()
	if b, err := s.Begin(ctx, r.name(1, 4)); err == nil {
		if err := b.(*Branch).Write(r.Context(), numbered(1)); err != nil {
			r.Fatal(err)
		}
	}
	for _, h := range handles {
		if _, err := s.Commit(r.Context(), h); err != nil {
			r.Log(err)
		}
	}
	return len(r.visible())
}

func TestRealBroker_Zombies(t *testing.T) {
	onRealBroker(t, "Z2/a paused process that wakes up gets nothing voted for, and nothing seen", func(t *testing.T, r *rig) {
		zombie := r.opened(1)
		paused := r.begin(zombie, r.name(1, 1), 10)
		next := r.opened(2)
		r.commit(next, r.prepared(next, r.name(2, 1), 10), participant.Committed)
		v, err := paused.Prepare(t.Context())
		if err != nil || v.Kind != participant.No || !errors.Is(v.Reason, participant.ErrFenced) {
			t.Errorf("prepare of the zombie: %+v, %v; want no, fenced", v, err)
		}
		if err := zombie.Open(t.Context(), r.opening(1)); !errors.Is(err, participant.ErrFenced) {
			t.Errorf("open again: %v, want fenced", err)
		}
		// The zombie gives its transaction up beside its answer; until the broker has ended it, readers wait before it.
		r.nothingOpen()
		r.sees(10)
	})
	onRealBroker(t, "P1/a zombie initialises none of its successor's ids", func(t *testing.T, r *rig) {
		zombie := r.opened(1)
		decided, dead := r.prepared(zombie, r.name(1, 1), 10), r.prepared(zombie, r.name(1, 2), 10)
		next := r.opened(2)
		r.sees(0)
		r.commit(next, decided, participant.Committed)
		r.rollback(next, dead, participant.RolledBack)
		h := r.prepared(next, r.name(2, 1), 10)
		// It wakes up, and goes on to the next branch with the ids it knows.
		b, err := zombie.Begin(t.Context(), r.name(1, 3))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.(*Branch).Write(t.Context(), numbered(5)); err != nil {
			t.Log(err)
		}
		if v, err := b.Prepare(t.Context()); err != nil || v.Kind != participant.No {
			t.Errorf("prepare of the zombie: %+v, %v; want no", v, err)
		}
		r.commit(next, h, participant.Committed)
		r.sees(20)
		r.nothingOpen()
	})
	onRealBroker(t, "P19/a resolver that was paused in a repair does not decide the next transaction", func(t *testing.T, r *rig) {
		seen := func(version int8) int {
			t.Helper()
			r := realRig(t, r.addrs, nil)
			s := r.opened(1)
			first := r.prepared(s, r.name(1, 1), 10)
			late, err := s.finishing(t.Context(), first)
			if err != nil {
				t.Fatal(err)
			}
			open, err := late.openOn(t.Context())
			if err != nil || len(open) == 0 {
				t.Fatalf("open on %v, %v", open, err)
			}
			r.commit(s, first, participant.Committed) // somebody else finishes it, and the slot goes on
			undecided := r.prepared(s, r.name(1, 2), 10)
			if b, err := decode(undecided); err != nil || b.TxnID != late.b.TxnID || b.PID != late.b.PID || b.Epoch != late.b.Epoch+1 {
				t.Fatalf("%s is not the next transaction of %s, %v", undecided.Name, first.Name, err)
			}
			if err := late.writeMarkers(t.Context(), participant.Committed, open, version); err != nil {
				t.Fatal(err)
			}
			return len(r.visible())
		}
		if got := seen(markerVersion); got != 10 {
			t.Errorf("readers see %d records after the late marker, want the 10 that are decided", got)
		}
		if got := seen(0); got != 20 {
			t.Errorf("with transaction version 0 readers see %d records; if the late marker decides nothing there either, this check proves nothing", got)
		}
	})
	onRealBroker(t, "Z4/older work is resolved before positions are read", func(t *testing.T, r *rig) {
		gone := r.opened(1)
		listed, dead := r.prepared(gone, r.name(1, 1), 10), r.prepared(gone, r.name(1, 2), 7)
		s := r.opened(2)
		r.commit(s, listed, participant.Committed)
		found, err := s.List(t.Context(), r.opening(2).Namespace)
		if err != nil || len(found) != 1 || !found[0].Handle.Same(dead) || found[0].Since.IsZero() {
			t.Fatalf("listed %+v, %v; want what nobody decided", found, err)
		}
		r.rollback(s, found[0].Handle, participant.RolledBack)
		in := source(t, SourceConfig{Name: "in", Brokers: r.addrs, Topics: []string{r.topic}, Bounded: true})
		if err := in.Open(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if values, _ := drain(t, in, -1); len(values) != 10 {
			t.Errorf("the source reads %d records behind resolved work, want the 10 committed", len(values))
		}
		r.nothingOpen()
	})
}

func TestRealBroker_OddEpochs(t *testing.T) {
	onRealBroker(t, "T2/with the largest time-out on both sides the broker never ends a transaction", func(t *testing.T, r *rig) {
		if d, err := r.opened(1).Describe(t.Context()); err != nil || d.Bounded {
			t.Errorf("describe: %+v, %v; want not bounded", d, err)
		}
	})
	onRealBroker(t, "E1/an epoch without records is read-only, and nothing is left", func(t *testing.T, r *rig) {
		s := r.opened(1)
		for n := uint64(1); n <= 20; n++ {
			b, err := s.Begin(t.Context(), r.name(1, n))
			if err != nil {
				t.Fatal(err)
			}
			if v, err := b.Prepare(t.Context()); err != nil || v.Kind != participant.ReadOnly {
				t.Fatalf("prepare: %+v, %v; want read-only", v, err)
			}
		}
		r.commit(s, r.prepared(s, r.name(1, 21), 10), participant.Committed)
		r.sees(10)
		r.nothingOpen()
	})
}
