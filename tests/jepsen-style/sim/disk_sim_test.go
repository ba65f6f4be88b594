package sim_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/tests/jepsen-style/check"
)

var errFull = errors.New("no space left on device")

// disk is what a node keeps. It has two copies: what a running node reads (its page cache), and what
// is on the platter. A call returns when both are equal, unless the node dies before.
type disk struct {
	node string
	hist *check.History

	mu     sync.Mutex // guards the rest; never held while time passes
	rnd    *rand.Rand
	synced content
	owner  *mount // whose writes count
	delay  time.Duration
	full   bool
	lost   int // writes that crashes took
	// A disk that lies calls a write done when it is in the cache; it gets to the platter with the
	// third write after it.
	lies bool
	held []func(*content)
}

type content struct {
	entries     map[uint64]*raft.Log
	first, last uint64
	values      map[string][]byte
	snapshot    *raft.SnapshotMeta
	image       []byte
}

func (c content) clone() content {
	c.entries, c.values = maps.Clone(c.entries), maps.Clone(c.values)
	return c
}

func newDisk(node string, seed uint64, hist *check.History) *disk {
	return &disk{
		node: node, hist: hist, rnd: rand.New(rand.NewPCG(seed, 77)),
		synced: content{entries: map[uint64]*raft.Log{}, values: map[string][]byte{}},
	}
}

// mount gives a new process of the node what is on the platter.
func (d *disk) mount() *mount {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owner = &mount{d: d, cache: d.synced.clone(), lane: make(chan struct{}, 1)}
	return d.owner
}

// crash ends the process that has the disk mounted: what it wrote and did not sync is gone, or, where
// the disk had got that far by itself, there.
func (d *disk) crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.owner; m != nil && m.writing != nil {
		if d.rnd.IntN(2) == 0 && !d.lies {
			m.writing(&d.synced)
		} else {
			d.lost++
		}
		m.writing = nil
	}
	d.owner, d.held = nil, nil
}

func (d *disk) slow(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = by
}

func (d *disk) fill(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// mount is the disk as one process of the node sees it.
type mount struct {
	d       *disk
	lane    chan struct{} // one write at a time
	cache   content       // guarded by d.mu
	writing func(*content)
}

// write changes the cache, takes the time of a sync, and changes the platter.
func (m *mount) write(change func(*content), done func()) error {
	m.lane <- struct{}{}
	defer func() { <-m.lane }()
	d := m.d
	d.mu.Lock()
	if d.full && d.owner == m {
		d.mu.Unlock()
		return errFull
	}
	change(&m.cache)
	if d.owner == m {
		m.writing = change
	}
	wait := d.delay + time.Duration(200+d.rnd.IntN(1800))*time.Microsecond
	d.mu.Unlock()
	time.Sleep(wait)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owner == m {
		m.writing = nil
		d.held = append(d.held, change)
		for len(d.held) > 3 || !d.lies && len(d.held) > 0 {
			d.held[0](&d.synced)
			d.held = d.held[1:]
		}
		if done != nil {
			done()
		}
	}
	return nil
}

func (m *mount) FirstIndex() (uint64, error) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	return m.cache.first, nil
}

func (m *mount) LastIndex() (uint64, error) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	return m.cache.last, nil
}

func (m *mount) GetLog(index uint64, log *raft.Log) error {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	l := m.cache.entries[index]
	if l == nil {
		return raft.ErrLogNotFound
	}
	*log = *l
	return nil
}

func (m *mount) StoreLog(log *raft.Log) error { return m.StoreLogs([]*raft.Log{log}) }

func (m *mount) StoreLogs(logs []*raft.Log) error {
	kept := make([]*raft.Log, len(logs))
	for i, l := range logs {
		c := *l
		kept[i] = &c
	}
	return m.write(func(c *content) {
		for _, l := range kept {
			c.entries[l.Index] = l
			if c.first == 0 || l.Index < c.first {
				c.first = l.Index
			}
			c.last = max(c.last, l.Index)
		}
	}, func() {
		for _, l := range kept {
			sum := fnv.New64a()
			_, _ = sum.Write(append([]byte{byte(l.Type)}, l.Data...)) // never fails
			m.d.hist.Add(check.Event{
				Who: m.d.node, Kind: check.Entry, Index: l.Index, Term: l.Term,
				Hash: fmt.Sprintf("%016x", sum.Sum64()), Text: strings.ReplaceAll(string(l.Data), planted, ""), // a position stands in the log by right
			})
		}
	})
}

func (m *mount) DeleteRange(from, to uint64) error {
	return m.write(func(c *content) {
		for i := from; i <= to; i++ {
			delete(c.entries, i)
		}
		if from <= c.first {
			c.first = to + 1
		}
		if to >= c.last {
			c.last = from - 1
		}
		if c.first > c.last {
			c.first, c.last = 0, 0
		}
	}, nil)
}

func (m *mount) Set(key, value []byte) error {
	k, v := string(key), bytes.Clone(value)
	return m.write(func(c *content) { c.values[k] = v }, nil)
}

func (m *mount) Get(key []byte) ([]byte, error) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if v, ok := m.cache.values[string(key)]; ok {
		return v, nil
	}
	return nil, errors.New("not found")
}

func (m *mount) SetUint64(key []byte, value uint64) error {
	return m.Set(key, fmt.Append(nil, value))
}

func (m *mount) GetUint64(key []byte) (uint64, error) {
	v, err := m.Get(key)
	if err != nil {
		return 0, err
	}
	n := uint64(0)
	_, err = fmt.Sscan(string(v), &n)
	return n, err
}

func (m *mount) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &sink{m: m, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d", term, index), Index: index, Term: term, Configuration: conf, ConfigurationIndex: confIndex,
	}}, nil
}

func (m *mount) List() ([]*raft.SnapshotMeta, error) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if m.cache.snapshot == nil {
		return nil, nil
	}
	meta := *m.cache.snapshot
	return []*raft.SnapshotMeta{&meta}, nil
}

func (m *mount) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if m.cache.snapshot == nil || m.cache.snapshot.ID != id {
		return nil, nil, fmt.Errorf("there is no snapshot %s", id)
	}
	meta := *m.cache.snapshot
	return &meta, io.NopCloser(bytes.NewReader(m.cache.image)), nil
}

// sink is a snapshot being written; it counts from Close on.
type sink struct {
	m     *mount
	meta  raft.SnapshotMeta
	buf   bytes.Buffer
	ended bool
}

func (s *sink) Write(b []byte) (int, error) { return s.buf.Write(b) }
func (s *sink) ID() string                  { return s.meta.ID }

func (s *sink) Close() error {
	if s.ended {
		return nil
	}
	s.ended = true
	meta, image := s.meta, s.buf.Bytes()
	meta.Size = int64(len(image))
	return s.m.write(func(c *content) { c.snapshot, c.image = &meta, image }, nil)
}

func (s *sink) Cancel() error {
	s.ended = true
	return nil
}
