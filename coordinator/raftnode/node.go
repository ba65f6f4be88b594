package raftnode

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/invariant"
	"github.com/unisink/unisink/internal/mutant"
)

const (
	entriesOnTheWay = 2               // shared entries between proposal and answer
	closeLimit      = 2 * time.Second // for a failed node, whose disk may hang
)

// Node is one replica of the ledger. All methods may be called from any goroutine.
type Node struct {
	config    Config
	raft      *raft.Raft
	address   string
	fsm       *fsm
	store     *store
	transport *guarded
	disk      *logDisk // nil in memory
	probation *probation
	proposer  *proposer
	stop      *failStop
	identity  identity // of the goroutine of Run, after Open

	role *role

	changing  atomic.Bool   // a change of the members is under way
	closing   chan struct{} // closed when Close begins
	over      chan struct{} // closed when the library has ended
	closeOnce sync.Once
	closeErr  error
}

// Open opens the data directory, listens and starts to take part in the group, as a follower.
// Proposals are answered once Run runs; who does not call Run calls Close.
func Open(c Config) (*Node, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	n := &Node{
		config: c, stop: newFailStop(c.OnFatal),
		role: &role{latest: make(chan Leadership, 1), changed: make(chan struct{})}, closing: make(chan struct{}), over: make(chan struct{}),
	}
	n.fsm = &fsm{machine: ledger.New(), wanted: c.Namespace, effects: c.Effects, named: make(chan struct{}, 1), stop: n.stop}
	if err := n.open(); err != nil {
		return nil, err
	}
	n.proposer = newProposer(c.MaxInFlight, entriesOnTheWay, n.stop, func(entry []byte) raft.ApplyFuture {
		return endWith(n.raft.Apply(entry, 0), n.over)
	})
	n.proposer.stamps.skew = c.Seams.Skew
	return n, nil
}

// open does what can fail, and undoes it when a later step does.
func (n *Node) open() (err error) {
	var undo []func() error
	defer func() {
		for i := len(undo) - 1; err != nil && i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()
	files, err := n.openDisk()
	if n.disk != nil {
		undo = append(undo, n.disk.Close)
	}
	if err != nil {
		return err
	}
	snapshots := newestOnly{files, n.stop}
	if err := n.store.whole(n.identity, snapshots); err != nil {
		return err
	}
	if !n.config.Seams.TrustEmptied && !mutant.On("raft/emptied-votes") {
		if n.probation, err = begin(n.store, snapshots, n.config.Logger); err != nil {
			return err
		}
	}
	var self atomic.Pointer[raft.Raft] // the transport listens before raft is there
	transport := n.config.Seams.Transport
	if transport == nil {
		members := func() map[string]string {
			if r := self.Load(); r != nil {
				return addresses(r)
			}
			return map[string]string{n.config.NodeID: n.config.RaftAdvertise} // nobody yet
		}
		if transport, err = openNetwork(n.config, members); err != nil {
			return err
		}
	}
	n.transport, n.address = guard(transport, n.config.Logger), string(transport.LocalAddr())
	undo = append(undo, n.transport.Close)
	n.transport.probation, n.transport.founded = n.probation, n.founded
	n.transport.term = func() uint64 {
		if r := self.Load(); r != nil {
			return r.CurrentTerm()
		}
		return 0
	}
	n.raft, err = n.startRaft(snapshots)
	if n.raft != nil {
		self.Store(n.raft)
		undo = append(undo, func() error { return n.raft.Shutdown().Error() })
	}
	if cause := n.stop.opened(); cause != nil {
		return cause
	}
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	return nil
}

// startRaft starts the library, which panics where it cannot read its log; that has been noted.
func (n *Node) startRaft(snapshots raft.SnapshotStore) (r *raft.Raft, err error) {
	defer func() {
		if n.stop.opening.Load() != nil {
			if v := recover(); v != nil {
				err = fmt.Errorf("read the log: %v", v)
			}
		}
	}()
	r, err = raft.NewRaft(n.config.raftConfig(), n.fsm, n.store, n.store, snapshots, n.transport)
	if mutant.On("raft/explicit-bootstrap") && err == nil && len(servers(r)) == 0 {
		self := ledger.Node{ID: n.config.NodeID, RaftAddress: n.address}
		err = r.BootstrapCluster(configuration([]ledger.Node{self})).Error()
	}
	return r, err
}

// openDisk opens log, stable store and snapshots, those of the seams where they are set.
func (n *Node) openDisk() (raft.SnapshotStore, error) {
	c := n.config
	n.store = &store{logs: c.Seams.Logs, stable: c.Seams.Stable, stop: n.stop, limit: c.WriteWatchdog}
	if c.Seams.memory() {
		return c.Seams.Snapshots, nil
	}
	if err := makeDir(c.DataDir); err != nil {
		return nil, err
	}
	id, err := claim(c.DataDir, c.NodeID, c.Namespace)
	if err != nil {
		return nil, err
	}
	n.identity = id
	if n.fsm.wanted == "" {
		n.fsm.wanted = id.Namespace
	}
	if err := id.checkLog(c.DataDir); err != nil {
		return nil, err
	}
	bolt, err := openBolt(c.DataDir)
	if err != nil {
		return nil, err
	}
	if n.disk, err = watchable(bolt, c.DataDir); err != nil {
		return nil, err
	}
	if n.store.logs == nil {
		n.store.logs = bolt
	}
	if n.store.stable == nil {
		n.store.stable = bolt
	}
	if c.Seams.Snapshots != nil {
		return c.Seams.Snapshots, nil
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(c.DataDir, keptSnapshots, raftLogger(c.Logger))
	if err != nil {
		return nil, fmt.Errorf("%w: snapshots: %w", ErrDataDirUnusable, err)
	}
	return files, nil
}

// Run proposes, follows leadership and returns when ctx has ended, Close was called or the node
// has failed; then everything the node started has ended, except what hangs on a failed disk.
// The error says why the node failed. Run is called once.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	proposing := make(chan struct{})
	go func() { // not waited for without limit: raft may not take the entry when its disk hangs
		defer close(proposing)
		n.proposer.run(ctx)
	}()
	looking := make(chan struct{})
	go func() { // likewise: the disk may hang
		defer close(looking)
		n.look(ctx)
	}()
	removed := n.watch(ctx)
	cancel()
	err := errors.Join(removed, n.Close())
	n.bounded(func() {
		<-looking
		<-proposing
		n.proposer.awaits.Wait()
	})
	n.proposer.close()
	return errors.Join(n.stop.cause(), err)
}

// Close leaves the group and closes the data directory. What is in flight ends as ErrUnknown.
// It may be called any number of times and ends Run.
func (n *Node) Close() error {
	n.closeOnce.Do(func() {
		close(n.closing)
		n.bounded(func() {
			var err error
			if n.stop.cause() != nil {
				err = n.transport.Close() // else a leader whose disk hangs keeps sending heartbeats
			}
			err = errors.Join(err, n.raft.Shutdown().Error())
			close(n.over)
			if n.disk != nil {
				err = errors.Join(err, n.disk.Close())
			}
			n.closeErr = err
		})
	})
	return n.closeErr
}

// bounded runs f to its end, or for closeLimit once the node has failed.
func (n *Node) bounded(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return
	case <-n.stop.failed:
	}
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	}
}

