package teller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/house"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// Config of a worker process.
type Config struct {
	Name         string // the same in every life
	Socket       string // of the house
	Files        string // directory that money goes to
	Coordinators []string
	Seed         uint64        // of what it does
	Pause        time.Duration // longest one between two transactions
	Sweep        bool          // finish what others have left, and do nothing else
}

// How long calls may take, and how often a question is asked that got no answer.
const (
	hurried     = 100 * time.Millisecond
	shortest    = 2 * time.Second
	longest     = 10 * time.Second
	again       = 3
	sweepAfter  = 5 * time.Second // what nobody knows this long after it was listed is asked for
	sweepLimit  = 40 * time.Second
	accountsNum = 10
)

// worker is one life of a teller.
type worker struct {
	c     Config
	rng   *rand.Rand
	house *house.Guest
	files *file.Sink
	cl    *participant.Client
	ns    participant.Namespace
}

// Run works until ctx ends. The end of ctx is no error.
func Run(ctx context.Context, c Config) (err error) {
	w := &worker{c: c, rng: rand.New(rand.NewPCG(c.Seed, uint64(time.Now().UnixNano())))}
	if w.house, err = house.Visit(c.Socket, c.Name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.house.Close()) }()
	if w.files, err = file.NewSink(file.SinkConfig{Dir: c.Files}); err != nil {
		return err
	}
	defer func() { _ = w.files.Close() }() //nolint:contextcheck // what was begun and not prepared goes also when ctx is over
	if w.cl, err = participant.NewClient(participant.ClientConfig{Coordinators: c.Coordinators, Actor: c.Name}); err != nil {
		return err
	}
	defer func() { _ = w.cl.Close() }() // nothing is under way on it
	if err := w.begin(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := w.turn(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		w.rest(ctx)
	}
	return nil
}

// begin opens the files, as often as it takes: nobody may lead yet.
func (w *worker) begin(ctx context.Context) (err error) {
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, longest)
		if w.ns, err = w.cl.Namespace(one); err == nil {
			err = w.cl.Open(one, w.c.Name, map[string]participant.Resource{house.Files: w.files})
		}
		cancel()
		if err == nil || errors.Is(err, participant.ErrMisconfigured) {
			return err
		}
		w.rest(ctx)
	}
	return nil
}

func (w *worker) rest(ctx context.Context) {
	t := time.NewTimer(w.c.Pause/4 + rand.N(w.c.Pause))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// turn is one thing that the worker does.
func (w *worker) turn(ctx context.Context) error {
	if w.c.Sweep {
		return w.sweep(ctx)
	}
	if w.rng.IntN(4) == 0 {
		txn, err := w.house.Recent()
		if err != nil {
			return err
		}
		if txn != "" {
			return w.ask(ctx, txn)
		}
	}
	return w.transfer(ctx)
}

// ask asks for the outcome of somebody's transaction, which aborts one that nobody has decided.
func (w *worker) ask(ctx context.Context, txn string) error {
	limit, cancel := context.WithTimeout(ctx, w.patience())
	defer cancel()
	var err error
	if w.rng.IntN(3) == 0 {
		_, err = w.call(house.OpAbort, txn, 0, func() (participant.Outcome, error) { return w.cl.Abort(limit, txn, "drawn") })
	} else {
		_, err = w.call(house.OpOutcome, txn, 0, func() (participant.Outcome, error) { return w.cl.Outcome(limit, txn) })
	}
	return err
}

// patience is how long a worker waits. One in three is in a hurry, so that answers get lost.
func (w *worker) patience() time.Duration {
	if w.rng.IntN(3) == 0 {
		return hurried + time.Duration(w.rng.Int64N(int64(shortest-hurried)))
	}
	return shortest + time.Duration(w.rng.Int64N(int64(longest-shortest)))
}

// call makes one call and keeps it in the book. The error is the book's.
func (w *worker) call(op, txn string, within time.Duration, do func() (participant.Outcome, error)) (check.Answer, error) {
	e := check.Event{Kind: check.Invoke, Op: op, Branch: check.Branch{Txn: txn}, Limit: within}
	nr, err := w.house.Note(e)
	if err != nil {
		return 0, err
	}
	out, err := do()
	e.Kind, e.Call, e.Answer = check.Return, nr, answer(op, out, err)
	if err != nil {
		e.Text = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if errors.Is(err, participant.ErrHeuristic) {
		if _, err := w.house.Note(check.Event{Kind: check.Heuristic, Branch: e.Branch, Text: e.Text}); err != nil {
			return 0, err
		}
	}
	_, err = w.house.Note(e)
	return e.Answer, err
}

// answer is what a caller has learnt.
func answer(op string, out participant.Outcome, err error) check.Answer {
	switch {
	case out == participant.OutcomePending && err == nil:
		return check.AnswerDone
	case out == participant.OutcomeCommitted:
		return check.AnswerCommitted // proven or not
	case out == participant.OutcomeAborted:
		return check.AnswerAborted
	case errors.Is(err, participant.ErrContradicts) && op == house.OpBegin: // it is decided
		return check.AnswerRefused
	case errors.Is(err, participant.ErrRefused) && !errors.Is(err, participant.ErrOutcomeUnknown):
		return check.AnswerRefused
	}
	return check.AnswerUnknown
}

// sweep finishes what others have left.
func (w *worker) sweep(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	e := check.Event{Kind: check.Invoke, Op: house.OpSweep}
	nr, err := w.house.Note(e)
	if err != nil {
		return err
	}
	done, err := w.cl.Sweep(limit, map[string]participant.Resource{house.Accounts: w.house, house.Files: w.files}, sweepAfter)
	e.Kind, e.Call, e.Records, e.Answer = check.Return, nr, done.Aborted, check.AnswerDone
	e.Text = fmt.Sprintf("committed %d, rolled back %d, undecided %d", done.Committed, done.RolledBack, done.Undecided)
	if err != nil {
		e.Answer, e.Text = check.AnswerUnknown, e.Text+": "+strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if errors.Is(err, participant.ErrHeuristic) {
		if _, err := w.house.Note(check.Event{Kind: check.Heuristic, Text: e.Text}); err != nil {
			return err
		}
	}
	_, err = w.house.Note(e)
	return err
}
