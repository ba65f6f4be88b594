package house

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/rpc"
	"sync"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// Names of the two resources that a transfer goes between.
const (
	Accounts = "accounts"
	Files    = "files"
)

// patience bounds a call in the house, which waits for nothing.
const patience = 10 * time.Second

// recentTxns are what workers are told about when they ask for somebody else's transaction.
const recentTxns = 64

// House serves the accounts and the book.
type House struct {
	book   *Book
	store  *participanttest.Store
	memory *participanttest.Memory
	l      net.Listener

	mu     sync.Mutex // guards the rest; held for memory only
	recent []string
	conns  map[net.Conn]bool
	closed bool
	wait   sync.WaitGroup
}

// Open serves at a socket until Close.
func Open(book *Book, socket string) (*House, error) {
	h := &House{book: book, store: participanttest.NewStore("the-accounts"), conns: map[net.Conn]bool{}}
	h.memory = h.store.Process()
	h.store.Watch(h.changed)
	var err error
	if h.l, err = net.Listen("unix", socket); err != nil {
		return nil, fmt.Errorf("listen for workers: %w", err)
	}
	h.wait.Go(h.accept)
	return h, nil
}

func (h *House) accept() {
	for {
		conn, err := h.l.Accept()
		if err != nil {
			return // closed
		}
		h.mu.Lock()
		if h.closed {
			_ = conn.Close()
		}
		h.conns[conn] = true
		h.mu.Unlock()
		h.wait.Go(func() {
			h.serve(conn)
			h.mu.Lock()
			delete(h.conns, conn)
			h.mu.Unlock()
		})
	}
}

// serve serves one life of a worker until it is gone; its calls that have no answer then get none.
func (h *House) serve(conn net.Conn) {
	s := &service{h: h, calls: map[uint64]bool{}}
	server := rpc.NewServer()
	if err := server.RegisterName("House", s); err != nil {
		panic(err) // its methods are as net/rpc wants them, which every run shows
	}
	server.ServeConn(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	h.book.Dead(maps.Keys(s.calls))
}

// Close ends the service. Workers get errors from then on.
func (h *House) Close() error {
	err := h.l.Close()
	h.mu.Lock()
	h.closed = true
	for conn := range h.conns {
		_ = conn.Close() // its worker sees that
	}
	h.mu.Unlock()
	h.wait.Wait()
	return err
}

// Prepared lists the branches that are prepared and not finished.
func (h *House) Prepared() []string { return h.store.Prepared() }

// Resource is the accounts for whoever lives in the house.
func (h *House) Resource() participant.Resource { return h.store.Process() }

// changed writes down what became so in the accounts.
func (h *House) changed(c participanttest.Change) {
	kinds := map[participanttest.Call]check.Kind{
		participanttest.CallPrepare: check.Prepared, participanttest.CallCommit: check.Committed, participanttest.CallRollback: check.RolledBack,
	}
	kind, known := kinds[c.Call]
	if !known {
		return // an open fences nothing of what is run by hand
	}
	h.book.Add(check.Event{
		Who: Accounts, Kind: kind, Store: Accounts, Handle: c.Handle, Records: c.Records,
		Branch: check.Branch{Txn: c.Name.Txn, Resource: c.Name.Resource},
	})
}

// service is what one life of a worker can call.
type service struct {
	h *House

	mu    sync.Mutex // guards calls; held for memory only
	calls map[uint64]bool
}

// Nothing is what a call without arguments or answer carries.
type Nothing struct{}

// PrepareArgs is a branch to be prepared.
type PrepareArgs struct {
	Name    participant.BranchName
	Records []string
}

// Note writes an event down and answers its number.
func (s *service) Note(e check.Event, call *uint64) error {
	if e.Kind == check.Invoke && e.Branch.Txn != "" {
		s.h.remember(e.Branch.Txn)
	}
	*call = s.h.book.Add(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	//exhaustive:ignore
	switch e.Kind {
	case check.Invoke:
		s.calls[*call] = true
	case check.Return:
		delete(s.calls, e.Call)
	}
	return nil
}

func (h *House) remember(txn string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.recent) == recentTxns {
		h.recent = h.recent[1:]
	}
	h.recent = append(h.recent, txn)
}

// Recent answers a transaction that somebody has called about lately; empty at the beginning.
func (s *service) Recent(_ Nothing, txn *string) error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if n := len(s.h.recent); n > 0 {
		*txn = s.h.recent[rand.IntN(n)]
	}
	return nil
}

// Describe is participant.Resource's.
func (s *service) Describe(_ Nothing, d *participant.Description) error {
	return in(func(ctx context.Context) (err error) { *d, err = s.h.memory.Describe(ctx); return err })
}

// Prepare begins a branch, writes it and prepares it in one call.
func (s *service) Prepare(a PrepareArgs, vote *participant.Vote) error {
	return in(func(ctx context.Context) error {
		b, err := s.h.memory.Begin(ctx, a.Name)
		if err != nil {
			return err
		}
		for _, r := range a.Records {
			if err := b.(*participanttest.MemoryBranch).Write(r); err != nil {
				return err
			}
		}
		*vote, err = b.Prepare(ctx)
		return err
	})
}

// Commit is participant.Resource's.
func (s *service) Commit(h participant.Handle, proof *participant.Proof) error {
	return in(func(ctx context.Context) (err error) { *proof, err = s.h.memory.Commit(ctx, h); return err })
}

// Rollback is participant.Resource's.
func (s *service) Rollback(h participant.Handle, proof *participant.Proof) error {
	return in(func(ctx context.Context) (err error) { *proof, err = s.h.memory.Rollback(ctx, h); return err })
}

// Inspect is participant.Resource's.
func (s *service) Inspect(h participant.Handle, state *participant.State) error {
	return in(func(ctx context.Context) (err error) { *state, err = s.h.memory.Inspect(ctx, h); return err })
}

// List is participant.Resource's.
func (s *service) List(ns participant.Namespace, listed *[]participant.Listed) error {
	return in(func(ctx context.Context) (err error) { *listed, err = s.h.memory.List(ctx, ns); return err })
}

func in(call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return call(ctx)
}
