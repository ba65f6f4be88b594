package house

import (
	"context"
	"fmt"
	"net/rpc"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// Guest is a worker's way to the house. It implements participant.Resource: the accounts.
type Guest struct {
	who string
	c   *rpc.Client
}

// Visit connects a worker.
func Visit(socket, who string) (*Guest, error) {
	c, err := rpc.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("reach the house: %w", err)
	}
	return &Guest{who: who, c: c}, nil
}

// Note writes an event down; its At is set. It returns the number of a call.
func (g *Guest) Note(e check.Event) (call uint64, err error) {
	e.Who = g.who
	err = g.c.Call("House.Note", e, &call)
	return call, err
}

// Recent answers a transaction that somebody has called about lately; empty at the beginning.
func (g *Guest) Recent() (txn string, err error) {
	err = g.c.Call("House.Recent", Nothing{}, &txn)
	return txn, err
}

// call waits for an answer until ctx ends; then the call may have its effect all the same.
func (g *Guest) call(ctx context.Context, method string, args, reply any) error {
	call := g.c.Go("House."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if call.Error != nil {
			return fmt.Errorf("%s the accounts: %w", method, call.Error)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Describe implements participant.Resource.
func (g *Guest) Describe(ctx context.Context) (participant.Description, error) {
	return ask[participant.Description](ctx, g, "Describe", Nothing{})
}

// Open implements participant.Resource. What is run by hand is fenced by its decision alone.
func (g *Guest) Open(context.Context, participant.Opening) error { return nil }

// Begin implements participant.Resource. The branch is a *Branch.
func (g *Guest) Begin(_ context.Context, name participant.BranchName) (participant.Branch, error) {
	return &Branch{g: g, name: name}, nil
}

// Commit implements participant.Resource.
func (g *Guest) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	return ask[participant.Proof](ctx, g, "Commit", h)
}

// Rollback implements participant.Resource.
func (g *Guest) Rollback(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	return ask[participant.Proof](ctx, g, "Rollback", h)
}

// Inspect implements participant.Resource.
func (g *Guest) Inspect(ctx context.Context, h participant.Handle) (participant.State, error) {
	return ask[participant.State](ctx, g, "Inspect", h)
}

// List implements participant.Resource.
func (g *Guest) List(ctx context.Context, ns participant.Namespace) ([]participant.Listed, error) {
	return ask[[]participant.Listed](ctx, g, "List", ns)
}

// Close implements participant.Resource.
func (g *Guest) Close() error { return g.c.Close() }

// ask makes one call whose reply nobody else touches: after a context has ended the reply may still come.
func ask[T any](ctx context.Context, g *Guest, method string, args any) (T, error) {
	reply := new(T)
	if err := g.call(ctx, method, args, reply); err != nil {
		var zero T
		return zero, err
	}
	return *reply, nil
}

// Branch is one transaction's share of the accounts, written in the worker and sent when it is prepared.
type Branch struct {
	g       *Guest
	name    participant.BranchName
	records []string
	tried   bool
	vote    participant.Vote
}

// Write adds a record.
func (b *Branch) Write(record string) { b.records = append(b.records, record) }

// Prepare implements participant.Branch. A repeat whose first answer was lost prepares once more; then
// what the decision names is committed, and the other is dead.
func (b *Branch) Prepare(ctx context.Context) (participant.Vote, error) {
	if b.vote.Kind == participant.Yes {
		return b.vote, nil
	}
	b.tried = true
	vote, err := ask[participant.Vote](ctx, b.g, "Prepare", PrepareArgs{Name: b.name, Records: b.records})
	if err != nil {
		return participant.Vote{}, err
	}
	b.vote = vote
	return vote, nil
}

// Discard implements participant.Branch.
func (b *Branch) Discard(context.Context) error {
	if b.tried {
		return fmt.Errorf("discard %s: %w", b.name, participant.ErrPrepared)
	}
	return nil
}
