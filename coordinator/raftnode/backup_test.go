package raftnode

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// ordersFiles is a pipeline of one member with one resource.
var ordersFiles = ledger.PutPipeline{Pipeline: ledger.Pipeline{
	Name: "orders", Desired: ledger.Running, Shards: 1, Fingerprint: "f",
	Members: []ledger.MemberSpec{{Name: "all", Source: true, Resources: []ledger.ResourceSpec{{Name: "files", Kind: "file"}}}},
}}

func decideOrders(g ledger.Generation, n uint64) ledger.Decide {
	return ledger.Decide{Scope: ledger.ScopeID{Pipeline: "orders"}, Epoch: ledger.Epoch{Generation: g, N: n}, Votes: []ledger.Vote{{
		Member: "all", Instance: "i1", Positions: []ledger.Position{{Resource: "in", Split: "0", Offset: int64(n)}},
		Branches: []ledger.Prepared{{Resource: "files", Handle: ledger.Handle{Kind: "file", Version: 1, Identity: "d", Name: "n"}}},
	}}}
}

func openOrders(from ledger.Generation) ledger.OpenGeneration {
	return ledger.OpenGeneration{
		Scope: ledger.ScopeID{Pipeline: "orders"}, From: from, Cause: "start", Fingerprint: "f",
		Members: []ledger.MemberInstance{{Member: "all", Instance: "i1"}},
	}
}

