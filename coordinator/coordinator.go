package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/finish"
	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/raftnode"
	"github.com/unisink/unisink/coordinator/server"
	"github.com/unisink/unisink/coordinator/session"
	"github.com/unisink/unisink/internal/invariant"
	"github.com/unisink/unisink/internal/obs"
)

// ErrAddressInUse is wrapped when another process listens where this node wants to.
var ErrAddressInUse = errors.New("address in use")

// Coordinator is one node. Made by New, it runs once.
type Coordinator struct {
	c        Config
	node     *raftnode.Node
	events   *eventlog.Log
	sessions *session.Manager
	// hints is set once sessions hears effects; entries are applied before that, while the node opens.
	hints    atomic.Pointer[session.Manager]
	known    atomic.Uint64 // index of the last entry that the log held when the node started
	finisher *finish.Finisher
	server   *server.Server
	secure   security

	leaving chan struct{} // closed when the node is to hand over and end
	leave   func()        // closes it, once
}

// New opens the data directory and every port, so that a mistake is told before anything runs.
func New(c Config) (*Coordinator, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	secure, err := openSecurity(c)
	if err != nil {
		return nil, err
	}
	co := &Coordinator{c: c, secure: secure, events: eventlog.New(c.EventMemory, c.Logger.With(obs.Node(c.NodeID)))}
	client := c.Seams.Clients
	if client == nil {
		if client, err = listen(c.ClientBind, "clients"); err != nil {
			return nil, err
		}
	}
	var web net.Listener
	if c.HTTPBind != "" {
		if web, err = listen(c.HTTPBind, "HTTP"); err != nil {
			return nil, errors.Join(err, client.Close())
		}
	}
	rc := c.raft()
	rc.Effects = co.effects
	if co.node, err = raftnode.Open(rc); err != nil {
		errs := []error{err, client.Close()}
		if web != nil {
			errs = append(errs, web.Close())
		}
		return nil, errors.Join(errs...)
	}
	if c.Seams.Opened != nil {
		c.Seams.Opened(co.node)
	}
	co.known.Store(co.node.Status().LastIndex)
	co.leaving = make(chan struct{})
	co.leave = sync.OnceFunc(func() { close(co.leaving) })
	co.build(client, web)
	return co, nil
}

func (co *Coordinator) build(client, web net.Listener) {
	unknown := func(err error) bool { return errors.Is(err, raftnode.ErrUnknown) }
	tooLarge := func(err error) bool { return errors.Is(err, raftnode.ErrTooLarge) }
	log := skewed{co.node, co.c.Seams.Raft.Skew}
	edge := node{log, co.c.NodeID}
	co.sessions = session.New(session.Config{
		Log: log, Logger: co.c.Logger, Events: co.events.Add, Unknown: unknown, TooLarge: tooLarge,
		NotLeader: func() error { return server.NotLeader(edge) },
	})
	co.hints.Store(co.sessions)
	co.finisher = finish.New(finish.Config{
		Log: log, Logger: co.c.Logger, Retired: co.sessions.Retired, RetireEvery: co.c.RetireEvery, KeepFor: co.c.KeepFor,
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	co.server = server.New(co.secure.into(server.Config{
		Node: edge, Members: members{co.node, co.leave}, Sessions: sessions{co.sessions}, Events: co.events, InDoubt: co.inDoubt, Logger: co.c.Logger, Registry: registry,
		Listener: client, HTTP: web, HTTPOpen: co.c.HTTPOpen, Reflection: co.c.Reflection,
		HandTimeout: co.c.HandTimeout, Dial: co.c.Seams.Dial,
		Class: server.Classes{
			Unknown: unknown,
			NotLeader: func(err error) bool {
				return errors.Is(err, raftnode.ErrNotLeader) || errors.Is(err, raftnode.ErrNotBootstrapped)
			},
			TooLarge:     tooLarge,
			Bootstrapped: func(err error) bool { return errors.Is(err, raftnode.ErrBootstrapped) },
			Membership:   func(err error) bool { return errors.Is(err, raftnode.ErrMembership) },
			NoSuchNode:   func(err error) bool { return errors.Is(err, raftnode.ErrNoSuchNode) },
		},
	}))
}

func listen(addr, whom string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: another process listens at %s, where this node should serve %s", ErrAddressInUse, addr, whom)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for %s at %s: %w", whom, addr, err)
	}
	return l, nil
}

// Group says which group the node belongs to, for people.
func (co *Coordinator) Group() string {
	if !co.node.Status().Bootstrapped {
		return "none yet: waits for `unisink cluster bootstrap`"
	}
	name := "known once the log is applied"
	co.node.View(func(m *ledger.Machine) {
		if ns, _ := m.Namespace(); ns != "" {
			name = ns
		}
	})
	return name
}

// Run works until ctx ends, the node was told to hand over, or it must not go on. The order of the
// end: leading stops, leadership is handed over while the edge ends, then the log ends.
func (co *Coordinator) Run(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	// The log outlives what uses it.
	nodeCtx, stopNode := context.WithCancel(context.WithoutCancel(ctx))
	defer stopNode()
	nodeDone := make(chan error, 1)
	go func() { nodeDone <- co.node.Run(nodeCtx) }()

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return co.server.Run(ctx) })
	g.Go(func() error {
		err := co.follow(ctx)
		co.handOver(ctx)
		return err
	})
	g.Go(func() error {
		select {
		case <-co.leaving:
			end()
		case <-ctx.Done():
		}
		return nil
	})
	g.Go(func() error {
		select {
		case err := <-nodeDone:
			nodeDone <- err
			if err == nil {
				err = errors.New("the replicated log stopped")
			}
			return err
		case <-ctx.Done():
			return nil
		}
	})
	err := g.Wait()
	stopNode()
	return errors.Join(err, <-nodeDone)
}

