package app_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

const (
	// olderCommit is built to be the older of two versions.
	olderCommit = "bd68cff"
	// olderData is what a node of that version left behind.
	olderData = "testdata/data-" + olderCommit + ".tar.gz"
)

// older builds the command of the older commit.
func older(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds another version and starts processes")
	}
	if exec.Command("git", "cat-file", "-e", olderCommit+"^{commit}").Run() != nil {
		t.Skipf("this checkout has no history: commit %s, whose version is upgraded from, is not in it", olderCommit)
	}
	dir := t.TempDir()
	archive := exec.Command("git", "archive", "--format=tar", olderCommit)
	archive.Dir = filepath.Join("..", "..")
	source, err := archive.Output()
	if err != nil {
		t.Fatalf("read commit %s: %v", olderCommit, err)
	}
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(source)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "older"), "./cmd/unisink")
	build.Dir = dir
	for _, cmd := range []*exec.Cmd{unpack, build} {
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", cmd.Args, err, text)
		}
	}
	return filepath.Join(dir, "older")
}

// served is one node as a process.
type served struct {
	id, dir, client, raft string
	cmd                   *exec.Cmd
	said                  bytes.Buffer
}

func newServed(t *testing.T, root, id string) *served {
	t.Helper()
	s := &served{id: id, dir: filepath.Join(root, id)}
	for _, addr := range []*string{&s.client, &s.raft} {
		var err error
		if *addr, err = freeport.Loopback(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { s.end(t) })
	return s
}

func (s *served) start(t *testing.T, binary string) {
	t.Helper()
	s.said.Reset()
	s.cmd = exec.Command(binary, "serve", "--node", s.id, "--data", s.dir, "--client", s.client, "--raft", s.raft, "--log-level", "error")
	s.cmd.Stderr = &s.said
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// end stops the process and waits for it.
func (s *served) end(t *testing.T) {
	t.Helper()
	if s.cmd == nil {
		return
	}
	if err := errors.Join(s.cmd.Process.Signal(syscall.SIGTERM), s.cmd.Wait()); err != nil {
		t.Errorf("node %s ended with %v: %s", s.id, err, s.said.String())
	}
	s.cmd = nil
}

// group is how a test talks to some nodes, with the SDK of this version.
type group struct {
	*participant.Client
	ctx context.Context
}

func groupOf(t *testing.T, nodes ...*served) group {
	t.Helper()
	addresses := make([]string, len(nodes))
	for i, n := range nodes {
		addresses[i] = n.client
	}
	cl, err := participant.NewClient(participant.ClientConfig{Coordinators: addresses, Actor: "test", Patience: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(func() {
		cancel()
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	})
	return group{cl, ctx}
}

// bootstrap makes a group of the nodes.
func (g group) bootstrap(t *testing.T, nodes ...*served) {
	t.Helper()
	req := &unisinkv1.BootstrapRequest{Meta: g.NewMeta(), Namespace: "demo"}
	for _, n := range nodes {
		req.Nodes = append(req.Nodes, &unisinkv1.Node{Id: n.id, RaftAddress: n.raft, ClientAddress: n.client, Voter: true})
	}
	if _, err := g.Cluster().Bootstrap(g.ctx, req); err != nil {
		t.Fatal(err)
	}
	pipeline := &unisinkv1.Pipeline{
		Name: "orders", Shards: 1, Fingerprint: "f",
		Members: []*unisinkv1.MemberSpec{{Name: "main", Source: true, Resources: []*unisinkv1.ResourceSpec{{Name: "out", Kind: "file"}}}},
	}
	if _, err := g.Pipelines().PutPipeline(g.ctx, &unisinkv1.PutPipelineRequest{Meta: g.NewMeta(), Pipeline: pipeline}); err != nil {
		t.Fatal(err)
	}
}

// commit decides a transaction and returns its id.
func (g group) commit(t *testing.T) string {
	t.Helper()
	id, err := participant.NewTxnID()
	if err != nil {
		t.Fatal(err)
	}
	out, err := g.Commit(g.ctx, id, []participant.HandBranch{{Resource: "left", Handle: participant.Handle{
		Kind: "memory", Version: 1, Identity: "left", Alias: "left", Name: "n." + id,
	}}})
	if err != nil || out != participant.OutcomeCommitted {
		t.Fatalf("commit: %v, %v", out, err)
	}
	return id
}

// holds checks that what was decided is known.
func (g group) holds(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if out, err := g.Outcome(g.ctx, id); err != nil || out != participant.OutcomeCommitted {
			t.Errorf("transaction %s is %v, %v", id, out, err)
		}
	}
	if _, err := g.Pipelines().GetPipeline(g.ctx, &unisinkv1.GetPipelineRequest{Name: "orders"}); err != nil {
		t.Error(err)
	}
}

// agree waits until all nodes hold the same at the same index.
func agree(t *testing.T, nodes ...*served) {
	t.Helper()
	var seen map[string]bool
	for end := time.Now().Add(patience); time.Now().Before(end); pause(50 * time.Millisecond) {
		seen = map[string]bool{}
		for _, n := range nodes {
			st, err := groupOf(t, n).Cluster().Status(t.Context(), &unisinkv1.StatusRequest{StateHash: true})
			seen[fmt.Sprint(st.GetStateHash(), st.GetAppliedIndex(), err)] = true
		}
		if len(seen) == 1 {
			return
		}
	}
	t.Errorf("the nodes do not agree: %v", seen)
}

// TestARollingUpgradeKeepsWhatWasDecided replaces one version by the other, node by node, while the
// group decides: mixed versions hold the same state.
func TestARollingUpgradeKeepsWhatWasDecided(t *testing.T) {
	old := older(t)
	root := t.TempDir()
	var nodes []*served
	for _, id := range []string{"n1", "n2", "n3"} {
		n := newServed(t, root, id)
		n.start(t, old)
		nodes = append(nodes, n)
	}
	g := groupOf(t, nodes...)
	g.bootstrap(t, nodes...)
	decided := []string{g.commit(t)}
	for _, n := range nodes {
		n.end(t)
		decided = append(decided, g.commit(t))
		n.start(t, "unisink")
		decided = append(decided, g.commit(t))
		agree(t, nodes...)
		g.holds(t, decided...)
	}

	// A node of the older version is one among them for as long as nothing is used that it lacks.
	late := newServed(t, root, "n4")
	late.start(t, old)
	if _, err := g.Cluster().AddNode(g.ctx, &unisinkv1.AddNodeRequest{Meta: g.NewMeta(), Node: "n4", ClientAddress: late.client}); err != nil {
		t.Fatal(err)
	}
	decided = append(decided, g.commit(t))
	agree(t, append(nodes, late)...)
	g.holds(t, decided...)

	// The level is raised once every node can follow, as each says itself, and not before.
	raise := func() error {
		_, err := g.Cluster().RaiseFeatureLevel(g.ctx, &unisinkv1.RaiseFeatureLevelRequest{Meta: g.NewMeta(), Level: 2})
		return err
	}
	if err := raise(); err == nil || !strings.Contains(err.Error(), `node "n4" follows up to feature level 1`) {
		t.Errorf("raised beside an older node: %v", err)
	}
	if _, err := g.Cluster().RemoveNode(g.ctx, &unisinkv1.RemoveNodeRequest{Meta: g.NewMeta(), Node: "n4"}); err != nil {
		t.Fatal(err)
	}
	late.forget()
	if err := errors.Join(raise(), raise()); err != nil { // a repeat is no error
		t.Fatal(err)
	}
	decided = append(decided, g.commit(t))
	agree(t, nodes...)
	for _, n := range nodes { // what the level brought survives, too
		n.end(t)
		n.start(t, "unisink")
	}
	agree(t, nodes...)
	g.holds(t, decided...)
	acts, err := g.Audit().List(g.ctx, &unisinkv1.AuditListRequest{})
	if err != nil || len(acts.GetActs()) == 0 || acts.GetActs()[0].GetKind() != "raise feature level" || acts.GetActs()[0].GetActor() != "test" {
		t.Errorf("the trail: %v, %v", acts, err)
	}
}

// forget ends a process that may have ended by itself, as one that was removed does.
func (s *served) forget() {
	_ = s.cmd.Process.Kill() // it may be gone
	_ = s.cmd.Wait()         // whatever it ended with
	s.cmd = nil
}

// TestAnOlderVersionRefusesWhatItDoesNotKnow: a restored group says more than it can read.
func TestAnOlderVersionRefusesWhatItDoesNotKnow(t *testing.T) {
	old := older(t)
	root := t.TempDir()
	n := newServed(t, root, "n1")
	n.start(t, "unisink")
	g := groupOf(t, n)
	g.bootstrap(t, n)
	file := filepath.Join(root, "backup")
	for _, args := range [][]string{
		{"backup", "save", file, "-c", n.client},
		{"backup", "restore", file, "--data", n.dir + "-restored", "--node", "n1", "--raft", n.raft, "--client", n.client},
	} {
		if text, err := exec.Command("unisink", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, text)
		}
	}
	n.end(t)
	n.dir += "-restored"
	text, err := exec.Command(old, "serve", "--node", n.id, "--data", n.dir, "--client", n.client, "--raft", n.raft, "--log-level", "error").CombinedOutput()
	if err == nil || !strings.Contains(string(text), "field 7 is not known here") || !strings.Contains(string(text), "this version is too old") {
		t.Errorf("the older version: %v: %s", err, text)
	}
	n.start(t, "unisink") // nothing was spoilt
	g.holds(t)
}

// TestADataDirectoryOfAnOlderVersionIsRead: with -update it is made anew, by the older version.
func TestADataDirectoryOfAnOlderVersionIsRead(t *testing.T) {
	root := t.TempDir()
	n := newServed(t, root, "n1")
	if *update {
		n.start(t, older(t))
		g := groupOf(t, n)
		g.bootstrap(t, n)
		g.commit(t)
		n.end(t)
		pack(t, root, olderData)
		if err := os.RemoveAll(n.dir); err != nil {
			t.Fatal(err)
		}
	}
	if testing.Short() {
		t.Skip("starts processes")
	}
	unpack(t, olderData, root)
	n.start(t, "unisink")
	g := groupOf(t, n)
	g.holds(t)
	list, err := g.Transactions().ListTransactions(g.ctx, &unisinkv1.ListTransactionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if txns := list.GetTransactions(); len(txns) != 1 || txns[0].GetOutcome() != unisinkv1.Outcome_OUTCOME_COMMITTED {
		t.Errorf("it holds %v", txns)
	}
	g.holds(t, g.commit(t))
}

// pack writes the files below dir into a compressed archive.
func pack(t *testing.T, dir, to string) {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	err := w.AddFS(os.DirFS(dir))
	if err = errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// unpack is pack's way back.
func unpack(t *testing.T, from, dir string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o700)
		} else {
			var body []byte
			body, err = io.ReadAll(r)
			err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, body, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