// Propose puts the command into the log and waits until it is applied here. The request id is
// made up when empty, and At is the leader's clock. Many callers share an entry; each gets its
// own result, refusals included. Errors: ErrNotLeader, ErrNotBootstrapped, ErrOverloaded and
// ErrTooLarge mean that nothing was proposed; ErrUnknown, which is also what the end of ctx
// means once the command has been sent, that it may have been.
func (n *Node) Propose(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	if c.Request == "" {
		c.Request = uuid.NewString()
	}
	command, err := encodeCommand(c)
	if err != nil {
		return ledger.Result{}, err
	}
	if len(command.bytes) > MaxCommandBytes && !mutant.On("raft/command-bytes") {
		return ledger.Result{}, fmt.Errorf("%w: %T has %d bytes, at most %d are possible", ErrTooLarge, c.Body, len(command.bytes), MaxCommandBytes)
	}
	if err := n.mayPropose(); err != nil {
		return ledger.Result{}, err
	}
	return n.proposer.submit(ctx, command, false)
}

// Barrier returns nil once everything that was committed before the call is applied here, and
// this node led all the while: what View then shows may be acted upon. It is one log entry,
// shared with whatever is proposed at the time. Errors as for Propose; all are safe to repeat.
func (n *Node) Barrier(ctx context.Context) error {
	if err := n.mayPropose(); err != nil {
		return err
	}
	if mutant.On("raft/read-through-log") {
		return proposed(n.raft.VerifyLeader().Error())
	}
	_, err := n.proposer.submit(ctx, encoded{}, true)
	return err
}

// mayPropose turns away what would be refused anyway.
func (n *Node) mayPropose() error {
	switch {
	case n.ending():
		return fmt.Errorf("%w: it is stopping", ErrNotLeader)
	case n.raft.State() == raft.Leader:
		return nil
	case len(servers(n.raft)) == 0:
		return ErrNotBootstrapped
	default:
		_, id := n.raft.LeaderWithID()
		if id == "" {
			return fmt.Errorf("%w: no leader is known", ErrNotLeader)
		}
		return fmt.Errorf("%w: %s does", ErrNotLeader, id)
	}
}

// ending reports whether the node was closed or has failed.
func (n *Node) ending() bool {
	select {
	case <-n.closing:
		return true
	case <-n.stop.failed:
		return true
	default:
		return false
	}
}

// View shows what this node has applied so far, which on a follower, or a leader that does not
// know it was deposed, is old. f must not block, propose, keep the machine or change anything;
// applying waits for it.
func (n *Node) View(f func(*ledger.Machine)) {
	n.fsm.mu.RLock()
	defer n.fsm.mu.RUnlock()
	f(n.fsm.machine)
}

// ViewAt is View that also tells the index of the newest entry which the state holds; 0 when it comes from a
// snapshot and nothing was applied since.
func (n *Node) ViewAt(f func(m *ledger.Machine, index uint64)) {
	n.fsm.mu.RLock()
	defer n.fsm.mu.RUnlock()
	f(n.fsm.machine, n.fsm.index)
}

