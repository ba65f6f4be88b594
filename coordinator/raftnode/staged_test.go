package raftnode

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// stagedNet connects nodes as a script says: each message on its way, and each answer, can be
// delayed or lost by itself. It has the library's heartbeat fast path, which MemoryNet lacks.
type stagedNet struct {
	*MemoryNet // disks

	mu    sync.Mutex // guards what follows
	wires map[raft.ServerAddress]*stagedWire
	// on, when set, says what becomes of a message; it may block. Nil: delivered at once.
	on func(m message) fate
}

// message is one request.
type message struct {
	from, to  string
	heartbeat bool
	command   any
}

// fate of a message: the zero value is delivered and answered at once.
type fate struct {
	lost         bool
	delay        time.Duration // before it arrives
	answerLost   bool
	answerDelay  time.Duration // before its answer arrives
	afterArrival func()        // once the receiver has dealt with it
}

var errLost = errors.New("nothing was heard")

const stagedTimeout = 5 * time.Second

func newStagedNet() *stagedNet {
	return &stagedNet{MemoryNet: NewMemoryNet(), wires: map[raft.ServerAddress]*stagedWire{}}
}

// script replaces what becomes of messages from now on.
func (s *stagedNet) script(on func(message) fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = on
}

func (s *stagedNet) Seams(id string) Seams {
	seams := s.MemoryNet.Seams(id)
	w := &stagedWire{net: s, id: id, rpcs: make(chan raft.RPC), done: make(chan struct{})}
	s.mu.Lock()
	s.wires[raft.ServerAddress(id)] = w
	s.mu.Unlock()
	seams.Transport = w
	return seams
}

// stagedWire is one node's end.
type stagedWire struct {
	net  *stagedNet
	id   string
	rpcs chan raft.RPC
	done chan struct{}
	once sync.Once

	mu   sync.Mutex // guards fast
	fast func(raft.RPC)
}

func (w *stagedWire) Consumer() <-chan raft.RPC                               { return w.rpcs }
func (w *stagedWire) LocalAddr() raft.ServerAddress                           { return raft.ServerAddress(w.id) }
func (w *stagedWire) EncodePeer(_ raft.ServerID, a raft.ServerAddress) []byte { return []byte(a) }
func (w *stagedWire) DecodePeer(b []byte) raft.ServerAddress                  { return raft.ServerAddress(b) }

func (w *stagedWire) SetHeartbeatHandler(fast func(raft.RPC)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fast = fast
}

func (w *stagedWire) Close() error {
	w.once.Do(func() { close(w.done) })
	return nil
}

func (w *stagedWire) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (w *stagedWire) AppendEntries(_ raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	return send(w, to, args, resp, nil)
}

func (w *stagedWire) RequestVote(_ raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return send(w, to, args, resp, nil)
}

func (w *stagedWire) RequestPreVote(_ raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return send(w, to, args, resp, nil)
}

func (w *stagedWire) TimeoutNow(_ raft.ServerID, to raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return send(w, to, args, resp, nil)
}

func (w *stagedWire) InstallSnapshot(_ raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return send(w, to, args, resp, data)
}

// isHeartbeat is the library's own rule.
func isHeartbeat(command any) bool {
	a, ok := command.(*raft.AppendEntriesRequest)
	return ok && a.Term != 0 && a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

// send carries a request to its receiver and the answer back, as the script says.
func send[T any](w *stagedWire, to raft.ServerAddress, command any, resp *T, data io.Reader) error {
	w.net.mu.Lock()
	peer, on := w.net.wires[to], w.net.on
	w.net.mu.Unlock()
	m := message{from: w.id, to: string(to), heartbeat: isHeartbeat(command), command: command}
	var f fate
	if on != nil {
		f = on(m)
	}
	if peer == nil || f.lost || !w.pass(peer, f.delay) {
		return w.silence()
	}
	answer, ok := peer.deliver(m, data)
	if f.afterArrival != nil {
		f.afterArrival()
	}
	if !ok || f.answerLost || !w.pass(peer, f.answerDelay) {
		return w.silence()
	}
	if answer.Error != nil {
		return answer.Error
	}
	*resp = *answer.Response.(*T)
	return nil
}

// deliver hands the request to the node and waits for its answer.
func (w *stagedWire) deliver(m message, data io.Reader) (raft.RPCResponse, bool) {
	answer := make(chan raft.RPCResponse, 1)
	rpc := raft.RPC{Command: m.command, Reader: data, RespChan: answer}
	w.mu.Lock()
	fast := w.fast
	w.mu.Unlock()
	if m.heartbeat && fast != nil {
		fast(rpc)
	} else {
		select {
		case w.rpcs <- rpc:
		case <-w.done:
			return raft.RPCResponse{}, false
		}
	}
	select {
	case a := <-answer:
		return a, true
	case <-w.done:
		return raft.RPCResponse{}, false
	}
}

// pass waits while a message is on its way; false if either end is gone by then.
func (w *stagedWire) pass(peer *stagedWire, delay time.Duration) bool {
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.done:
	case <-peer.done:
	}
	return false
}

// silence is what a sender hears of a lost message.
func (w *stagedWire) silence() error {
	t := time.NewTimer(stagedTimeout)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.done:
	}
	return fmt.Errorf("%s: %w", w.id, errLost)
}
