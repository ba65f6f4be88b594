package postgres

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/unisink/unisink/participant"
)

// Kind is what handles and descriptions of this adapter say.
const Kind = "postgres"

// Mode is how branches are kept until they are decided.
type Mode uint8

const (
	modeUnset Mode = iota
	// Prepared transactions: rows and marker in one PREPARE TRANSACTION. Locks of what was written are
	// held until the branch is finished. The default.
	Prepared
	// Staged: rows wait in a logged table and are moved by a short transaction; no locks are held meanwhile.
	Staged
)

// String is the mode's name in settings and handles.
func (m Mode) String() string {
	switch m {
	case Prepared:
		return "prepared"
	case Staged:
		return "staged"
	case modeUnset:
	}
	return "unset"
}

// ParseMode reads what String writes.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "prepared":
		return Prepared, nil
	case "staged":
		return Staged, nil
	}
	return 0, fmt.Errorf("mode %q is not known; say prepared or staged", s)
}

// Options of a database. Zero values take the defaults.
type Options struct {
	// DSN is the connection string: URL or key=value. It holds the secret and appears nowhere else.
	DSN string
	// Mode; default Prepared. Branches of the other mode are finished and listed all the same.
	Mode Mode
	// Tables that records are written to. Empty for those who write by Branch.Exec.
	Tables []Table
	// Pooler: connections go through a pooler in transaction mode (pgbouncer ≥ 1.18). Nothing is then
	// kept in a session: no prepared statements, no settings.
	Pooler bool
	// LockTimeout bounds the wait of one statement for a lock; then the vote is No and names who holds
	// it. A branch that waits for a prepared one of another member waits for ever otherwise. Default 5s.
	LockTimeout time.Duration
	// Retention is how long markers are kept at least; default 30 days. It must be longer than any
	// decided branch may stay unfinished: without its marker a commit can't be proven any more.
	Retention time.Duration
	// Finishers bounds the connections that finish, list and look up beside those of open branches; default 16.
	Finishers int
	// Logger; default discards.
	Logger *slog.Logger

	dial pgconn.DialFunc // replaces the network in tests
}

const (
	defaultLockTimeout = 5 * time.Second
	defaultRetention   = 30 * 24 * time.Hour
	minRetention       = time.Hour
	defaultFinishers   = 16
)

// Validate names every mistake at once.
func (o Options) Validate() error {
	var errs []error
	if err := checkDSN(o.DSN); err != nil {
		errs = append(errs, err)
	}
	if o.Mode > Staged {
		errs = append(errs, fmt.Errorf("mode %d is not known; say prepared or staged", o.Mode))
	}
	if o.LockTimeout != 0 && o.LockTimeout < time.Millisecond {
		errs = append(errs, fmt.Errorf("a lock time-out of %s is not possible: it is at least a millisecond", o.LockTimeout))
	}
	if o.Retention != 0 && o.Retention < minRetention {
		errs = append(errs, fmt.Errorf("a retention of %s is too short for markers: it is at least %s", o.Retention, minRetention))
	}
	if o.Finishers < 0 {
		errs = append(errs, fmt.Errorf("%d finishers are not possible", o.Finishers))
	}
	for _, t := range o.Tables {
		if err := t.check(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("postgres: %w: %w", participant.ErrMisconfigured, err)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Mode == modeUnset {
		o.Mode = Prepared
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = defaultLockTimeout
	}
	if o.Retention == 0 {
		o.Retention = defaultRetention
	}
	if o.Finishers == 0 {
		o.Finishers = defaultFinishers
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
