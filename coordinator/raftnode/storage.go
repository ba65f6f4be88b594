package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/unisink/unisink/internal/mutant"
)

const (
	logFile         = "raft.db"
	lockTimeout     = time.Second
	initialMmap     = 64 << 20 // address space, not memory
	syncsPerTxn     = 2        // bbolt: the data pages, then the meta page
	keptSnapshots   = 2
	snapshotTooSoon = time.Minute
	lookEvery       = time.Second // whether the log is still where it was opened
)

// termKey is where the library keeps its term.
var termKey = []byte("CurrentTerm")

// store is the log and stable store that raft sees. The first error of any call, and any write
// that hangs, ends the node: an error does not say what is on disk, and raft would only step
// down and may win again.
type store struct {
	logs   raft.LogStore
	stable raft.StableStore
	stop   *failStop
	limit  time.Duration // longest write
	syncs  atomic.Uint64 // disk syncs asked for
	sizes  logSizes
}

// Raft looks for optional interfaces by type, so the wrapper must show what it wraps.
var (
	_ raft.LogStore          = (*store)(nil)
	_ raft.StableStore       = (*store)(nil)
	_ raft.MonotonicLogStore = (*store)(nil)
)

// openBolt opens the log of a data directory, which one process at a time may have.
func openBolt(dir string) (*raftboltdb.BoltStore, error) {
	path := filepath.Join(dir, logFile)
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout:         lockTimeout,
			FreelistType:    bbolt.FreelistMapType,
			NoFreelistSync:  true, // else each commit writes the whole list, which a burst makes long for ever
			InitialMmapSize: initialMmap,
		},
		MsgpackUseNewTimeFormat: true,
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%w: another process holds %s; stop it first", ErrDataDirLocked, path)
	case err != nil:
		return nil, fmt.Errorf("%w: open %s: %w; if it is damaged, replace this node by one with a new id and an empty directory", ErrDataDirUnusable, path, err)
	}
	return bolt, nil
}

// makeDir makes the data directory and tries to write into it.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	}
	return nil
}

// whole refuses log and snapshots between which something is missing.
func (s *store) whole(id identity, snapshots raft.SnapshotStore) error {
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	kept, err3 := snapshots.List()
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	}
	term, err := s.GetUint64(termKey)
	if err != nil && err.Error() != raftboltdb.ErrKeyNotFound.Error() {
		return fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	}
	covered := uint64(0)
	if len(kept) > 0 {
		covered = kept[0].Index
	}
	switch {
	case mutant.On("raft/emptied-directory"):
	case last > 0 && first > covered+1:
		return fmt.Errorf("%w: the log begins at %d and no snapshot covers what is before it; bring the snapshots back, or, if they are lost, "+
			"remove the whole directory while the other nodes run, so that the node starts anew and catches up", ErrDataDirEmptied, first)
	case last == 0 && covered == 0 && id.Namespace != "":
		return id.emptied(logFile + " holds no entry")
	case term == 0 && id.Namespace != "":
		return id.emptied(logFile + " holds no term")
	}
	return nil
}

// logDisk is the open log of a data directory.
type logDisk struct {
	*raftboltdb.BoltStore
	path string
	file os.FileInfo // of the file that is open
}

func watchable(bolt *raftboltdb.BoltStore, dir string) (*logDisk, error) {
	d := &logDisk{BoltStore: bolt, path: filepath.Join(dir, logFile)}
	var err error
	if d.file, err = os.Stat(d.path); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrDataDirUnusable, err), bolt.Close())
	}
	return d, nil
}

// still reports whether the file that is open is the one that a restart would open.
func (d *logDisk) still() error {
	now, err := os.Stat(d.path)
	switch {
	case mutant.On("raft/log-taken-away"):
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s was removed while the node ran; whatever it is told from now on, a restart would not find", ErrDataDirEmptied, d.path)
	case err != nil:
		return fmt.Errorf("%w: look at %s: %w", ErrStorage, d.path, err)
	case !os.SameFile(d.file, now):
		return fmt.Errorf("%w: %s was replaced while the node ran; whatever it is told from now on, a restart would not find", ErrDataDirEmptied, d.path)
	}
	return nil
}

