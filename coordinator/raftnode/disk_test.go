package raftnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
)

// diskConfig is a node with its own directory and port.
func diskConfig(dir, id string) Config {
	return Config{
		NodeID: id, DataDir: filepath.Join(dir, id), RaftBind: "127.0.0.1:0", Logger: quiet(),
		OnFatal: func(error) {}, WriteWatchdog: time.Minute,
	}
}

func open(t *testing.T, c Config) *runningNode {
	t.Helper()
	n, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	r := &runningNode{Node: n, ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- n.Run(ctx) }()
	t.Cleanup(func() { r.close(t) })
	return r
}

func (r *runningNode) close(t *testing.T) {
	t.Helper()
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.ended; err != nil {
		t.Errorf("%s ended with %v", r.config.NodeID, err)
	}
}

// patience bounds what waits for a real clock.
func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// threeOnDisk bootstraps a group over loopback TCP; change may add TLS.
func threeOnDisk(t *testing.T, dir string, change func(*Config)) []*runningNode {
	t.Helper()
	var nodes []*runningNode
	var group []ledger.Node
	for _, id := range nodeIDs {
		c := diskConfig(dir, id)
		if change != nil {
			change(&c)
		}
		r := open(t, c)
		nodes = append(nodes, r)
		group = append(group, ledger.Node{ID: id, RaftAddress: r.RaftAddress(), ClientAddress: id, FeatureLevel: ledger.CurrentFeatureLevel})
	}
	if err := nodes[0].Bootstrap(patience(t), "test", group); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// propose repeats a command on whichever node leads.
func propose(t *testing.T, nodes []*runningNode, cmd ledger.Command) {
	t.Helper()
	ctx := patience(t)
	for i := 0; ; i++ {
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		got, err := nodes[i%len(nodes)].Propose(one, cmd)
		cancel()
		if err == nil && got.OK() {
			return
		}
		if err == nil {
			t.Fatalf("refused: %s", got.Text)
		}
		if pause(ctx) != nil {
			t.Fatalf("nobody answered: %v", err)
		}
	}
}

// agree waits until all nodes have the same state.
func agree(t *testing.T, nodes []*runningNode) {
	t.Helper()
	ctx := patience(t)
	for {
		hashes := map[[32]byte]bool{}
		for _, r := range nodes {
			r.View(func(m *ledger.Machine) { hashes[m.Hash()] = true })
		}
		if len(hashes) == 1 {
			return
		}
		if pause(ctx) != nil {
			t.Fatal("the nodes do not agree")
		}
	}
}

func TestAGroupOnDiskSurvivesTheLossOfItsLeaderAndARestart(t *testing.T) {
	dir := t.TempDir()
	nodes := threeOnDisk(t, dir, nil)
	first := benchCommand(1)
	propose(t, nodes, first)
	if err := nodes[0].raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	nodes[0].close(t)
	propose(t, nodes[1:], benchCommand(2))

	c := diskConfig(dir, "n1")
	c.RaftBind = nodes[0].RaftAddress()
	nodes[0] = open(t, c)
	propose(t, nodes, benchCommand(3))
	agree(t, nodes)
	if got := outcomeOf(nodes[0], txnOf(first)); got != ledger.Committed {
		t.Errorf("what was acknowledged is %v after the restart", got)
	}
	if s := nodes[0].Status(); s.SnapshotIndex == 0 || s.Syncs == 0 {
		t.Errorf("status %+v", s)
	}
	nodes[0].close(t)
	id, err := readIdentity(c.DataDir)
	if err != nil || id != (identity{Node: "n1", Namespace: "test", Incarnation: 1}) {
		t.Errorf("the directory says %+v, %v", id, err)
	}
	for name, change := range map[string]func(*Config){
		"another node":      func(c *Config) { c.NodeID = "n9" },
		"another namespace": func(c *Config) { c.Namespace = "other" },
	} {
		other := c
		change(&other)
		if _, err := Open(other); !errors.Is(err, ErrForeignDataDir) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPlaceThatCannotBeUsedIsNamedInOneSentence(t *testing.T) {
	t.Parallel() // it waits in real time
	dir := t.TempDir()
	first := open(t, diskConfig(dir, "n1"))
	file := filepath.Join(dir, "file")
	orphan := filepath.Join(dir, "orphan")
	damaged := filepath.Join(dir, "damaged")
	for _, d := range []string{orphan, damaged} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for path, content := range map[string]string{file: "", filepath.Join(orphan, logFile): "", filepath.Join(damaged, identityFile): "{"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   error
	}{
		"locked":       {func(c *Config) { c.DataDir = first.config.DataDir }, ErrDataDirLocked},
		"port":         {func(c *Config) { c.RaftBind = first.RaftAddress(); c.DataDir = filepath.Join(dir, "n2") }, ErrAddressInUse},
		"not a dir":    {func(c *Config) { c.DataDir = filepath.Join(file, "below") }, ErrDataDirUnusable},
		"no identity":  {func(c *Config) { c.DataDir = orphan }, ErrForeignDataDir},
		"bad identity": {func(c *Config) { c.DataDir = damaged }, ErrDataDirUnusable},
	} {
		conf := diskConfig(dir, "n1")
		c.change(&conf)
		n, err := Open(conf)
		if n != nil {
			n.Close() //nolint:errcheck // the test has failed
		}
		if !errors.Is(err, c.want) || err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestADamagedNewestSnapshotIsRefusedAndNoOlderOneTaken(t *testing.T) {
	t.Parallel() // it waits in real time
	dir := t.TempDir()
	nodes := threeOnDisk(t, dir, nil)
	for i := range 2 {
		propose(t, nodes, benchCommand(uint64(i+1)))
		agree(t, nodes)
		if err := nodes[1].raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
	}
	newest := fmt.Sprintf("*-%d-*", nodes[1].Status().SnapshotIndex)
	nodes[1].close(t)
	found, err := filepath.Glob(filepath.Join(dir, "n2", "snapshots", newest, "state.bin"))
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	content, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(found[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := Open(diskConfig(dir, "n2"))
	if n != nil {
		n.Close() //nolint:errcheck // the test has failed
	}
	if !errors.Is(err, ErrSnapshotUnreadable) {
		t.Fatalf("a node with a damaged snapshot: %v", err)
	}
}

func TestASnapshotBelowTheNewestIsRefused(t *testing.T) {
	s := newestOnly{&memorySnapshots{}, newFailStop(func(error) {})}
	create := func(index uint64) error {
		sink, err := s.Create(raft.SnapshotVersionMax, index, 1, raft.Configuration{}, 1, nil)
		if err != nil {
			return err
		}
		return sink.Close()
	}
	for _, index := range []uint64{10, 10, 20} {
		if err := create(index); err != nil {
			t.Errorf("snapshot at %d: %v", index, err)
		}
	}
	if err := create(19); err == nil {
		t.Error("a snapshot at 19 was taken over one at 20")
	}
}

// TestHeartbeatsDoNotBypassTheMainLoop: raft sets a fast path, and the messages still arrive
// where all others do.
func TestHeartbeatsDoNotBypassTheMainLoop(t *testing.T) {
	from, err := openNetwork(diskConfig("", "n1").withDefaults(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close() //nolint:errcheck // nothing is kept
	to, err := openNetwork(diskConfig("", "n2").withDefaults(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close() //nolint:errcheck // nothing is kept
	g := guard(to, quiet())
	g.SetHeartbeatHandler(func(rpc raft.RPC) {
		t.Error("a heartbeat took the fast path")
		rpc.Respond(&raft.AppendEntriesResponse{}, nil)
	})
	sent := make(chan error, 1)
	go func() {
		heartbeat := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, Addr: []byte("n1")}, Term: 1}
		sent <- from.AppendEntries("n2", to.LocalAddr(), heartbeat, &raft.AppendEntriesResponse{})
	}()
	select {
	case rpc := <-g.Consumer():
		rpc.Respond(&raft.AppendEntriesResponse{}, nil)
		if err := <-sent; err != nil {
			t.Error(err)
		}
	case err := <-sent:
		t.Errorf("answered without the main loop: %v", err)
	}
}

func TestEveryMistakeInASettingIsReportedAtOnce(t *testing.T) {
	c := Config{NodeID: "a/b", Namespace: "x y", RaftBind: "0.0.0.0:7000", TrailingLogs: 5, MaxInFlight: 1000}
	err := c.Validate()
	if err == nil {
		t.Fatal("taken")
	}
	for _, part := range []string{"node name", "namespace name", "data directory", "no host that others can dial", "no TLS", "trailing logs", "in flight"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not mentioned in: %v", part, err)
		}
	}
	good := diskConfig("/data", "n1")
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

// FuzzReadSnapshot: whatever bytes are offered, they are refused or are a whole snapshot.
func FuzzReadSnapshot(f *testing.F) {
	m := ledger.New()
	m.Apply(ledger.Command{Request: "a", At: 1, Body: ledger.Init{Namespace: "test", Incarnation: 1}})
	m.Apply(ledger.Command{Request: "b", At: 2, Body: ledger.PutNode{Node: members()[0]}})
	m.Apply(benchCommand(1))
	var seed bytes.Buffer
	if err := writeSnapshot(&seed, m.State()); err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readSnapshot(bytes.NewReader(data))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeSnapshot(&again, got.State()); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
	})
}

func TestEveryDamagedByteOfASnapshotIsNoticed(t *testing.T) {
	m := ledger.New()
	m.Apply(ledger.Command{Request: "a", At: 1, Body: ledger.Init{Namespace: "test", Incarnation: 1}})
	m.Apply(benchCommand(1))
	var b bytes.Buffer
	if err := writeSnapshot(&b, m.State()); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	if got, err := readSnapshot(bytes.NewReader(whole)); err != nil || got.Hash() != m.Hash() {
		t.Fatalf("the whole snapshot: %v", err)
	}
	for i := range whole {
		cut := whole[:i]
		if _, err := readSnapshot(bytes.NewReader(cut)); err == nil {
			t.Errorf("taken though it ends after %d of %d bytes", i, len(whole))
		}
		flipped := bytes.Clone(whole)
		flipped[i] ^= 0x10
		if _, err := readSnapshot(bytes.NewReader(flipped)); err == nil {
			t.Errorf("taken though byte %d of %d is damaged", i, len(whole))
		}
	}
	if _, err := readSnapshot(bytes.NewReader(append(bytes.Clone(whole), 0))); err == nil {
		t.Error("taken though something follows")
	}
}

// TestStoredSnapshotsGoOnDecoding reads a snapshot of the first format.
func TestStoredSnapshotsGoOnDecoding(t *testing.T) {
	path := filepath.Join("testdata", "snapshot-v1.bin")
	if _, err := os.Stat(path); os.IsNotExist(err) && *update {
		m := ledger.New()
		for i, body := range []ledger.Body{
			ledger.Init{Namespace: "test", Incarnation: 1},
			ledger.PutNode{Node: members()[0]},
			ledger.PutPipeline{Pipeline: ledger.Pipeline{
				Name: "orders", Desired: ledger.Running, Shards: 1, Fingerprint: "f",
				Members: []ledger.MemberSpec{{Name: "all", Source: true, Resources: []ledger.ResourceSpec{{Name: "files", Kind: "file"}}}},
			}},
			ledger.OpenGeneration{
				Scope: ledger.ScopeID{Pipeline: "orders"}, Cause: "start", Fingerprint: "f",
				Members: []ledger.MemberInstance{{Member: "all", Instance: "i1"}},
			},
			ledger.Decide{Scope: ledger.ScopeID{Pipeline: "orders"}, Epoch: ledger.Epoch{Generation: 1, N: 1}, Votes: []ledger.Vote{{
				Member: "all", Instance: "i1", Positions: []ledger.Position{{Resource: "in", Split: "0", Offset: 5}},
				Branches: []ledger.Prepared{{Resource: "files", Handle: ledger.Handle{Kind: "file", Version: 1, Identity: "d", Name: "n"}}},
			}}},
		} {
			r, _ := m.Apply(ledger.Command{Request: "r" + string(rune('a'+i)), Actor: "test", At: 1_700_000_000_000 + int64(i), Body: body})
			if !r.OK() {
				t.Fatalf("%T: %s", body, r.Text)
			}
		}
		var b bytes.Buffer
		if err := writeSnapshot(&b, m.State()); err != nil {
			t.Fatal(err)
		}
		add(t, path, b.Bytes())
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := readSnapshot(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	rec, ok := m.Epoch(ledger.ScopeID{Pipeline: "orders"}, ledger.Epoch{Generation: 1, N: 1})
	if name, _ := m.Namespace(); name != "test" || !ok || len(rec.Branches) != 1 || len(m.Nodes()) != 1 {
		t.Errorf("read %q, %+v", name, rec)
	}
}

func TestAConnectionToAClosedNodeIsClosedToo(t *testing.T) {
	network, err := openNetwork(diskConfig("", "n1").withDefaults(), nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", string(network.LocalAddr()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // only read
	if err := network.Close(); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the accepted connection was left open")
	}
}
