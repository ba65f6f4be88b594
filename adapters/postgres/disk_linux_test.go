package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

func TestAServerWhoseDiskIsFull(t *testing.T) {
	// Nothing else writes to the log.
	s := servicestest.OwnPostgres(t, services.PostgresConfig{Settings: map[string]string{
		"wal_level": "minimal", "max_wal_senders": "0", "autovacuum": "off", "checkpoint_timeout": "1d", "summarize_wal": "off",
	}})
	data := queryOn(t, s.DSN(), "SHOW data_directory")[0]
	small := filepath.Join(filepath.Dir(data), "small")
	servicestest.SmallDisk(t, small, 2, data) // the server wants it to the end
	t.Run("under the table", func(t *testing.T) { fullUnderTheTable(t, s, small) })
	t.Run("at prepare", func(t *testing.T) { fullAtPrepare(t, s) })
}

// The disk of the table is full. In mode prepared the vote is no, with the record's place; in mode staged the decided branch
// waits. Once there is room everything is there, once.
func fullUnderTheTable(t *testing.T, s *services.PostgresServer, small string) {
	queryOn(t, s.DSN(), "CREATE TABLESPACE small LOCATION "+literal(small), "SELECT ''")
	on := func(t *testing.T, mode Mode) (*rig, *Database) {
		queryOn(t, s.DSN(), "CREATE DATABASE "+mode.String(), "SELECT ''")
		r := rigOn(t, s.Database(mode.String()), mode)
		r.query("ALTER TABLE out SET TABLESPACE small", "SELECT ''")
		return r, r.opened(1, func(o *Options) { o.Tables = []Table{{Name: "out"}} })
	}
	record := func(n int64) stream.Record {
		return stream.Record{Topic: "in", Partition: 3, Offset: n, Value: fmt.Appendf(nil, `{"v":"%d"}`, n)}
	}
	write := func(r *rig, d *Database, n uint64, records ...stream.Record) *Branch {
		b := r.begin(d, 1, n)
		if err := b.Write(r.ctx, records); err != nil {
			r.Logf("told at the write: %v", err) // Prepare says it too
		}
		return b
	}
	t.Run("prepared", func(t *testing.T) {
		r, d := on(t, Prepared)
		free := servicestest.Fill(t, small)
		why := r.refused(write(r, d, 1, record(1), record(2)))
		oneSentence(t, why, "No space left on device", "out")
		if errors.Is(why, participant.ErrMisconfigured) {
			t.Errorf("the reason %v halts for good, and a disk gets room again", why)
		}
		free()
		r.commit(d, r.prepared(write(r, d, 2, record(1), record(2))))
		r.sees("1", "2")
	})
	t.Run("staged", func(t *testing.T) {
		r, d := on(t, Staged)
		h := r.prepared(write(r, d, 1, record(1), record(2)))
		r.query("VACUUM out", "SELECT ''") // Prepare has tried the rows, and their page is given back
		free := servicestest.Fill(t, small)
		oneSentence(t, r.refused(write(r, d, 2, record(3))), "No space left on device")
		p, err := d.Commit(r.ctx, h)
		if err == nil {
			t.Errorf("commit on a full disk: verdict %d by %q", p.Verdict, p.Evidence)
		}
		oneSentence(t, err, "No space left on device", "out")
		r.is(d, h, participant.Undecided)
		r.sees()
		free()
		r.commit(d, h)
		r.sees("1", "2")
	})
}

// The disk of the log is full at PREPARE TRANSACTION: the server stops at once, by its own rule, and does not come up before
// there is room. The vote is what the log says then; what was prepared before is still there.
func fullAtPrepare(t *testing.T, s *services.PostgresServer) {
	data := queryOn(t, s.DSN(), "SHOW data_directory")[0]
	wal := filepath.Join(data, "pg_wal")
	standing(t, s, func() error {
		kept := filepath.Join(filepath.Dir(data), "wal")
		if err := os.Rename(wal, kept); err != nil {
			return err
		}
		servicestest.SmallDisk(t, wal, 96, data)
		return copyAll(kept+"/.", wal)
	})
	// The server must be gone before its disk is.
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	r := rigOn(t, s.DSN(), Prepared)
	d := r.opened(1)
	kept := r.prepared(r.begin(d, 1, 1, "a"))
	b := r.begin(d, 1, 2, "b")
	// To the end of what is laid out of the log already.
	ahead := "SELECT count(*)::text FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$' AND name > pg_walfile_name(pg_current_wal_insert_lsn())"
	for r.query(ahead)[0] != "0" {
		r.query("SELECT pg_switch_wal()::text", "CREATE TABLE IF NOT EXISTS moves (v text)", "INSERT INTO moves VALUES ('')", "SELECT ''")
	}
	free := servicestest.Fill(t, wal)
	r.query("SELECT pg_switch_wal()::text")
	type answer struct {
		vote participant.Vote
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		v, err := b.Prepare(r.ctx)
		got <- answer{v, err}
	}()
	for s.Alive() && r.ctx.Err() == nil {
		select {
		case a := <-got:
			t.Fatalf("prepare on a full disk: vote %d, reason %v, error %v, and the server runs on", a.vote.Kind, a.vote.Reason, a.err)
		default:
		}
	}
	if tail := s.Tail(); !strings.Contains(tail, "No space left on device") {
		t.Errorf("the server's log ends:\n%s", tail)
	}
	free()
	if err := s.Restart(context.WithoutCancel(r.ctx)); err != nil {
		t.Fatal(err)
	}
	a := <-got
	if a.err != nil {
		t.Fatalf("nobody knows the vote, and the server is back: %v", a.err)
	}
	want := []string{"a"}
	if a.vote.Kind == participant.Yes {
		r.commit(d, a.vote.Handle)
		want = append(want, "b")
	} else {
		oneSentence(t, a.vote.Reason, "lost")
	}
	r.is(d, kept, participant.Undecided)
	r.commit(d, kept)
	r.sees(want...)
	if found, err := r.process().all(r.ctx, d.t.id); err != nil || len(found) != 0 {
		t.Errorf("left behind: %v, %v", found, err)
	}
}