// look ends the node when its log has been taken away from under it.
func (n *Node) look(ctx context.Context) {
	if n.disk == nil {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := n.disk.still(); err != nil {
				n.stop.report(err)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// write runs one call that changes the disk.
func (s *store) write(what string, call func() error) error {
	w := startWatchdog(s.limit, func() {
		if mutant.On("raft/write-watchdog") {
			return
		}
		s.stop.report(fmt.Errorf("%w: %s did not return within %s", ErrDiskHung, what, s.limit))
	})
	err := call()
	w.stop()
	s.syncs.Add(syncsPerTxn)
	if cause := s.stop.cause(); cause != nil {
		return s.stop.fail(cause) // what came late, or beside another failure, helps nobody
	}
	if mutant.On("raft/fail-stop") {
		return err
	}
	if err != nil {
		return s.stop.fail(fmt.Errorf("%w: %s: %w", ErrStorage, what, err))
	}
	return nil
}

// read passes the error of one call that reads. "There is no such entry" and "no such key" are
// answers; any other ends the node, while raft may have the error: it can do no harm with it.
func (s *store) read(what string, err error) error {
	if err == nil || errors.Is(err, raft.ErrLogNotFound) || err.Error() == raftboltdb.ErrKeyNotFound.Error() {
		return err
	}
	return s.stop.tell(fmt.Errorf("%w: %s: %w", ErrStorage, what, err))
}

func (s *store) FirstIndex() (uint64, error) {
	i, err := s.logs.FirstIndex()
	return i, s.read("read first index", err)
}

func (s *store) LastIndex() (uint64, error) {
	i, err := s.logs.LastIndex()
	return i, s.read("read last index", err)
}

func (s *store) GetLog(index uint64, log *raft.Log) error {
	return s.read("read entry", s.logs.GetLog(index, log))
}

func (s *store) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

func (s *store) StoreLogs(logs []*raft.Log) error {
	err := s.write("store entries", func() error { return s.logs.StoreLogs(logs) })
	if err == nil {
		s.sizes.stored(logs)
	}
	return err
}

func (s *store) DeleteRange(from, to uint64) error {
	err := s.write("delete entries", func() error { return s.logs.DeleteRange(from, to) })
	if err == nil {
		s.sizes.deleted(from, to)
	}
	return err
}

func (s *store) IsMonotonic() bool {
	m, ok := s.logs.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (s *store) Set(key, val []byte) error {
	return s.write("store vote", func() error { return s.stable.Set(key, val) })
}

func (s *store) SetUint64(key []byte, val uint64) error {
	return s.write("store term", func() error { return s.stable.SetUint64(key, val) })
}

func (s *store) Get(key []byte) ([]byte, error) {
	v, err := s.stable.Get(key)
	return v, s.read("read vote", err)
}

func (s *store) GetUint64(key []byte) (uint64, error) {
	v, err := s.stable.GetUint64(key)
	return v, s.read("read term", err)
}

// newestOnly guards a snapshot store. Raft installs whatever snapshot it is offered, also one
// older than its own state, and cannot go on from there; and at start it falls back from a
// damaged newest snapshot to an older one, behind which entries may be missing.
type newestOnly struct {
	raft.SnapshotStore
	stop *failStop
}

// Create refuses an index below the newest snapshot's.
func (s newestOnly) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration,
	confIndex uint64, trans raft.Transport,
) (raft.SnapshotSink, error) {
	kept, err := s.List()
	if err != nil {
		return nil, err
	}
	if len(kept) > 0 && index < kept[0].Index && !mutant.On("raft/snapshot-order") {
		return nil, fmt.Errorf("snapshot at %d refused: there is one at %d", index, kept[0].Index)
	}
	return s.SnapshotStore.Create(version, index, term, conf, confIndex, trans)
}

// List shows the newest snapshot alone.
func (s newestOnly) List() ([]*raft.SnapshotMeta, error) {
	kept, err := s.SnapshotStore.List()
	if mutant.On("raft/newest-snapshot") {
		return kept, err
	}
	return kept[:min(len(kept), 1)], err
}

// Open notes why the newest snapshot cannot be read while the node is being opened, for the
// library keeps that to itself. Later it is nobody's end: a snapshot may just have been replaced.
func (s newestOnly) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, content, err := s.SnapshotStore.Open(id)
	if err != nil && !s.stop.running.Load() && !mutant.On("raft/newest-snapshot") {
		return nil, nil, s.stop.tell(fmt.Errorf("%w: %s: %w; replace this node by one with a new id and an empty directory", ErrSnapshotUnreadable, id, err))
	}
	return meta, content, err
}