// Leadership tells one reader of this node's latest role. When it says that the node leads,
// everything committed by earlier leaders is applied. States that lasted shorter than the
// reader's pause are skipped, so a new term may follow an old one without a word between:
// whoever sees another term has lost what the old one allowed.
func (n *Node) Leadership() <-chan Leadership { return n.role.latest }

// Leader is the node that leads as far as this one knows, and where clients reach it; empty
// when it is not known, or when its address has not been recorded yet.
func (n *Node) Leader() (id, clientAddress string) {
	_, leader := n.raft.LeaderWithID()
	if leader == "" {
		return "", ""
	}
	n.View(func(m *ledger.Machine) {
		for _, node := range m.Nodes() {
			if node.ID == string(leader) {
				clientAddress = node.ClientAddress
			}
		}
	})
	return string(leader), clientAddress
}

// RaftAddress is what the other nodes dial; with port 0 configured, the port that was found.
func (n *Node) RaftAddress() string { return n.address }

// Term is the raft term this node is in.
func (n *Node) Term() uint64 { return n.raft.CurrentTerm() }

// Status is what tools and metrics show of a node. It costs no log entry and may be old.
type Status struct {
	State         string // leader, follower, candidate or shutdown
	Term          uint64
	LastIndex     uint64 // of the log
	AppliedIndex  uint64
	SnapshotIndex uint64
	LastContact   time.Time // with the leader; zero on it, or when there was none
	Bootstrapped  bool
	Voters        []string // node ids
	Syncs         uint64   // disk syncs asked for by the log since Open
	Entries       uint64   // proposed by this node since Open
	Commands      uint64   // within these entries
}

// Leads reports whether this node does, as far as it knows.
func (n *Node) Leads() bool { return n.raft.State() == raft.Leader }

// snapshotIndex of the newest snapshot; the library tells it in its statistics alone.
func (n *Node) snapshotIndex() uint64 {
	index, err := strconv.ParseUint(n.raft.Stats()["last_snapshot_index"], 10, 64)
	invariant.Must(err == nil, "raft names its snapshot index: %v", err)
	return index
}

// Status of this node.
func (n *Node) Status() Status {
	members := servers(n.raft)
	s := Status{
		State: stateName(n.raft.State()), Term: n.raft.CurrentTerm(),
		LastIndex: n.raft.LastIndex(), AppliedIndex: n.raft.AppliedIndex(), SnapshotIndex: n.snapshotIndex(),
		Bootstrapped: len(members) > 0, Syncs: n.store.syncs.Load(),
		Entries: n.proposer.entries.Load(), Commands: n.proposer.commands.Load(),
	}
	if n.raft.State() != raft.Leader {
		s.LastContact = n.raft.LastContact()
	}
	for _, m := range members {
		if m.Suffrage == raft.Voter {
			s.Voters = append(s.Voters, string(m.ID))
		}
	}
	return s
}

// watch follows leadership and the group's name until ctx ends or the node fails, or until it was
// removed, which it returns.
func (n *Node) watch(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var trimming atomic.Bool
	for {
		select {
		case <-tick.C:
			if err := n.removed(); err != nil {
				return err
			}
			if trimming.CompareAndSwap(false, true) {
				n.trim(func() { trimming.Store(false) })
			}
		case leads := <-n.raft.LeaderCh():
			n.follow(ctx, leads)
		case <-n.fsm.named:
			if err := n.adopt(); err != nil {
				n.stop.report(err)
			}
		case <-n.stop.failed:
			return nil
		case <-n.closing:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// follow publishes one change of leadership. The term is read first. Otherwise: we win term 3,
// wait for the barrier, lose, win term 5, and announce duties of term 5 before its barrier.
func (n *Node) follow(ctx context.Context, leads bool) {
	term := n.raft.CurrentTerm()
	if !leads {
		n.role.publish(n.config.Logger, Leadership{Term: term})
		return
	}
	if mutant.On("raft/barrier-first") {
		n.role.publish(n.config.Logger, Leadership{Leader: true, Term: term})
		return
	}
	caughtUp := make(chan error, 1)
	go func() { caughtUp <- n.raft.Barrier(0).Error() }()
	select {
	case err := <-caughtUp:
		if err != nil || n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term {
			return // lost again, of which LeaderCh will tell
		}
		n.role.publish(n.config.Logger, Leadership{Leader: true, Term: term})
	case <-ctx.Done():
	case <-n.closing:
	case <-n.stop.failed:
	}
}

// founded reports whether the group is known to have a name.
func (n *Node) founded() bool {
	name, _ := n.fsm.namespace()
	return name != ""
}

// adopt writes the group's name beside the log, so that the directory is known as the group's.
func (n *Node) adopt() error {
	if n.config.DataDir == "" || n.identity.Node == "" {
		return nil
	}
	name, incarnation := n.fsm.namespace()
	if name == "" {
		return nil
	}
	id, err := n.identity.adopt(n.config.DataDir, name, incarnation)
	n.identity = id
	return err
}
