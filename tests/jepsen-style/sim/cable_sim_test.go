package sim_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// host is one process on the net of clients: a node that forwards, a member, a client, the operator.
type host struct {
	net   *network
	nodes *nodes
	name  string
	// immune hosts are outside of the world that the faults strike.
	immune bool

	mu     sync.Mutex // guards the rest; never held while time passes
	dead   bool
	cables map[*cable]bool
}

func (c *nodes) host(name string) *host {
	return &host{net: c.net, nodes: c, name: name, cables: map[*cable]bool{}}
}

// rule of one direction of this host's connections.
func (h *host) rule(w way) (rule, <-chan struct{}) {
	if h.immune {
		return rule{}, nil
	}
	return h.net.rule(w)
}

// dial reaches a node by its client address.
func (h *host) dial(ctx context.Context, addr string) (net.Conn, error) {
	id, l := h.nodes.at(addr)
	there, _ := h.rule(way{false, h.name, id})
	h.mu.Lock()
	dead := h.dead
	h.mu.Unlock()
	if l == nil || dead {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	if there.cut {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		return nil, fmt.Errorf("dial %s: %w", addr, errCut)
	}
	plain, err := l.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	c := &cable{Conn: plain, host: h, node: id, wake: make(chan struct{}, 1), closed: make(chan struct{}), killed: make(chan struct{})}
	h.mu.Lock()
	h.cables[c] = true
	dead = h.dead
	h.mu.Unlock()
	h.nodes.join(id, c)
	h.nodes.pumps.Go(c.pump)
	if dead {
		c.kill()
	}
	return c, nil
}

// die ends every connection at once, and every later one.
func (h *host) die() {
	h.mu.Lock()
	h.dead = true
	all := h.cables
	h.cables = map[*cable]bool{}
	h.mu.Unlock()
	for c := range all {
		c.kill()
	}
}

// cable is a connection to a node. What is written is under way for a while, and goes on being so
// when the writer has closed: a request may arrive long after its sender has given it up.
type cable struct {
	net.Conn
	host *host
	node string
	wake chan struct{}

	mu        sync.Mutex // guards queue
	queue     [][]byte
	closeOnce sync.Once
	killOnce  sync.Once
	closed    chan struct{} // by its user
	killed    chan struct{} // one of its ends is gone
}

func (c *cable) Write(b []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	case <-c.killed:
		return 0, io.ErrClosedPipe
	default:
	}
	c.mu.Lock()
	c.queue = append(c.queue, append([]byte(nil), b...))
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return len(b), nil
}

// pass waits until a direction is open, or reports that the cable is dead.
func (c *cable) pass(w way) bool {
	for {
		r, changed := c.host.rule(w)
		if !r.cut {
			time.Sleep(c.host.net.lag() + r.delay)
			return true
		}
		select {
		case <-changed:
		case <-c.killed:
			return false
		}
	}
}

// pump carries what was written to the node.
func (c *cable) pump() {
	defer func() {
		_ = c.Conn.Close() // its other end may have closed it
		c.host.mu.Lock()
		delete(c.host.cables, c)
		c.host.mu.Unlock()
		c.host.nodes.leave(c.node, c)
	}()
	for {
		c.mu.Lock()
		var next []byte
		for _, b := range c.queue {
			next = append(next, b...)
		}
		c.queue = nil
		c.mu.Unlock()
		if next != nil {
			if !c.pass(way{false, c.host.name, c.node}) {
				return
			}
			if _, err := c.Conn.Write(next); err != nil {
				return
			}
			continue
		}
		select {
		case <-c.wake:
		case <-c.killed:
			return
		case <-c.closed:
			c.mu.Lock()
			empty := len(c.queue) == 0
			c.mu.Unlock()
			if empty {
				return
			}
		}
	}
}

func (c *cable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		return n, err
	}
	w := way{false, c.node, c.host.name}
	r, _ := c.host.rule(w)
	if c.host.net.odds(r.lose) {
		c.kill() // the answer is lost, and the connection with it
		return 0, io.ErrUnexpectedEOF
	}
	for {
		r, changed := c.host.rule(w)
		var arrived <-chan time.Time
		if !r.cut {
			arrived, changed = time.After(c.host.net.lag()+r.delay), nil
		}
		select {
		case <-arrived:
			return n, nil
		case <-changed:
		case <-c.killed:
			return 0, io.ErrUnexpectedEOF
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
}

// Close ends reading at once; what was written goes on its way.
func (c *cable) Close() error {
	var err error
	c.closeOnce.Do(func() {
		close(c.closed)
		err = c.SetReadDeadline(time.Unix(1, 0))
	})
	return err
}

// kill breaks the connection: nothing that is under way arrives.
func (c *cable) kill() {
	c.killOnce.Do(func() { close(c.killed); _ = c.Conn.Close() })
}
