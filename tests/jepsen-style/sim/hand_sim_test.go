package sim_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// hand is a client that runs transactions by hand, one after the other.
type hand struct {
	w    *world
	name string

	mu       sync.Mutex // guards the rest
	host     *host
	memories map[string]*participanttest.Memory
	cancel   context.CancelFunc // of the present process
}

// work runs transactions until ctx ends. A process that is killed is followed by another one, which
// knows nothing of the transactions before.
func (h *hand) work(ctx context.Context) {
	for ctx.Err() == nil {
		h.process(ctx)
	}
}

func (h *hand) process(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.mu.Lock()
	h.host, h.cancel, h.memories = h.w.nodes.host(h.name), cancel, map[string]*participanttest.Memory{}
	for alias, store := range h.w.accounts {
		h.memories[alias] = store.Process()
		h.memories[alias].SetHook(func(context.Context, participanttest.Call, participanttest.When, string) error {
			time.Sleep(time.Duration(100+h.w.draw(2900)) * time.Microsecond)
			return nil
		})
	}
	memories := h.memories
	cl := h.w.nodes.client(h.host, h.w.nodes.addresses()...)
	h.mu.Unlock()
	defer func() { _ = cl.Close() }()
	ns := participant.Namespace{Name: namespace, Incarnation: 1}
	for ctx.Err() == nil {
		pause(ctx, time.Duration(50+h.w.draw(400))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		if old := h.w.someTxn(); old != "" && h.w.draw(4) == 0 {
			h.ask(ctx, cl, old)
			continue
		}
		id, err := participant.NewTxnID()
		if err != nil {
			h.w.complain("%v", err)
			return
		}
		h.w.addTxn(id)
		h.transfer(ctx, cl, ns, id, memories)
	}
}

// transfer takes one from an account and puts it on another.
func (h *hand) transfer(ctx context.Context, cl *participant.Client, ns participant.Namespace, id string, memories map[string]*participanttest.Memory) {
	limit, cancel := context.WithTimeout(ctx, time.Duration(2+h.w.draw(8))*time.Second)
	defer cancel()
	if h.w.draw(3) == 0 {
		aliases := []string{"left", "right"}
		h.call("begin", id, func() (participant.Outcome, error) {
			_, err := cl.Begin(limit, id, aliases, time.Duration(1+h.w.draw(20))*time.Second)
			return participant.OutcomePending, err
		})
	}
	var branches []participant.TxnBranch
	for alias, m := range memories {
		b, err := m.Begin(limit, participant.BranchName{Namespace: ns, Resource: alias, Txn: id})
		if err != nil {
			return // killed
		}
		if err := b.(*participanttest.MemoryBranch).Write(alias + " " + id); err != nil {
			return
		}
		branches = append(branches, participant.TxnBranch{Name: alias, Resource: m, Branch: b})
	}
	answer := h.call("commit", id, func() (participant.Outcome, error) { return cl.RunTxn(limit, id, branches) })
	// Unknown: ask again, by the same call, as the SDK says one may; or leave it to somebody else.
	for range 3 {
		if answer != check.AnswerUnknown || h.w.draw(3) == 0 || ctx.Err() != nil {
			return
		}
		answer = h.call("commit", id, func() (participant.Outcome, error) {
			again, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			return cl.RunTxn(again, id, branches)
		})
	}
}

// ask asks for the outcome of somebody's transaction, which aborts one that nobody has decided.
func (h *hand) ask(ctx context.Context, cl *participant.Client, id string) {
	limit, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if h.w.draw(3) == 0 {
		h.call("abort", id, func() (participant.Outcome, error) { return cl.Abort(limit, id, "simulated") })
		return
	}
	h.call("outcome", id, func() (participant.Outcome, error) { return cl.Outcome(limit, id) })
}

// call makes one call and keeps it in the history.
func (h *hand) call(op, id string, do func() (participant.Outcome, error)) check.Answer {
	n := h.w.nextCall()
	branch := check.Branch{Txn: id}
	h.w.hist.Add(check.Event{Who: h.name, Kind: check.Invoke, Call: n, Op: op, Branch: branch})
	out, err := do()
	answer := answerOf(op, out, err)
	text := ""
	if err != nil {
		text = err.Error()
	}
	h.w.hist.Add(check.Event{Who: h.name, Kind: check.Return, Call: n, Op: op, Branch: branch, Answer: answer, Text: text})
	return answer
}

func answerOf(op string, out participant.Outcome, err error) check.Answer {
	switch {
	case out == participant.OutcomePending && err == nil:
		return check.AnswerDone
	case out == participant.OutcomeCommitted:
		return check.AnswerCommitted // proven or not
	case out == participant.OutcomeAborted:
		return check.AnswerAborted
	case errors.Is(err, participant.ErrContradicts) && op == "begin": // somebody's question has aborted it
		return check.AnswerRefused
	case errors.Is(err, participant.ErrRefused) && !errors.Is(err, participant.ErrOutcomeUnknown):
		return check.AnswerRefused
	}
	return check.AnswerUnknown
}

// kill ends the client's process in the middle of whatever it does.
func (h *hand) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.memories {
		m.Crash()
	}
	h.host.die()
	h.cancel()
}

// finishByHand ends what clients left prepared, as a resolver does: it asks for the outcome of each
// transaction and brings the branch to it.
func (w *world) finishByHand(ctx context.Context, cl *participant.Client) {
	ns := participant.Namespace{Name: namespace, Incarnation: 1}
	h := &hand{w: w, name: "resolver"}
	for alias, store := range w.accounts {
		m := store.Process()
		found, err := m.List(ctx, ns)
		if err != nil {
			w.complain("list %s: %v", alias, err)
		}
		for _, x := range found {
			out := participant.OutcomePending
			for range 60 { // an announced one is undecided until its deadline has passed
				h.call("outcome", x.Name.Txn, func() (participant.Outcome, error) {
					var err error
					out, err = cl.Outcome(ctx, x.Name.Txn)
					return out, err
				})
				if out != participant.OutcomePending {
					break
				}
				pause(ctx, time.Second)
			}
			var proof participant.Proof
			switch out {
			case participant.OutcomeCommitted:
				proof, err = m.Commit(ctx, x.Handle)
			case participant.OutcomeAborted:
				proof, err = m.Rollback(ctx, x.Handle)
			default:
				err = fmt.Errorf("the outcome of %s is %s", x.Name.Txn, out)
			}
			if err == nil {
				err = cl.Resolve(ctx, x.Name.Txn, alias, proof)
			}
			if err != nil && !errors.Is(err, participant.ErrNotFound) {
				w.complain("finish %s: %v", x.Name, err)
			}
		}
	}
}
