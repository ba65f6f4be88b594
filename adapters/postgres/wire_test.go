package postgres

import (
	"bytes"
	"context"
	"net"
	"sync"
)

// wire is a network that can be cut at a statement.
type wire struct {
	mu   sync.Mutex
	word string
	then func() bool // false: the request is lost
	lose bool        // the answer is lost
}

func (w *wire) into(o *Options) {
	o.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cut{Conn: c, w: w}, nil
	}
}

// before has f called once when a statement with this word is sent.
func (w *wire) before(word string, f func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.word, w.then, w.lose = word, f, false
}

// after cuts the connection once when a statement with this word was answered.
func (w *wire) after(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.word, w.then, w.lose = word, nil, true
}

type cut struct {
	net.Conn
	w    *wire
	lose bool // of whoever reads and writes: pgx does so by turns
}

func (c *cut) Write(p []byte) (int, error) {
	c.w.mu.Lock()
	hit := c.w.word != "" && bytes.Contains(p, []byte(c.w.word))
	then, lose := c.w.then, c.w.lose
	if hit {
		c.w.word = ""
	}
	c.w.mu.Unlock()
	if hit && then != nil && !then() {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	c.lose = c.lose || hit && lose
	return c.Conn.Write(p)
}

func (c *cut) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.lose && err == nil {
		_ = c.Close() // the server has done it, and its answer goes nowhere
		return 0, net.ErrClosed
	}
	return n, err
}