// backedUp runs a group on disk, takes a backup, and decides more. It returns the file, a transaction
// committed after the backup, and one announced before it.
func backedUp(t *testing.T) (file string, after ledger.Command, announced ledger.TxnID) {
	t.Helper()
	dir := t.TempDir()
	nodes := threeOnDisk(t, dir, nil)
	do := func(body ledger.Body) { propose(t, nodes, ledger.Command{Body: body}) }
	do(ordersFiles)
	do(openOrders(0))
	do(decideOrders(1, 1))
	propose(t, nodes, benchCommand(1))
	announced = benchTxn(2)
	do(ledger.Announce{Txn: announced, Branches: []ledger.HandBranch{{Resource: "left"}}, Deadline: time.Now().Add(time.Minute).UnixMilli()})
	var content bytes.Buffer
	for {
		content.Reset()
		err := ErrNotLeader
		for _, r := range nodes {
			if err = r.Backup(patience(t), &content); err == nil {
				break
			}
			content.Reset()
		}
		if err == nil {
			break
		}
		if !errors.Is(err, ErrNotLeader) || pause(patience(t)) != nil {
			t.Fatal(err)
		}
	}
	file = filepath.Join(dir, "backup")
	if err := os.WriteFile(file, content.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	after = benchCommand(3)
	propose(t, nodes, after)
	do(decideOrders(1, 2))
	for _, r := range nodes {
		r.close(t)
	}
	return file, after, announced
}

func TestARestoredGroupPresumesNothing(t *testing.T) {
	file, after, announced := backedUp(t)
	dir := t.TempDir()
	conf := diskConfig(dir, "r1")
	r := open(t, diskConfig(t.TempDir(), "port")) // a port that is free
	conf.RaftBind = r.RaftAddress()
	r.close(t)
	node := ledger.Node{ID: "r1", RaftAddress: conf.RaftBind, ClientAddress: "r1:1", FeatureLevel: ledger.CurrentFeatureLevel}
	b, err := RestoreBackup(Restoration{File: file, DataDir: conf.DataDir, Node: node, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if b.Namespace != "test" || b.Incarnation != 1 || b.Scopes != 1 || b.Transactions != 2 || b.Index == 0 {
		t.Errorf("the backup says %+v", b)
	}
	r = open(t, conf)
	refused := func(body ledger.Body, want ledger.Refusal) {
		t.Helper()
		for {
			got, err := r.Propose(patience(t), ledger.Command{Body: body})
			if errors.Is(err, ErrNotLeader) && pause(patience(t)) == nil {
				continue
			}
			if err != nil || got.Refusal != want {
				t.Errorf("%T is answered with %+v, %v; want refusal %d", body, got, err, want)
			}
			return
		}
	}
	refused(ledger.PresumeAbort{Txn: txnOf(after), Why: "nobody knows it"}, ledger.TooOld)
	refused(openOrders(1), ledger.HaltedScope)
	refused(decideOrders(1, 2), ledger.FencedOff)
	r.View(func(m *ledger.Machine) {
		s, _ := m.Scope(ledger.ScopeID{Pipeline: "orders"})
		if !strings.Contains(s.Halted, "restored from a backup of ") {
			t.Errorf("halted: %q", s.Halted)
		}
		if g := s.Generations[0]; g.Open || g.Final != 1 {
			t.Errorf("generation 1 is %+v", g)
		}
		if _, incarnation := m.Namespace(); incarnation != 2 {
			t.Errorf("incarnation %d", incarnation)
		}
		if txn, ok := m.Txn(announced); !ok || txn.Outcome != ledger.Pending || txn.Deadline < time.Now().Add(24*time.Hour).UnixMilli() {
			t.Errorf("what was announced is %+v", txn)
		}
		if got := m.Nodes(); len(got) != 1 || got[0] != node {
			t.Errorf("the nodes are %+v", got)
		}
	})
	ok := func(body ledger.Body) ledger.Result {
		t.Helper()
		got, err := r.Propose(patience(t), ledger.Command{Actor: "operator", Body: body})
		if err != nil || !got.OK() {
			t.Fatalf("%T: %+v, %v", body, got, err)
		}
		return got
	}
	ok(ledger.Resume{Scope: ledger.ScopeID{Pipeline: "orders"}, Why: "compared"})
	if g := ok(openOrders(1)).Opened.Generation; g <= generationsAside {
		t.Errorf("generation %d may have been opened before", g)
	}

	second := open(t, diskConfig(dir, "r2"))
	if err := r.AddNode(patience(t), ledger.Node{ID: "r2", RaftAddress: second.RaftAddress(), ClientAddress: "r2:1", FeatureLevel: 1}); err != nil {
		t.Fatal(err)
	}
	agree(t, []*runningNode{r, second})
}

func TestABackupThatCannotBeUsedIsRefusedInOneSentence(t *testing.T) {
	m := ledger.New()
	m.Apply(ledger.Command{Request: "a", At: 1, Body: ledger.Init{Namespace: "test", Incarnation: 1}})
	m.Apply(ledger.Command{Request: "b", At: 1, Body: ordersFiles})
	var whole bytes.Buffer
	if err := writeBackup(&whole, Backup{Format: backupFormat, Index: 40, Term: 2}, m.State()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "backup")
	restore := func(content []byte, change func(*Restoration)) error {
		t.Helper()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		r := Restoration{File: file, DataDir: filepath.Join(dir, "data"), Node: nodeNamed("n1"), Now: time.Unix(1_700_000_000, 0)}
		if change != nil {
			change(&r)
		}
		_, err := RestoreBackup(r)
		return err
	}
	refuse := func(name string, content []byte, change func(*Restoration), want error, part string) {
		t.Helper()
		err := restore(content, change)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "data")); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s: something was left behind: %v", name, err)
		}
	}
	for i := range whole.Len() {
		refuse("cut", whole.Bytes()[:i], nil, ErrBackup, file)
		flipped := bytes.Clone(whole.Bytes())
		flipped[i] ^= 0x10
		refuse("damaged", flipped, nil, ErrBackup, file)
	}
	refuse("longer", append(bytes.Clone(whole.Bytes()), 'x'), nil, ErrBackup, "checksum")
	refuse("something else", []byte("PK"), nil, ErrBackup, "does not begin as a backup does")
	var newer bytes.Buffer
	if err := writeBackup(&newer, Backup{Format: 2}, m.State()); err != nil {
		t.Fatal(err)
	}
	refuse("newer", newer.Bytes(), nil, ErrBackup, "has format 2, and this version reads format 1")
	refuse("another namespace", whole.Bytes(), func(r *Restoration) { r.Namespace = "other" }, ErrBackup, `is of namespace "test", not "other"`)
	refuse("bad node", whole.Bytes(), func(r *Restoration) { r.Node.ID = "a/b" }, ErrConfig, "node name")
	if _, err := ReadBackup(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}

	if err := restore(whole.Bytes(), nil); err != nil {
		t.Fatal(err)
	}
	err := restore(whole.Bytes(), nil)
	if !errors.Is(err, ErrOccupied) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("over an existing directory: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".restoring-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestADirectoryStaysWithItsIncarnation: a node of the group that was given up has reached a restored
// one and overwritten its log.
func TestADirectoryStaysWithItsIncarnation(t *testing.T) {
	id := identity{Node: "n1", Namespace: "test", Incarnation: 2}
	if _, err := id.adopt(t.TempDir(), "test", 1); !errors.Is(err, ErrForeignDataDir) || !strings.Contains(err.Error(), "incarnation 1") {
		t.Errorf("adopted with %v", err)
	}
	if got, err := id.adopt(t.TempDir(), "test", 2); err != nil || got != id {
		t.Errorf("its own incarnation: %+v, %v", got, err)
	}
}
