package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/unisink/unisink/participant"
)

// A link is one TCP connection from a stage to the next, and lives for one generation. It carries
// lines of JSON: a hello with the generation, then records, and barriers between them. Nothing ever
// travels back. What the receiver does not read fills the buffers of the connection, and then the
// sender waits in its next write: that is the whole back-pressure.

// frame is one line.
type frame struct {
	Hello   *hello               `json:"hello,omitempty"`
	Record  json.RawMessage      `json:"record,omitempty"`
	Barrier *participant.Barrier `json:"barrier,omitempty"`
}

// hello begins a link.
type hello struct {
	Generation uint64 `json:"generation"`
}

const (
	// socketBytes are what the system buffers at each end: little, so that a stage that waits is felt
	// soon, and no less than half a packet of the loopback, 64 KiB, below which TCP crawls.
	socketBytes = 32 << 10
	bufferBytes = 8 << 10
	maxLine     = 64 << 10
	helloWait   = 2 * time.Second
	redialEvery = 20 * time.Millisecond
)

var errFrame = errors.New("not a frame of this protocol")

// parseFrame reads one line, which says exactly one thing.
func parseFrame(line []byte) (frame, error) {
	var f frame
	if err := json.Unmarshal(line, &f); err != nil {
		return frame{}, fmt.Errorf("%w: %w", errFrame, err)
	}
	said := 0
	for _, there := range []bool{f.Hello != nil, len(f.Record) > 0, f.Barrier != nil} {
		if there {
			said++
		}
	}
	if said != 1 {
		return frame{}, fmt.Errorf("%w: it says %d things instead of one", errFrame, said)
	}
	return f, nil
}

// outlet is the sending end of a link.
type outlet struct {
	conn   net.Conn
	buf    *bufio.Writer
	lines  *json.Encoder
	unbind func() bool
}

// dial connects to the next stage for one generation, again and again until ctx ends: its process
// may be away. It is ready for the generation when it is there, since no member is told to start
// before all of them have restored.
func dial(ctx context.Context, addr string, generation uint64) (*outlet, error) {
	var conn net.Conn
	for {
		var err error
		if conn, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(redialEvery):
		}
	}
	small(conn)
	buf := bufio.NewWriterSize(conn, bufferBytes)
	o := &outlet{conn: conn, buf: buf, lines: json.NewEncoder(buf)}
	// A write that waits for the receiver ends with the generation.
	o.unbind = context.AfterFunc(ctx, func() { _ = conn.Close() })
	if err := errors.Join(o.send(frame{Hello: &hello{Generation: generation}}), buf.Flush()); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

func (o *outlet) send(f frame) error {
	if err := o.lines.Encode(f); err != nil {
		return fmt.Errorf("link to %s: %w", o.conn.RemoteAddr(), err)
	}
	return nil
}

// record adds a record; it has left with the next flush or barrier.
func (o *outlet) record(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return o.send(frame{Record: text})
}

// barrier puts a barrier behind everything that was sent.
func (o *outlet) barrier(b participant.Barrier) error {
	return errors.Join(o.send(frame{Barrier: &b}), o.flush())
}

func (o *outlet) flush() error {
	if err := o.buf.Flush(); err != nil {
		return fmt.Errorf("link to %s: %w", o.conn.RemoteAddr(), err)
	}
	return nil
}

// close ends the link. What was flushed still arrives.
func (o *outlet) close() {
	o.unbind()
	_ = o.conn.Close() // nothing is lost that was not lost before
}

// small keeps the system from taking in seconds' worth of records.
func small(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetReadBuffer(socketBytes)  // a hint:
		_ = c.SetWriteBuffer(socketBytes) // larger buffers work too
	}
}

// inlet is where the stage before connects. It lives as long as the process, and lets in one link
// of the present generation; every other is hung up on, whatever it still had to say.
type inlet struct {
	listener net.Listener
	log      *slog.Logger
	group    sync.WaitGroup

	mu         sync.Mutex // guards the rest; held for memory only
	generation uint64     // 0: not restored yet
	arrived    chan *received
	taken      bool
}

// received is the receiving end of a link.
type received struct {
	conn  net.Conn
	lines *bufio.Scanner
}

func listen(addr string, log *slog.Logger) (*inlet, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for the stage before: %w", err)
	}
	i := &inlet{listener: l, log: log}
	i.group.Go(i.serve)
	return i, nil
}

// close ends the inlet and waits for its goroutines.
func (i *inlet) close() {
	_ = i.listener.Close() // the process ends
	i.open(0)
	i.group.Wait()
}

// open begins a generation: a link of an older one that waits is dropped with all that is in it,
// and no other will be let in.
func (i *inlet) open(generation uint64) {
	i.mu.Lock()
	old := i.arrived
	i.generation, i.taken = generation, false
	i.arrived = make(chan *received, 1)
	i.mu.Unlock()
	select {
	case r := <-old:
		_ = r.conn.Close() // dropped
	default:
	}
}

func (i *inlet) serve() {
	for {
		conn, err := i.listener.Accept()
		if err != nil {
			return // closed
		}
		i.group.Go(func() { i.welcome(conn) })
	}
}

// welcome reads a link's hello and lets it in or not.
func (i *inlet) welcome(conn net.Conn) {
	small(conn)
	r := &received{conn: conn, lines: bufio.NewScanner(conn)}
	r.lines.Buffer(make([]byte, bufferBytes), maxLine)
	_ = conn.SetReadDeadline(time.Now().Add(helloWait)) // fails on a closed connection only, as the read will
	f, err := r.read()
	if err == nil && f.Hello == nil {
		err = fmt.Errorf("%w: it does not begin with a hello", errFrame)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	if err == nil {
		err = i.let(r, f.Hello.Generation)
	}
	if err != nil {
		i.log.LogAttrs(context.Background(), slog.LevelInfo, "link not let in",
			slog.String("from", conn.RemoteAddr().String()), slog.String("err", err.Error()))
		_ = conn.Close() // that is the answer
	}
}

// let hands a link over to the generation that it is for, if that is the present one.
func (i *inlet) let(r *received, generation uint64) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case generation != i.generation:
		return fmt.Errorf("it is of generation %d, and this is %d", generation, i.generation)
	case i.taken:
		return fmt.Errorf("generation %d has its link; a second one would be behind a gap", generation)
	}
	i.taken = true
	i.arrived <- r // has room for the one
	return nil
}

// accept waits for the link of the present generation. It is the caller's until ctx ends.
func (i *inlet) accept(ctx context.Context) (*received, error) {
	i.mu.Lock()
	arrived := i.arrived
	i.mu.Unlock()
	select {
	case r := <-arrived:
		context.AfterFunc(ctx, func() { _ = r.conn.Close() }) // ends a read that waits
		return r, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// read returns the next frame. The end of a link is an error: a stage that has nothing more to say
// says so by a final barrier.
func (r *received) read() (frame, error) {
	if r.lines.Scan() {
		return parseFrame(r.lines.Bytes())
	}
	err := r.lines.Err()
	if err == nil {
		err = errors.New("it was hung up")
	}
	return frame{}, fmt.Errorf("link from %s: %w", r.conn.RemoteAddr(), err)
}
