package raftnode

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
)

// founded makes a group of one node on disk that has decided something, and ends it.
func founded(t *testing.T, before func(*runningNode)) Config {
	t.Helper()
	c := diskConfig(t.TempDir(), "n1")
	c.Seams.TrailingLogs = 1
	c.HeartbeatTimeout = 50 * time.Millisecond // it is alone, and waits so long before it leads
	r := open(t, c)
	c.RaftBind = r.RaftAddress()
	group := []ledger.Node{{ID: "n1", RaftAddress: r.RaftAddress(), ClientAddress: "n1", FeatureLevel: ledger.CurrentFeatureLevel}}
	if err := r.Bootstrap(patience(t), "test", group); err != nil {
		t.Fatal(err)
	}
	propose(t, []*runningNode{r}, benchCommand(1))
	if before != nil {
		before(r)
	}
	r.close(t)
	if id, err := readIdentity(c.DataDir); err != nil || id.Namespace != "test" {
		t.Fatalf("the directory says %+v, %v", id, err)
	}
	return c
}

func mustOS(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// mustRefuse opens a directory that must be refused in one sentence.
func mustRefuse(t *testing.T, c Config, parts ...string) {
	t.Helper()
	n, err := Open(c)
	if n != nil {
		n.Close() //nolint:errcheck // the test has failed
	}
	if !errors.Is(err, ErrDataDirEmptied) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("opened with %v", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not mentioned in: %v", part, err)
		}
	}
}

func TestADirectoryOfAGroupWithoutItsLogIsRefused(t *testing.T) {
	fresh := func(t *testing.T, dir string, change func(raft.StableStore) error) {
		mustOS(t, os.Remove(filepath.Join(dir, logFile)))
		bolt, err := openBolt(dir)
		if err != nil {
			t.Fatal(err)
		}
		mustOS(t, change(bolt), bolt.Close())
	}
	snapshot := func(r *runningNode) {
		if err := r.raft.Snapshot().Error(); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		before func(*runningNode)
		lose   func(t *testing.T, dir string)
		says   string
	}{
		"missing": {nil, func(t *testing.T, dir string) { mustOS(t, os.Remove(filepath.Join(dir, logFile))) }, "is missing"},
		"empty":   {nil, func(t *testing.T, dir string) { mustOS(t, os.Truncate(filepath.Join(dir, logFile), 0)) }, "is empty"},
		"new": {nil, func(t *testing.T, dir string) {
			fresh(t, dir, func(raft.StableStore) error { return nil })
		}, "holds no entry"},
		"new, with a term": {nil, func(t *testing.T, dir string) {
			fresh(t, dir, func(s raft.StableStore) error { return s.SetUint64(termKey, 7) })
		}, "holds no entry"},
		"new, beside a snapshot": {snapshot, func(t *testing.T, dir string) {
			fresh(t, dir, func(raft.StableStore) error { return nil })
		}, "holds no term"},
	} {
		t.Run(name, func(t *testing.T) {
			conf := founded(t, c.before)
			c.lose(t, conf.DataDir)
			mustRefuse(t, conf, c.says, `"test"`, "remove the whole directory")
		})
	}
}

func TestALogWithoutTheSnapshotBeforeItIsRefused(t *testing.T) {
	conf := founded(t, func(r *runningNode) {
		if err := r.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
	})
	mustOS(t, os.RemoveAll(filepath.Join(conf.DataDir, "snapshots")))
	mustRefuse(t, conf, "the log begins at ", "no snapshot covers", "bring the snapshots back")
}

func TestALogTakenAwayFromARunningNodeEndsIt(t *testing.T) {
	t.Parallel() // it waits in real time
	for name, take := range map[string]func(dir string) error{
		"directory removed": os.RemoveAll,
		"log removed":       func(dir string) error { return os.Remove(filepath.Join(dir, logFile)) },
		"log replaced by a copy": func(dir string) error {
			path := filepath.Join(dir, logFile)
			content, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+".new", content, 0o600), os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t, diskConfig(t.TempDir(), "n1"))
			mustOS(t, take(r.config.DataDir))
			select {
			case err := <-r.ended:
				if !errors.Is(err, ErrDataDirEmptied) || !strings.Contains(err.Error(), "while the node ran") {
					t.Errorf("it ended with %v", err)
				}
				r.ended <- nil
			case <-time.After(10 * time.Second):
				t.Error("the node went on")
			}
		})
	}
}

// TestAnEmptiedNodeOnDiskStartsAnewAndCatchesUp: it may vote again when it holds what was decided.
func TestAnEmptiedNodeOnDiskStartsAnewAndCatchesUp(t *testing.T) {
	dir := t.TempDir()
	nodes := threeOnDisk(t, dir, nil)
	propose(t, nodes, benchCommand(1))
	agree(t, nodes)
	nodes[2].close(t)
	c := diskConfig(dir, "n3")
	c.RaftBind = nodes[2].RaftAddress()
	mustOS(t, os.RemoveAll(c.DataDir))
	nodes[2] = open(t, c)
	propose(t, nodes, benchCommand(2))
	agree(t, nodes)
	nodes[0].close(t)
	propose(t, nodes[1:], benchCommand(3))
	if !nodes[2].probation.allows(1 << 40) {
		t.Error("it does not vote")
	}
}