// follow leads while this node leads, one term at a time.
func (co *Coordinator) follow(ctx context.Context) error {
	stop := func() error { return nil }
	// Only the newest state of leadership is delivered, and after a Barrier of the term.
	defer func() { _ = stop() }()
	for {
		select {
		case <-ctx.Done():
			return stop()
		case l := <-co.node.Leadership():
			if err := stop(); err != nil {
				return err
			}
			stop = func() error { return nil }
			co.server.SetServing(true)
			if l.Leader {
				co.events.Add(eventlog.Event{Kind: eventlog.Leader, Term: l.Term, Text: co.c.NodeID + " leads"}) //nolint:contextcheck // an event outlives the call that made it
				stop = co.lead(ctx, l.Term)
			}
		}
	}
}

// lead starts the leader's duties and returns what ends them and waits.
func (co *Coordinator) lead(ctx context.Context, term uint64) func() error {
	ctx, cancel := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return co.sessions.Lead(ctx, term) })
	g.Go(func() error { return co.finisher.Run(ctx) })
	if co.c.Leading != nil {
		g.Go(func() error { return co.c.Leading(ctx) })
	}
	var done error
	ended := false
	return func() error {
		if !ended {
			cancel()
			done, ended = g.Wait(), true
		}
		return done
	}
}

// effects are hints from applied entries, on every node; it never blocks.
func (co *Coordinator) effects(effects []ledger.Effect, index uint64) {
	if m := co.hints.Load(); m != nil {
		m.Effects(effects)
	}
	for _, e := range effects {
		ev := eventlog.Event{Scope: e.Scope, Epoch: e.Epoch, Text: e.Text, Index: index, Again: index <= co.known.Load()}
		switch e.Kind {
		case ledger.EffectDecided:
			ev.Kind = eventlog.Decided
		case ledger.EffectClosed:
			ev.Kind = eventlog.GenerationClosed
		case ledger.EffectOpened:
			ev.Kind = eventlog.GenerationOpened
		case ledger.EffectResolved:
			ev.Kind = eventlog.Proven
		case ledger.EffectHalted:
			ev.Kind = eventlog.Halted
			if u, is := ledger.ParseUndeterminable(e.Scope, e.Text); is {
				ev.Epoch, ev.Member = u.Epoch, u.Branch.Member
				if !ev.Again {
					co.server.CountBrokenPromise()
				}
			}
		case ledger.EffectHeuristic:
			ev.Kind = eventlog.Heuristic
			if !ev.Again {
				co.server.CountBrokenPromise()
			}
		case ledger.EffectTxn:
			ev.Kind, ev.Text = eventlog.Transaction, string(e.Txn)
		case ledger.EffectPipeline:
			continue // who changed it heard so; what follows from it has events of its own
		default:
			invariant.Must(false, "effect %d has no event", e.Kind)
		}
		co.events.Add(ev)
	}
}

// node gives the edge its view of the replicated log.
type node struct {
	skewed
	id string
}

// NodeStatus is what the node knows of itself.
func (n node) NodeStatus() server.NodeStatus {
	s := n.Status()
	out := server.NodeStatus{
		ID: n.id, State: s.State, Term: s.Term, LastIndex: s.LastIndex, AppliedIndex: s.AppliedIndex,
		SnapshotIndex: s.SnapshotIndex, Bootstrapped: s.Bootstrapped, Voters: s.Voters, RaftAddress: n.RaftAddress(),
	}
	if !s.Bootstrapped {
		out.State = "not bootstrapped"
	}
	if !s.LastContact.IsZero() {
		out.LeaderSilent = time.Since(s.LastContact)
	}
	return out
}

// inDoubt gives the edge what the finisher saw last.
func (co *Coordinator) inDoubt() server.InDoubt {
	a := co.finisher.Ages()
	return server.InDoubt{Unfinished: a.Unfinished, Oldest: a.Oldest, Debts: a.Debts}
}

// sessions gives the edge what it shows of the living.
type sessions struct{ *session.Manager }

// Living is what this node knows of a scope's members, if it leads.
func (s sessions) Living(id ledger.ScopeID) server.Living {
	st := s.Status(id)
	out := server.Living{RoundsOpen: st.RoundsOpen, OldestRound: st.OldestRound}
	for _, r := range st.Rounds {
		out.Rounds = append(out.Rounds, server.LivingRound{Epoch: r.Epoch, Age: r.Age, Missing: r.Missing, Left: r.Left})
	}
	for _, m := range st.Members {
		out.Members = append(out.Members, server.LivingMember{
			Name: m.Name, Instance: m.Instance, Attached: m.Attached, Phase: m.Phase, Lag: m.Lag,
			LeaseLeft: m.LeaseLeft, WaitingFor: m.WaitingFor, Texts: m.Texts,
		})
	}
	return out
}
