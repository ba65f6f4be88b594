package participant_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

var errKilled = errors.New("killed")

// mortal is a process that dies, as by kill -9, at its n-th step. A step is an operation of its
// disk, a call of its resources before or after the effect, or a piece that goes over its network.
type mortal struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex // guards the rest; never held over a call or a wait
	rnd      *rand.Rand
	left     int // steps; never dies when it begins below 1
	fuse     int // if not 0, so many steps are left once both branches are prepared
	dead     bool
	memories []*participanttest.Memory
	conns    []net.Conn
	prepared int  // branches that voted yes
	heard    bool // the decision was heard: a branch is being finished
}

func newMortal(ctx context.Context, seed uint64, steps int) *mortal {
	p := &mortal{rnd: rand.New(rand.NewPCG(seed, 3)), left: steps}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// step reports whether the process lives on.
func (p *mortal) step() error {
	p.mu.Lock()
	if !p.dead {
		p.left--
	}
	dies := !p.dead && p.left == 0
	dead := p.dead || dies
	p.mu.Unlock()
	if dies {
		p.kill()
	}
	if dead {
		return errKilled
	}
	return nil
}

// pause takes some virtual time, so that others come in between, and is a step.
func (p *mortal) pause(most time.Duration) error {
	p.mu.Lock()
	d := time.Duration(p.rnd.Int64N(int64(most)))
	p.mu.Unlock()
	time.Sleep(d)
	return p.step()
}

func (p *mortal) kill() {
	p.mu.Lock()
	p.dead = true
	memories, conns := p.memories, p.conns
	p.memories, p.conns = nil, nil
	p.mu.Unlock()
	for _, m := range memories {
		m.Crash()
	}
	for _, c := range conns {
		_ = c.Close() // it may be closed already
	}
	p.cancel()
}

// hour says where the process was when it died.
func (p *mortal) hour() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.dead:
		return "lived"
	case p.heard:
		return "killed while finishing"
	case p.prepared == 2:
		return "killed between prepare and the decision's answer"
	case p.prepared == 1:
		return "killed with one branch prepared"
	}
	return "killed before prepare"
}

// memory is the process's access to a store.
func (p *mortal) memory(s *participanttest.Store) *participanttest.Memory {
	m := s.Process()
	m.SetHook(func(context.Context, participanttest.Call, participanttest.When, string) error {
		return p.pause(5 * time.Millisecond)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		m.Crash()
	}
	p.memories = append(p.memories, m)
	return m
}

// watched notes how far the process came.
type watched struct {
	participant.Resource
	p *mortal
}

func (w watched) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	w.p.hear()
	return w.Resource.Commit(ctx, h)
}

func (w watched) Rollback(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	w.p.hear()
	return w.Resource.Rollback(ctx, h)
}

func (p *mortal) hear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = p.heard || !p.dead
}

// watchedBranch counts votes.
type watchedBranch struct {
	participant.Branch
	p *mortal
}

func (b watchedBranch) Prepare(ctx context.Context) (participant.Vote, error) {
	v, err := b.Branch.Prepare(ctx)
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	if err == nil && v.Kind == participant.Yes && !b.p.dead {
		b.p.prepared++
		if b.p.prepared == 2 && b.p.fuse > 0 {
			b.p.left = b.p.fuse
		}
	}
	return v, err
}

// slowConn carries what is written a few milliseconds late, and reads as late: whatever happens in
// between finds calls on their way.
type slowConn struct {
	net.Conn
	p      *mortal
	out    chan []byte
	closed chan struct{}
	once   sync.Once
}

// network is the process's own way to dial.
func (p *mortal) network(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if err := p.step(); err != nil {
			return nil, err
		}
		plain, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		c := &slowConn{Conn: plain, p: p, out: make(chan []byte, 64), closed: make(chan struct{})}
		p.mu.Lock()
		dead := p.dead
		if !dead {
			p.conns = append(p.conns, c)
		}
		p.mu.Unlock()
		if dead {
			return nil, errors.Join(errKilled, plain.Close())
		}
		go c.pump() // ends with Close
		return c, nil
	}
}

func (c *slowConn) pump() {
	for {
		select {
		case b := <-c.out:
			if c.p.pause(4*time.Millisecond) != nil {
				return
			}
			if _, err := c.Conn.Write(b); err != nil {
				return
			}
		case <-c.closed:
			return
		}
	}
}

func (c *slowConn) Write(b []byte) (int, error) {
	select {
	case c.out <- append([]byte(nil), b...):
		return len(b), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		return n, err
	}
	return n, c.p.pause(4 * time.Millisecond)
}

func (c *slowConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// mortalFS is a disk as the process sees it: each operation is a step.
type mortalFS struct {
	crashfs.FS
	p *mortal
}

type mortalFile struct {
	crashfs.File
	p *mortal
}

func (f mortalFS) OpenFile(name string, flag int, perm fs.FileMode) (crashfs.File, error) {
	if err := f.p.step(); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return mortalFile{file, f.p}, nil
}

func (f mortalFS) Link(from, to string) error {
	return f.p.then(func() error { return f.FS.Link(from, to) })
}

func (f mortalFS) Rename(from, to string) error {
	return f.p.then(func() error { return f.FS.Rename(from, to) })
}

func (f mortalFS) Remove(name string) error {
	return f.p.then(func() error { return f.FS.Remove(name) })
}

func (f mortalFS) Mkdir(name string, perm fs.FileMode) error {
	return f.p.then(func() error { return f.FS.Mkdir(name, perm) })
}

func (f mortalFS) SyncDir(name string) error {
	return f.p.then(func() error { return f.FS.SyncDir(name) })
}

func (f mortalFile) Write(b []byte) (int, error) {
	if err := f.p.step(); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

func (f mortalFile) Sync() error { return f.p.then(f.File.Sync) }

// then does what comes next, unless the process is dead.
func (p *mortal) then(do func() error) error {
	if err := p.step(); err != nil {
		return err
	}
	return do()
}
