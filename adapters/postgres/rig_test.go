package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

func TestMain(m *testing.M) {
	participanttest.Child(targetOf)
	goleak.VerifyTestMain(servicestest.Main(m))
}

// rig is a database of its own with the table out (v text).
type rig struct {
	testing.TB
	ctx  context.Context
	dsn  string
	mode Mode
}

func newRig(t testing.TB, version string, mode Mode) *rig {
	t.Helper()
	return rigOn(t, servicestest.Postgres(t, version), mode)
}

func rigOn(t testing.TB, dsn string, mode Mode) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r := &rig{TB: t, ctx: ctx, dsn: dsn, mode: mode}
	r.query("CREATE TABLE out (v text)", "SELECT ''")
	return r
}

// query runs statements on a connection of its own and returns what the last one answers, as text.
func (r *rig) query(statements ...string) []string {
	r.Helper()
	return queryOn(r, r.dsn, statements...)
}

func queryOn(t testing.TB, dsn string, statements ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	last := len(statements) - 1
	for _, s := range statements[:last] {
		if _, err := conn.Exec(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	rows, err := conn.Query(ctx, statements[last])
	if err != nil {
		t.Fatalf("%s: %v", statements[last], err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", statements[last], err)
	}
	return out
}

// until asks until the answer is the wanted one, or the rig's minute is over.
func (r *rig) until(question, want string) {
	r.Helper()
	for {
		got := r.query(question)
		if len(got) == 1 && got[0] == want {
			return
		}
		if r.ctx.Err() != nil {
			r.Fatalf("%s: %q, want %q", question, got, want)
		}
	}
}

// process is a new process on the database, by options that change what they like.
func (r *rig) process(change ...func(*Options)) *Database {
	r.Helper()
	o := Options{DSN: r.dsn, Mode: r.mode}
	for _, c := range change {
		c(&o)
	}
	d, err := New(o)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := d.Close(); err != nil {
			r.Errorf("close: %v", err)
		}
	})
	return d
}

func generation(g uint64) participant.Opening {
	return participant.Opening{
		Namespace: participant.Namespace{Name: "ns", Incarnation: 1}, Scope: "orders/0", Member: "sink", Resource: "out",
		Generation: g, MaxPending: 4, EpochInterval: 100 * time.Millisecond,
	}
}

func epoch(g, n uint64) participant.BranchName {
	return participant.BranchName{Namespace: participant.Namespace{Name: "ns", Incarnation: 1}, Pipeline: "orders", Member: "sink", Resource: "out", Generation: g, N: n}
}

func (r *rig) opened(g uint64, change ...func(*Options)) *Database {
	r.Helper()
	d := r.process(change...)
	if err := d.Open(r.ctx, generation(g)); err != nil {
		r.Fatalf("open generation %d: %v", g, err)
	}
	return d
}

func (r *rig) begin(d *Database, g, n uint64, values ...string) *Branch {
	r.Helper()
	b, err := d.Begin(r.ctx, epoch(g, n))
	if err != nil {
		r.Fatalf("begin %d.%d: %v", g, n, err)
	}
	for _, v := range values {
		if err := put(r.ctx, b.(*Branch), v); err != nil {
			r.Fatalf("write %q: %v", v, err)
		}
	}
	return b.(*Branch)
}

// put writes a row into out.
func put(ctx context.Context, b *Branch, v string) error {
	if b.d.o.Mode == Staged {
		row, err := json.Marshal(map[string]string{"v": v})
		if err != nil {
			return err
		}
		return b.stage(ctx, Move{Schema: "public", Table: "out", Columns: []string{"v"}}, nil, [][]byte{row})
	}
	_, err := b.Exec(ctx, "INSERT INTO out VALUES ($1)", v)
	return err
}

func (r *rig) prepared(b *Branch) participant.Handle {
	r.Helper()
	v, err := b.Prepare(r.ctx)
	if err != nil || v.Kind != participant.Yes {
		r.Fatalf("prepare %s: vote %d, reason %v, error %v; want yes", b.gid, v.Kind, v.Reason, err)
	}
	return v.Handle
}

// refused checks that a branch votes no, and returns why.
func (r *rig) refused(b *Branch) error {
	r.Helper()
	v, err := b.Prepare(r.ctx)
	if err != nil || v.Kind != participant.No {
		r.Fatalf("prepare %s: vote %d, error %v; want no", b.gid, v.Kind, err)
	}
	return v.Reason
}

func (r *rig) commit(d *Database, h participant.Handle) participant.Proof {
	r.Helper()
	p, err := d.Commit(r.ctx, h)
	if err != nil || p.Verdict != participant.Committed {
		r.Fatalf("commit %s: verdict %d, evidence %q, error %v; want committed", h.Name, p.Verdict, p.Evidence, err)
	}
	return p
}

func (r *rig) rollback(d *Database, h participant.Handle) participant.Proof {
	r.Helper()
	p, err := d.Rollback(r.ctx, h)
	if err != nil || p.Verdict != participant.RolledBack {
		r.Fatalf("roll back %s: verdict %d, evidence %q, error %v; want rolled back", h.Name, p.Verdict, p.Evidence, err)
	}
	return p
}

func (r *rig) sees(want ...string) {
	r.Helper()
	if got := r.query("SELECT v FROM out ORDER BY v"); fmt.Sprint(got) != fmt.Sprint(want) {
		r.Fatalf("readers see %q, want %q", got, want)
	}
}

func (r *rig) is(d *Database, h participant.Handle, want participant.State) {
	r.Helper()
	if got, err := d.Inspect(r.ctx, h); err != nil || got != want {
		r.Fatalf("inspect %s: state %d, error %v; want %d", h.Name, got, err, want)
	}
}
