package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// step is one statement of a pipeline. With a name it is prepared once per connection, unless a
// pooler stands between; without, it is parsed each time. Parameters and results travel as text.
type step struct {
	name string
	sql  string
	args []string
}

// answer is what a step returned.
type answer struct {
	tag  string
	rows [][]string // NULL is the empty string
}

// one is the value of the only column of the first row, or "".
func (a answer) one() string {
	if len(a.rows) == 0 || len(a.rows[0]) == 0 {
		return ""
	}
	return a.rows[0][0]
}

// pipeline sends groups of steps in one round trip and returns their answers in order. A Sync ends
// each group: within a group an error skips the rest, and the first error of any group is returned,
// with the answers before it. Whatever group it was in, all groups have been sent.
func (d *Database) pipeline(ctx context.Context, c *pgx.Conn, groups ...[]step) ([]answer, error) {
	if err := d.nameSteps(ctx, c, groups); err != nil {
		return nil, err
	}
	p := c.PgConn().StartPipeline(ctx)
	for _, g := range groups {
		for _, s := range g {
			if s.name == "" || d.o.Pooler {
				p.SendQueryParams(s.sql, values(s.args), nil, nil, nil)
			} else {
				p.SendQueryPrepared(s.name, values(s.args), nil, nil)
			}
		}
		p.SendPipelineSync()
	}
	var out []answer
	err := p.Flush()
	for err == nil {
		var got any
		if got, err = p.GetResults(); got == nil {
			break
		}
		if r, ok := got.(*pgconn.ResultReader); ok {
			res := r.Read()
			if err = res.Err; err == nil {
				out = append(out, answer{tag: res.CommandTag.String(), rows: texts(res.Rows)})
			}
		}
	}
	if ended := p.Close(); err == nil {
		err = ended
	}
	return out, err
}

// nameSteps prepares what this connection does not know yet.
func (d *Database) nameSteps(ctx context.Context, c *pgx.Conn, groups [][]step) error {
	if d.o.Pooler {
		return nil
	}
	for _, g := range groups {
		for _, s := range g {
			if s.name == "" {
				continue
			}
			if _, err := c.Prepare(ctx, s.name, s.sql); err != nil {
				return err
			}
		}
	}
	return nil
}

func values(args []string) [][]byte {
	out := make([][]byte, len(args))
	for i, a := range args {
		out[i] = []byte(a)
	}
	return out
}

func texts(rows [][][]byte) [][]string {
	out := make([][]string, len(rows))
	for i, r := range rows {
		out[i] = make([]string, len(r))
		for j, v := range r {
			out[i][j] = string(v)
		}
	}
	return out
}

// serverError returns the server's own error where it is certain: the server refused the statement and
// the connection lives on. After any other error nobody knows what became of the statement: a server
// that is being shut down (57P01) says so while the statement may have been done (O3).
func serverError(c *pgx.Conn, err error) *pgconn.PgError {
	var p *pgconn.PgError
	if errors.As(err, &p) && !c.IsClosed() && p.SeverityUnlocalized != "FATAL" && p.SeverityUnlocalized != "PANIC" {
		return p
	}
	return nil
}

// isCode reports whether err is the server's, with one of these SQLSTATEs.
func isCode(err error, codes ...string) bool {
	var p *pgconn.PgError
	if !errors.As(err, &p) {
		return false
	}
	for _, c := range codes {
		if p.Code == c {
			return true
		}
	}
	return false
}

// The SQLSTATEs that are branched on.
const (
	codeUndefinedObject  = "42704" // no such prepared transaction
	codeDuplicateObject  = "42710" // a prepared transaction of that name
	codeNotInState       = "55000" // another backend is finishing it
	codeLockNotAvailable = "55P03"
	codeNoPrivilege      = "42501"
	codeNotSupported     = "0A000" // it belongs to another database
	codeUniqueViolation  = "23505"
	codeUndefinedTable   = "42P01"
	codeInvalidSchema    = "3F000"
	codeInvalidParameter = "22023" // a transaction id of the future
	codeReadOnly         = "25006"
	codeDivisionByZero   = "22012"
	codeNoStatement      = "26000" // a prepared statement is not there
)
