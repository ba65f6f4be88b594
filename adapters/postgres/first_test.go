package postgres

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/participant"
)

// Row Z2: what a zombie writes first travels with the look at the fence, and the server does not begin with it. A number
// drawn from a sequence is not given back by a rollback.
func TestZ2_AZombieDoesNotBeginToWrite(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	r.query("CREATE SEQUENCE drawn", "SELECT ''")
	zombie := r.opened(1)
	const write = "INSERT INTO out SELECT $1 || nextval('drawn')"
	first := r.begin(zombie, 1, 1)
	if _, err := first.Exec(r.ctx, write, "a"); err != nil {
		t.Fatal(err)
	}
	r.commit(zombie, r.prepared(first))
	r.opened(2)
	late := r.begin(zombie, 1, 2)
	if _, err := late.Exec(r.ctx, write, "b"); !errors.Is(err, participant.ErrFenced) || !strings.Contains(err.Error(), "generation 2 of") {
		t.Errorf("a zombie's write: %v, want fenced by generation 2", err)
	}
	r.fencedOff(late)
	if got := r.query("SELECT last_value::text FROM drawn"); got[0] != "1" {
		t.Errorf("the zombie's statement was run: %s numbers are drawn", got[0])
	}
	if got := r.query("SELECT count(*)::text FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"); got[0] != "0" {
		t.Errorf("%s transactions are left open", got[0])
	}
	r.sees("a1")
}

// flushes counts how often a client has spoken before the server answered.
type flushes struct {
	net.Conn
	mu *sync.Mutex
	n  *int
	in *bool // the last was a write
}

func (f flushes) Write(p []byte) (int, error) {
	f.mu.Lock()
	if !*f.in {
		*f.n++
	}
	*f.in = true
	f.mu.Unlock()
	return f.Conn.Write(p)
}

func (f flushes) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	f.mu.Lock()
	*f.in = false
	f.mu.Unlock()
	return n, err
}

// The begin, the fence and the first statement are one round trip, the marker with PREPARE the second.
func TestABranchThatWritesOnceIsTwoRoundTrips(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	var mu sync.Mutex
	var trips int
	d := r.opened(1, func(o *Options) {
		o.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return flushes{c, &mu, &trips, new(bool)}, err
		}
	})
	branch := func(n uint64) int {
		mu.Lock()
		before := trips
		mu.Unlock()
		h := r.prepared(r.begin(d, 1, n, "v"))
		mu.Lock()
		took := trips - before
		mu.Unlock()
		r.commit(d, h)
		return took
	}
	branch(1) // statements are prepared
	if n := branch(2); n != 2 {
		t.Errorf("%d round trips until the vote, want 2", n)
	}
}

// What is wrong with the first statement is told as it is for any other, and nothing of the branch is left.
func TestAFirstStatementThatFailsIsANo(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	r.query("CREATE TABLE numbers (n int PRIMARY KEY)", "INSERT INTO numbers VALUES (1)", "SELECT ''")
	d := r.opened(1)
	for what, x := range map[string]struct {
		sql  string
		arg  any
		says string
	}{
		"no such table":      {"INSERT INTO nowhere VALUES ($1)", "x", "nowhere"},
		"a key twice":        {"INSERT INTO numbers VALUES ($1)", 1, "numbers_pkey"},
		"no such value":      {"INSERT INTO numbers VALUES ($1)", struct{}{}, "unable to encode"},
		"its own division":   {"INSERT INTO numbers VALUES (1 / $1::int)", 0, "division by zero"},
		"too few parameters": {"INSERT INTO numbers VALUES ($1 + $2::int)", 1, "argument count"},
	} {
		for range 2 { // the second time the statement is known to the connection
			b := r.begin(d, 1, 1)
			if _, err := b.Exec(r.ctx, x.sql, x.arg); err == nil || !strings.Contains(err.Error(), x.says) || errors.Is(err, participant.ErrFenced) {
				t.Errorf("%s: %v", what, err)
			}
			if why := r.refused(b); !strings.Contains(why.Error(), x.says) {
				t.Errorf("%s: the reason of the no: %v", what, why)
			}
		}
	}
	r.commit(d, r.prepared(r.begin(d, 1, 2, "after")))
	r.sees("after")
	if got := r.query("SELECT count(*)::text FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"); got[0] != "0" {
		t.Errorf("%s transactions are left open", got[0])
	}
}

// A connection that has died while nobody used it is replaced, and the statement is run on the new one.
func TestAFirstStatementFindsANewConnection(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	d := r.opened(1)
	r.commit(d, r.prepared(r.begin(d, 1, 1, "a")))
	r.query("SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity WHERE application_name = 'unisink' AND datname = current_database()")
	r.until("SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'unisink' AND datname = current_database()", "0")
	r.commit(d, r.prepared(r.begin(d, 1, 2, "b")))
	r.sees("a", "b")
}

// An answer that is lost, of a statement that was done: it is rolled back with its connection, and done once more.
func TestAFirstStatementWhoseAnswerIsLostCountsOnce(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Prepared)
	w := &wire{}
	d := r.opened(1, w.into)
	r.commit(d, r.prepared(r.begin(d, 1, 1, "a"))) // its statements are known
	w.after("lost row")
	r.commit(d, r.prepared(r.begin(d, 1, 2, "lost row")))
	w.before("cut row", func() bool { return false })
	r.commit(d, r.prepared(r.begin(d, 1, 3, "cut row")))
	r.sees("a", "cut row", "lost row")
	if left := r.query("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"); len(left) > 0 {
		t.Errorf("%q are left prepared", left)
	}
}
