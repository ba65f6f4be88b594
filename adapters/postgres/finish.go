package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// tries bounds how often one call of Commit or Rollback asks a server that gave no clear answer; its
// caller asks again after that.
const tries = 8

// Commit makes a prepared branch visible; any process may, opened or not. The answer of a clean
// COMMIT PREPARED is the proof. Whatever else comes back, a lost connection above all, is looked up:
// in the list, then by the marker. An error means unknown, never failed (O2, O3, O6).
func (d *Database) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	id, b, err := d.mine(ctx, h)
	if err != nil {
		return participant.Proof{}, err
	}
	if b.Mode == Staged.String() {
		return d.finish(ctx, id, b, participant.Committed, d.moveStaged)
	}
	return d.finish(ctx, id, b, participant.Committed, d.endPrepared("COMMIT PREPARED"))
}

// Rollback drops a prepared branch, with the same freedom as Commit.
func (d *Database) Rollback(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	id, b, err := d.mine(ctx, h)
	if err != nil {
		return participant.Proof{}, err
	}
	if b.Mode == Staged.String() {
		return d.finish(ctx, id, b, participant.RolledBack, d.dropStaged)
	}
	return d.finish(ctx, id, b, participant.RolledBack, d.endPrepared("ROLLBACK PREPARED"))
}

// Inspect looks without changing anything.
func (d *Database) Inspect(ctx context.Context, h participant.Handle) (participant.State, error) {
	id, b, err := d.mine(ctx, h)
	if err != nil {
		return 0, err
	}
	f, _, err := d.look(ctx, id, b)
	if err != nil {
		return 0, err
	}
	switch f {
	case isPrepared, isRunning:
		return participant.Undecided, nil
	case isCommitted:
		return participant.StateCommitted, nil
	case isGone:
		return participant.StateRolledBack, nil
	case isUnclear, isUntold, findingUnset:
	}
	return participant.Unknown, nil
}

// mine reads a handle and checks that it is this database's.
func (d *Database) mine(ctx context.Context, h participant.Handle) (identity, body, error) {
	if h.Kind != Kind { // said without asking a server
		_, err := identity{}.readHandle(h)
		return identity{}, body{}, err
	}
	id, err := d.known(ctx)
	if err != nil {
		return identity{}, body{}, err
	}
	b, err := id.readHandle(h)
	return id, b, err
}

// effect does what a finisher wants once. A proof without a verdict and without an error: there was
// nothing to end, so look how it ended.
type effect func(ctx context.Context, id identity, b body) (participant.Proof, error)

// errBusy: another finisher is at it.
var errBusy = errors.New("another finisher is ending it")

// finish does the effect until its outcome is proven.
func (d *Database) finish(ctx context.Context, id identity, b body, want participant.Verdict, do effect) (participant.Proof, error) {
	wait := pause{next: time.Millisecond, most: 200 * time.Millisecond}
	var last error
	for range tries {
		p, err := do(ctx, id, b)
		if err == nil && p.Verdict != 0 {
			return p, nil
		}
		if mutant.On("postgres/lost-answer-is-unknown") && err != nil && !errors.Is(err, errBusy) {
			return participant.Proof{Verdict: participant.RolledBack, Evidence: err.Error()}, nil
		}
		if noRepeatHelps(err) || ctx.Err() != nil {
			return participant.Proof{}, errors.Join(err, context.Cause(ctx))
		}
		last = err
		f, evidence, err := d.look(ctx, id, b)
		if err != nil {
			last = together(last, err)
		} else if p, err := conclude(f, evidence, b, want); err != nil || p.Verdict != 0 {
			return p, err
		}
		if err := wait.wait(ctx); err != nil {
			return participant.Proof{}, errors.Join(last, err)
		}
	}
	if last == nil {
		last = errBusy
	}
	return participant.Proof{}, fmt.Errorf("finish %s in database %s: the outcome is not known yet: %w: %w", b.GID, id.database, participant.ErrRetry, last)
}

func noRepeatHelps(err error) bool {
	return errors.Is(err, participant.ErrMisconfigured) || errors.Is(err, participant.ErrBug) || errors.Is(err, participant.ErrUndeterminable)
}

// together is two errors in one sentence.
func together(one, two error) error {
	if one == nil || two == nil {
		return errors.Join(one, two)
	}
	return fmt.Errorf("%w; %w", one, two)
}

