package raftnode

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// MemoryNet connects nodes within one process, for tests and simulations that run in virtual
// time. A node's address is its id. Its disk outlives it, so a node that is closed and opened
// again with the same id restarts; what was stored is never lost.
type MemoryNet struct {
	mu    sync.Mutex // guards what follows
	disks map[string]*memoryDisk
	wires map[string]*raft.InmemTransport
	cut   map[string]bool
}

type memoryDisk struct {
	log       *raft.InmemStore
	snapshots *memorySnapshots
}

// NewMemoryNet makes a net without nodes.
func NewMemoryNet() *MemoryNet {
	return &MemoryNet{disks: map[string]*memoryDisk{}, wires: map[string]*raft.InmemTransport{}, cut: map[string]bool{}}
}

// memoryTimeout of one message; as long as a lost one is waited for.
const memoryTimeout = 500 * time.Millisecond

// Seams gives node id its disk, made on first use, and a new connection to all other nodes. It is
// called once before each Open.
func (m *MemoryNet) Seams(id string) Seams {
	m.mu.Lock()
	defer m.mu.Unlock()
	disk := m.disks[id]
	if disk == nil {
		disk = &memoryDisk{log: raft.NewInmemStore(), snapshots: &memorySnapshots{}}
		m.disks[id] = disk
	}
	_, wire := raft.NewInmemTransportWithTimeout(raft.ServerAddress(id), memoryTimeout)
	for other, peer := range m.wires {
		if other != id {
			peer.Disconnect(raft.ServerAddress(id))
		}
	}
	m.wires[id] = wire
	m.connect(id)
	return Seams{Transport: wire, Logs: disk.log, Stable: disk.log, Snapshots: disk.snapshots}
}

// connect joins id with every other node, unless either is cut off. The caller holds mu.
func (m *MemoryNet) connect(id string) {
	for _, other := range slices.Sorted(maps.Keys(m.wires)) {
		if other == id || m.cut[id] || m.cut[other] {
			continue
		}
		m.wires[id].Connect(raft.ServerAddress(other), m.wires[other])
		m.wires[other].Connect(raft.ServerAddress(id), m.wires[id])
	}
}

// Isolate cuts node id off from all others, both ways.
func (m *MemoryNet) Isolate(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut[id] = true
	for other, wire := range m.wires {
		if other != id {
			wire.Disconnect(raft.ServerAddress(id))
		}
	}
	if wire := m.wires[id]; wire != nil {
		wire.DisconnectAll()
	}
}

// Heal undoes Isolate.
func (m *MemoryNet) Heal(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut[id] = false
	if m.wires[id] != nil {
		m.connect(id)
	}
}

// Wipe empties the disk of a node that is not open.
func (m *MemoryNet) Wipe(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.disks, id)
}

// memorySnapshots keeps the newest complete snapshot.
type memorySnapshots struct {
	mu     sync.Mutex // guards what follows
	newest *raft.SnapshotMeta
	bytes  []byte
	count  int
}

func (m *memorySnapshots) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration,
	confIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	return &memorySink{store: m, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d-%d", term, index, m.count), Index: index, Term: term,
		Configuration: conf, ConfigurationIndex: confIndex,
	}}, nil
}

func (m *memorySnapshots) List() ([]*raft.SnapshotMeta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest == nil {
		return nil, nil
	}
	meta := *m.newest
	return []*raft.SnapshotMeta{&meta}, nil
}

func (m *memorySnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest == nil || m.newest.ID != id {
		return nil, nil, fmt.Errorf("there is no snapshot %s", id)
	}
	meta := *m.newest
	return &meta, io.NopCloser(bytes.NewReader(m.bytes)), nil
}

// memorySink is a snapshot being written; it counts from Close on.
type memorySink struct {
	store *memorySnapshots
	meta  raft.SnapshotMeta
	buf   bytes.Buffer
	ended bool
}

func (s *memorySink) Write(b []byte) (int, error) { return s.buf.Write(b) }
func (s *memorySink) ID() string                  { return s.meta.ID }

func (s *memorySink) Close() error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if s.ended {
		return nil
	}
	s.ended = true
	s.meta.Size = int64(s.buf.Len())
	s.store.newest, s.store.bytes = &s.meta, s.buf.Bytes()
	return nil
}

func (s *memorySink) Cancel() error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.ended = true
	return nil
}
