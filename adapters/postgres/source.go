package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// Changed says what a source makes of rows that changed after it had begun to read. It can only see them when it goes on
// in a new transaction, behind a restart: within one it reads the table as it was.
type Changed string

const (
	// ChangedFails: a row that was added or changed since the first transaction halts the pipeline; the default.
	ChangedFails Changed = "fail"
	// ChangedTaken: such rows are read as they are now.
	ChangedTaken Changed = "take"
)

// SourceConfig of a source. Zero values take the defaults.
type SourceConfig struct {
	// Name is the source's name in its pipeline, which its split carries; default "rows".
	Name string
	// DSN is the connection string. It holds the secret and appears nowhere else.
	DSN string
	// Pooler: the connection goes through a pooler in transaction mode.
	Pooler bool
	// Table is read, as Table.Name says it.
	Table string
	// Key columns say in which order rows are read, and where reading goes on. A unique index is over just these, and
	// none of them is ever null or changed.
	Key []string
	// Columns are read; default all.
	Columns []string
	// Changed; default ChangedFails.
	Changed Changed
	// BatchRecords is the most that one Poll returns; default 1024.
	BatchRecords int
	// Logger; default discards.
	Logger *slog.Logger
}

// Validate names every mistake at once.
func (c SourceConfig) Validate() error {
	var errs []error
	if err := checkDSN(c.DSN); err != nil {
		errs = append(errs, err)
	}
	if _, err := splitName(c.Table); err != nil {
		errs = append(errs, err)
	}
	if len(c.Key) == 0 {
		errs = append(errs, errors.New("the key columns are not set, in whose order rows are read"))
	}
	for _, name := range slices.Concat(c.Key, c.Columns) {
		if err := checkName(name); err != nil {
			errs = append(errs, err)
		}
	}
	switch c.Changed {
	case "", ChangedFails, ChangedTaken:
	default:
		errs = append(errs, fmt.Errorf("changed %q is not known; say fail or take", c.Changed))
	}
	if c.BatchRecords < 0 {
		errs = append(errs, fmt.Errorf("batches of %d records are not possible", c.BatchRecords))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("postgres source: %w: %w", participant.ErrMisconfigured, err)
	}
	return nil
}

// Source reads the rows of a table in the order of a key, up to the greatest one that it has at the start: as it was
// at that time, in one transaction. A record is a row as a JSON object; its key is the row's. One goroutine uses it at a
// time.
//
// A table is one split. Its position is the key of the last row, so reading goes on after a restart, in a
// transaction that sees the table as it is then. Rows that were added or changed since are noticed (see Changed), unless
// a transaction wrote them in a savepoint that was open when reading began; rows that were removed are not: they are not
// read, or were read before.
//
// The transaction lasts as long as reading does, and vacuum removes nothing meanwhile that it could see.
type Source struct {
	c    SourceConfig
	name pgx.Identifier

	conn *pgx.Conn // in the transaction; nil: not open
	q    queries
	now  snapshot // of the transaction
	at   position
	done bool // the end was told
	stop bool // nothing is left
	rows int64

	coming *fetching // whoever polls waits for it
	batch  stream.Batch
	arena  []byte
}