// conclude makes a proof of what was found, where it is one. Neither proof nor error: ask again.
func conclude(f finding, evidence string, b body, want participant.Verdict) (participant.Proof, error) {
	switch f {
	case isCommitted:
		return participant.Proof{Verdict: participant.Committed, Evidence: evidence}, nil
	case isGone:
		return participant.Proof{Verdict: participant.RolledBack, Evidence: evidence}, nil
	case isUntold:
		if want == participant.RolledBack {
			// What was never prepared may be rolled back. Nothing was read that proves it.
			return participant.Proof{Verdict: participant.RolledBack, Evidence: evidence}, nil
		}
		return participant.Proof{}, untold(b, evidence)
	case isUnclear:
		return participant.Proof{}, untold(b, evidence)
	case isPrepared, isRunning, findingUnset:
	}
	return participant.Proof{}, nil
}

// untold is the answer where nothing is left that would tell how a branch ended. What brings it back is a person alone.
func untold(b body, evidence string) error {
	if mutant.On("postgres/undeterminable") {
		return fmt.Errorf("%s can't be proven: %s: %w", b.GID, evidence, participant.ErrRetry)
	}
	return fmt.Errorf("%s can't be proven: %s; its rows tell: %w", b.GID, evidence, participant.ErrUndeterminable)
}

// endPrepared is COMMIT PREPARED or ROLLBACK PREPARED: one statement, one round trip.
func (d *Database) endPrepared(verb string) effect {
	verdict := participant.Committed
	if strings.HasPrefix(verb, "ROLLBACK") {
		verdict = participant.RolledBack
	}
	return func(ctx context.Context, id identity, b body) (p participant.Proof, err error) {
		err = d.with(ctx, func(c *pgx.Conn) error {
			fault.Point("postgres/before-finish")
			tag, err := c.Exec(ctx, verb+" "+literal(b.GID))
			fault.Point("postgres/after-finish")
			if isCode(err, codeNoPrivilege) && serverError(c, err) != nil {
				return d.endAsOwner(ctx, c, verb, b, err, &p, verdict)
			}
			if err == nil && tag.String() == verb {
				p = participant.Proof{Verdict: verdict, Evidence: verb + " of " + b.GID}
			}
			return answered(c, err, id, b)
		})
		return p, err
	}
}

// answered reads the server's refusal to end a prepared transaction: nil when it has none of that name.
func answered(c *pgx.Conn, err error, id identity, b body) error {
	p := serverError(c, err)
	if p == nil {
		return err
	}
	switch p.Code {
	case codeUndefinedObject:
		return nil
	case codeNotInState:
		return fmt.Errorf("%w: %w", errBusy, err)
	case codeNotSupported:
		return fmt.Errorf("%s belongs to another database than %s: %w: %w", b.GID, id.database, participant.ErrBug, err)
	case codeReadOnly:
		return standby(id.where)
	}
	return err
}

// endAsOwner ends a prepared transaction that another role owns. Only its owner or a superuser may;
// whoever is a member of the owner has to become it first. The session is thrown away afterwards.
func (d *Database) endAsOwner(ctx context.Context, c *pgx.Conn, verb string, b body, denied error, p *participant.Proof, verdict participant.Verdict) error {
	owner, err := d.ask(ctx, c, "SELECT owner FROM pg_prepared_xacts WHERE gid = $1", b.GID)
	if err != nil || owner == "" {
		return err
	}
	no := func(why error) error {
		return fmt.Errorf("%s was prepared by role %s, and only that role or a superuser may finish it: connect as %s, or GRANT %s to this role: %w: %w",
			b.GID, owner, owner, owner, participant.ErrMisconfigured, why)
	}
	if d.o.Pooler {
		return no(denied) // a role that is set would stay in a session of somebody else
	}
	if _, err := c.Exec(ctx, "SET ROLE "+pgx.Identifier{owner}.Sanitize()); err != nil {
		if serverError(c, err) != nil {
			return no(err)
		}
		return err
	}
	tag, err := c.Exec(ctx, verb+" "+literal(b.GID))
	if err == nil && tag.String() == verb {
		*p = participant.Proof{Verdict: verdict, Evidence: verb + " of " + b.GID + " as " + owner}
	} else if isCode(err, codeUndefinedObject) {
		err = nil
	}
	return errors.Join(err, c.Close(ctx))
}
