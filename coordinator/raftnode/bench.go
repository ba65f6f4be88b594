package raftnode

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
)

// BenchConfig says what Bench measures.
type BenchConfig struct {
	Dir      string        // an empty directory on the disk to be measured
	Callers  []int         // one row for each
	Duration time.Duration // for each row, shared by both sides; default 10s
	Progress func(string)  // hears what is being done; may be nil
}

// BenchRow compares decisions through Propose with bare raft entries of the same size, on three
// nodes in this process over loopback TCP, every entry synced to disk by every node.
type BenchRow struct {
	Callers       int
	DecisionsPerS float64
	P50, P99      time.Duration
	RawPerS       float64 // raft.Apply, one entry for each decision
	RawP50        time.Duration
	RawP99        time.Duration
	SyncsPerTxn   float64 // of one node's disk
}

// benchTurn is how long one side runs before the other has its turn, so that a noisy moment of
// the machine meets both.
const benchTurn = 250 * time.Millisecond

// Bench measures the price of a decision: a transaction of two branches run by hand, committed
// in one call. It leaves its data in Dir.
func Bench(ctx context.Context, c BenchConfig) (rows []BenchRow, err error) {
	setDefault(&c.Duration, 10*time.Second)
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	c.Progress("starting two groups of three nodes in " + c.Dir)
	ours, err := startBenchGroup(ctx, filepath.Join(c.Dir, "unisink"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	raw, err := startRawGroup(ctx, filepath.Join(c.Dir, "raw"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, raw.close()) }()

	for _, callers := range c.Callers {
		var mine, bare sample
		syncs := ours.syncs()
		c.Progress(fmt.Sprintf("%d callers for %s", callers, c.Duration))
		for range max(1, c.Duration/benchTurn/2) {
			if err := bare.run(ctx, callers, benchTurn, raw.apply); err != nil {
				return rows, fmt.Errorf("raw, %d callers: %w", callers, err)
			}
			if err := mine.run(ctx, callers, benchTurn, ours.commit); err != nil {
				return rows, fmt.Errorf("%d callers: %w", callers, err)
			}
		}
		perTxn := float64(ours.syncs()-syncs) / float64(len(ours.nodes)) / float64(max(1, len(mine.took)))
		rows = append(rows, BenchRow{
			Callers: callers, DecisionsPerS: mine.rate(), P50: mine.quantile(0.50), P99: mine.quantile(0.99),
			RawPerS: bare.rate(), RawP50: bare.quantile(0.50), RawP99: bare.quantile(0.99), SyncsPerTxn: perTxn,
		})
	}
	return rows, nil
}

// sample collects how long each call took.
type sample struct {
	took  []time.Duration
	spent time.Duration
}

// run lets the callers call as fast as they are answered. A call that has begun is awaited.
func (s *sample) run(ctx context.Context, callers int, d time.Duration, call func(context.Context) error) error {
	took := make([][]time.Duration, callers)
	errs := make([]error, callers)
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range callers {
		wg.Go(func() {
			for time.Since(begin) < d && ctx.Err() == nil && errs[i] == nil {
				t := time.Now()
				if errs[i] = call(ctx); errs[i] == nil {
					took[i] = append(took[i], time.Since(t))
				}
			}
		})
	}
	wg.Wait()
	s.spent += time.Since(begin)
	s.took = append(s.took, slices.Concat(took...)...)
	return errors.Join(ctx.Err(), cmp.Or(errs...))
}

func (s *sample) rate() float64 { return float64(len(s.took)) / s.spent.Seconds() }

func (s *sample) quantile(q float64) time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	slices.Sort(s.took)
	return s.took[min(len(s.took)-1, int(q*float64(len(s.took))))]
}

// benchGroup is three whole nodes.
type benchGroup struct {
	nodes  []*Node
	cancel context.CancelFunc
	ended  sync.WaitGroup
	errs   chan error
	serial atomic.Uint64
}

func benchNode(dir, id string) Config {
	return Config{
		NodeID: id, DataDir: filepath.Join(dir, id), RaftBind: "127.0.0.1:0",
		Logger:  slog.New(slog.DiscardHandler),
		OnFatal: func(error) {}, // Run tells
	}
}

func startBenchGroup(ctx context.Context, dir string) (_ *benchGroup, err error) {
	running, cancel := context.WithCancel(ctx)
	g := &benchGroup{cancel: cancel, errs: make(chan error, 3)}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	var members []ledger.Node
	for i := range 3 {
		id := "n" + strconv.Itoa(i+1)
		n, err := Open(benchNode(dir, id))
		if err != nil {
			return nil, err
		}
		g.nodes = append(g.nodes, n)
		members = append(members, ledger.Node{ID: id, RaftAddress: n.RaftAddress(), ClientAddress: id, FeatureLevel: ledger.CurrentFeatureLevel})
		g.ended.Go(func() { g.errs <- n.Run(running) })
	}
	return g, g.nodes[0].Bootstrap(ctx, "bench", members)
}

func (g *benchGroup) close() error {
	g.cancel()
	g.ended.Wait()
	var errs []error
	for range g.nodes {
		errs = append(errs, <-g.errs)
	}
	return errors.Join(errs...)
}

func (g *benchGroup) syncs() uint64 {
	sum := uint64(0)
	for _, n := range g.nodes {
		sum += n.store.syncs.Load()
	}
	return sum
}

// leader waits for one to be elected.
func (g *benchGroup) leader(ctx context.Context) (*Node, error) {
	for {
		for _, n := range g.nodes {
			if n.raft.State() == raft.Leader {
				return n, nil
			}
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// commit is the command that is measured.
func (g *benchGroup) commit(ctx context.Context) error {
	c := benchCommand(g.serial.Add(1))
	for {
		n, err := g.leader(ctx)
		if err != nil {
			return err
		}
		r, err := n.Propose(ctx, c)
		switch {
		case errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnknown):
			if err := pause(ctx); err != nil {
				return err
			}
		case err != nil:
			return err
		case !r.OK() || r.Outcome != ledger.Committed:
			return fmt.Errorf("the commit was refused: %s", r.Text)
		default:
			return nil
		}
	}
}

// benchCommand commits a transaction of two branches under the serial-th id of this moment.
func benchCommand(serial uint64) ledger.Command {
	now := time.Now().UnixMilli()
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], uint64(now)<<16|0x7000|serial>>48)
	binary.BigEndian.PutUint64(id[8:], 1<<63|serial&(1<<48-1))
	name := uuid.UUID(id).String()
	return ledger.Command{Request: name, Actor: "bench", At: now, Body: ledger.Commit{Txn: ledger.TxnID(name), Branches: benchBranches}}
}

// benchBranches are shared by all commands; nobody changes them.
var benchBranches = []ledger.HandBranch{benchBranch("left"), benchBranch("right")}

func benchBranch(resource string) ledger.HandBranch {
	return ledger.HandBranch{Resource: resource, Handle: ledger.Handle{
		Kind: "memory", Version: 1, Identity: resource, Alias: resource, Name: "bench." + resource, Text: "empty",
	}}
}

func pause(ctx context.Context) error {
	t := time.NewTimer(5 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rawGroup is the library by itself, with the settings that a node gives it.
type rawGroup struct {
	rafts []*raft.Raft
	undo  []func() error
	entry []byte
}

// rawFSM applies nothing.
type rawFSM struct{}

func (rawFSM) Apply(*raft.Log) any                 { return nil }
func (rawFSM) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("not here") }
func (rawFSM) Restore(io.ReadCloser) error         { return errors.New("not here") }

func startRawGroup(ctx context.Context, dir string) (_ *rawGroup, err error) {
	command, err := encodeCommand(benchCommand(1))
	if err != nil {
		return nil, err
	}
	g := &rawGroup{entry: appendCommand(nil, command, time.Now().UnixMilli())}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	var members []ledger.Node
	for i := range 3 {
		c := benchNode(dir, "raw"+strconv.Itoa(i+1)).withDefaults()
		address, err := g.start(c)
		if err != nil {
			return nil, err
		}
		members = append(members, ledger.Node{ID: c.NodeID, RaftAddress: address})
	}
	if err := g.rafts[0].BootstrapCluster(configuration(members)).Error(); err != nil {
		return nil, err
	}
	_, err = g.leader(ctx)
	return g, err
}

func (g *rawGroup) start(c Config) (address string, err error) {
	if err := makeDir(c.DataDir); err != nil {
		return "", err
	}
	bolt, err := openBolt(c.DataDir)
	if err != nil {
		return "", err
	}
	g.undo = append(g.undo, bolt.Close)
	net, err := openNetwork(c, nil)
	if err != nil {
		return "", err
	}
	r, err := raft.NewRaft(c.raftConfig(), rawFSM{}, bolt, bolt, raft.NewInmemSnapshotStore(), guard(net, c.Logger))
	if err != nil {
		return "", errors.Join(err, net.Close())
	}
	g.rafts = append(g.rafts, r)
	g.undo = append(g.undo, func() error { return r.Shutdown().Error() })
	return string(net.LocalAddr()), nil
}

func (g *rawGroup) close() error {
	var errs []error
	for _, undo := range slices.Backward(g.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

func (g *rawGroup) leader(ctx context.Context) (*raft.Raft, error) {
	for {
		for _, r := range g.rafts {
			if r.State() == raft.Leader {
				return r, nil
			}
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

func (g *rawGroup) apply(ctx context.Context) error {
	for {
		r, err := g.leader(ctx)
		if err != nil {
			return err
		}
		err = proposed(r.Apply(g.entry, 0).Error())
		if !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknown) {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}