// NewSource makes a source; nothing is connected before Describe or Open.
func NewSource(c SourceConfig) (*Source, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Name == "" {
		c.Name = "rows"
	}
	if c.Changed == "" {
		c.Changed = ChangedFails
	}
	if c.BatchRecords == 0 {
		c.BatchRecords = 1024
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	name, err := splitName(c.Table)
	return &Source{c: c, name: name}, err
}

// Knows says that the source reads its table and nothing else.
func (s *Source) Knows(split string) error {
	if split != s.c.Table {
		return fmt.Errorf("source %q reads table %s, and %s has been read: %w", s.c.Name, s.c.Table, split, participant.ErrMisconfigured)
	}
	return nil
}

// Describe names the database and the table.
func (s *Source) Describe(ctx context.Context) (participant.Description, error) {
	conn, err := connect(ctx, s.c.DSN, s.c.Pooler)
	if err != nil {
		return participant.Description{}, err
	}
	defer hangUp(ctx, conn)
	d := participant.Description{Kind: Kind, Text: fmt.Sprintf("table %s of %s", s.c.Table, whereOf(conn.Config()))}
	err = conn.QueryRow(ctx, `SELECT s.system_identifier::text || '/' || d.oid::text FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()`).Scan(&d.Identity)
	if err != nil && !isCode(err, codeNoPrivilege) { // then it has no identity that we may know
		return participant.Description{}, fmt.Errorf("ask %s who it is: %w", whereOf(conn.Config()), err)
	}
	return d, nil
}

// Open begins to read behind the position, or at the first row. Where this process still has the transaction that the
// position is of, reading goes on in it.
func (s *Source) Open(ctx context.Context, from []stream.Position) error {
	s.settle()
	s.done, s.stop, s.rows = false, false, 0
	at := position{}
	for _, p := range from {
		if err := s.Knows(p.Split.ID); err != nil {
			return err
		}
		if err := at.read(p); err != nil {
			return err
		}
		s.rows = p.Offset
	}
	if len(at.Key) > 0 && len(at.Key) != len(s.c.Key) {
		return fmt.Errorf("source %q was read by a key of %d columns, and its key has %d now; take the one that it had: %w", s.c.Name, len(at.Key), len(s.c.Key), participant.ErrMisconfigured)
	}
	if at.Ended {
		at.begin() // it goes on behind what was there then
	}
	if s.conn != nil && !s.conn.IsClosed() && at.Snapshot != "" && at.Snapshot == s.now.text {
		s.at, s.stop = at, len(at.Until) == 0
		return nil
	}
	s.end(ctx)
	return s.begin(ctx, at)
}

// begin starts the transaction.
func (s *Source) begin(ctx context.Context, at position) error {
	conn, err := connect(ctx, s.c.DSN, s.c.Pooler)
	if err != nil {
		return err
	}
	if err := s.look(ctx, conn, &at); err != nil {
		hangUp(ctx, conn)
		return fmt.Errorf("begin to read table %s: %w", s.c.Table, err)
	}
	s.conn, s.at = conn, at
	return nil
}

// look fixes what is read.
func (s *Source) look(ctx context.Context, conn *pgx.Conn, at *position) error {
	if err := beginReading(ctx, conn); err != nil {
		return err
	}
	r, err := lookUp(ctx, conn, s.name)
	if err != nil {
		return err
	}
	m := &mistakes{table: shown(r.name)}
	columns := s.suits(m, r)
	if err := m.err(); err != nil {
		return err
	}
	s.q = newQueries(r, s.c.Key, columns)
	if s.now, err = takeSnapshot(ctx, conn); err != nil {
		return err
	}
	if at.Snapshot == "" {
		at.Snapshot = s.now.text
		if at.Until, err = s.q.last(ctx, conn, at.Key); err != nil {
			return err
		}
	}
	s.stop = len(at.Until) == 0
	return nil
}

// suits says what speaks against reading the table, and returns the columns to read.
func (s *Source) suits(m *mistakes, r *relation) []string {
	if r.kind != "r" && r.kind != "p" && r.kind != "m" {
		m.add("it is no table, so the versions of its rows are not known; name the table behind it")
	}
	if !r.schemaUsage {
		m.add("the role has no right to its schema; GRANT USAGE ON SCHEMA %s", pgx.Identifier{r.name[0]}.Sanitize())
	}
	columns := s.c.Columns
	if len(columns) == 0 {
		for _, c := range r.columns {
			columns = append(columns, c.name)
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(columns, s.c.Key)))) {
		c := r.column(name)
		switch {
		case c == nil:
			m.add("there is no column %q; it has %s", name, r.names())
		case !c.canSee:
			m.add("the role has no right to SELECT column %q; GRANT it, or leave the column out", name)
		case slices.Contains(s.c.Key, name) && !c.notNull:
			m.add("the key column %q may be null, and such rows would never be read; make it NOT NULL", name)
		}
	}
	if !r.uniqueOver(s.c.Key) {
		m.add("no unique index is over just %s, in whose order rows are to be read; create one", strings.Join(s.c.Key, ", "))
	}
	return columns
}

// Splits is the table.
func (s *Source) Splits() []stream.Split {
	return []stream.Split{s.split()}
}

func (s *Source) split() stream.Split { return stream.Split{Resource: s.c.Name, ID: s.c.Table} }

// fetching is a page on its way. It goes on when its caller stops waiting: a query that is cut short takes the connection
// and its snapshot with it. The next Poll has its rows.
type fetching struct {
	done   chan struct{} // closed when err stands
	cancel context.CancelFunc
	err    error
}

// fetch asks for the next page.
func (s *Source) fetch(ctx context.Context) *fetching {
	s.batch = stream.Batch{Split: s.split(), Records: s.batch.Records[:0], HighWater: -1}
	f := &fetching{done: make(chan struct{})}
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(f.done)
		if !s.stop {
			f.err = s.read(ctx)
		}
	}()
	return f
}

// Poll returns a page of rows. The last one says that the table has ended; then comes io.EOF.
func (s *Source) Poll(ctx context.Context) (*stream.Batch, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case s.done:
		return nil, io.EOF
	case s.conn == nil:
		return nil, fmt.Errorf("poll table %s: the source is not open, or its connection was lost: open it again", s.c.Table)
	}
	if s.coming == nil {
		s.coming = s.fetch(ctx)
	}
	select {
	case <-s.coming.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err := s.coming.err
	s.coming.cancel()
	s.coming = nil
	if err != nil {
		s.end(ctx) // the transaction is of no use any more
		return nil, fmt.Errorf("read table %s behind row %d: %w", s.c.Table, s.rows, err)
	}
	b := &s.batch
	b.Ended = s.stop
	s.done, s.at.Ended = s.stop, s.stop
	b.Next = stream.Position{Split: b.Split, Offset: s.rows, LeaderEpoch: -1, Opaque: s.at.write()}
	return b, nil
}

// Close ends the transaction.
func (s *Source) Close() error {
	s.end(context.Background())
	return nil
}

func (s *Source) end(ctx context.Context) {
	s.settle()
	if s.conn != nil {
		hangUp(ctx, s.conn)
		s.conn = nil
	}
}

// settle ends a page that nobody takes.
func (s *Source) settle() {
	if s.coming != nil {
		s.coming.cancel()
		<-s.coming.done
		s.coming = nil
	}
}

// connect makes a connection of its own.
func connect(ctx context.Context, dsn string, pooler bool) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", participant.ErrMisconfigured, checkDSN(dsn))
	}
	c.StatementCacheCapacity, c.DescriptionCacheCapacity = 0, 0
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	if c.RuntimeParams["application_name"] == "" && !pooler {
		c.RuntimeParams["application_name"] = "unisink"
	}
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", classed(err))
	}
	return conn, nil
}

// hangUp closes a connection whose work is done: nothing is lost if the server does not hear of it.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	_ = conn.Close(ctx)
}
