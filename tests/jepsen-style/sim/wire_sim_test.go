package sim_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// patience of one message between nodes.
const wireTimeout = 500 * time.Millisecond

var (
	errCut  = errors.New("no route")
	errLost = errors.New("the answer was lost")
)

// rule is what happens to messages that go one way between two parties.
type rule struct {
	cut    bool
	delay  time.Duration
	lose   int // of a hundred answers
	repeat int // of a hundred messages
}

func (r rule) with(o rule) rule {
	return rule{r.cut || o.cut, max(r.delay, o.delay), max(r.lose, o.lose), max(r.repeat, o.repeat)}
}

// way is a direction; "*" stands for everybody. The net between nodes and that of clients are two.
type way struct {
	raft     bool
	from, to string
}

// network has the rules, and changes them.
type network struct {
	mu      sync.Mutex // guards the rest; never held while time passes
	rnd     *rand.Rand
	rules   map[way]rule
	changed chan struct{} // closed at the next change
	wires   map[string]*wire
}

func newNetwork(seed uint64) *network {
	return &network{
		rnd: rand.New(rand.NewPCG(seed, 78)), rules: map[way]rule{}, changed: make(chan struct{}), wires: map[string]*wire{},
	}
}

func (n *network) set(w way, r rule) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r == (rule{}) {
		delete(n.rules, w)
	} else {
		n.rules[w] = r
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// rule of a direction, and what tells that it may have changed.
func (n *network) rule(w way) (rule, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.rules[w].with(n.rules[way{w.raft, w.from, "*"}]).with(n.rules[way{w.raft, "*", w.to}])
	return r, n.changed
}

// lag is the plain time of one message.
func (n *network) lag() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Duration(100+n.rnd.IntN(900)) * time.Microsecond
}

func (n *network) odds(percent int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return percent > 0 && n.rnd.IntN(100) < percent
}

// wire is one process of a node on the net between nodes.
type wire struct {
	*raft.InmemTransport
	net   *network
	id    string
	sends sync.WaitGroup

	mu   sync.Mutex // guards dead
	dead bool
}

// plug joins a new process of a node.
func (n *network) plug(id string) *wire {
	_, t := raft.NewInmemTransportWithTimeout(raft.ServerAddress(id), wireTimeout)
	w := &wire{InmemTransport: t, net: n, id: id}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wires[id] = w
	for other, peer := range n.wires {
		if other != id {
			w.Connect(raft.ServerAddress(other), peer.InmemTransport)
			peer.Disconnect(raft.ServerAddress(id))
			peer.Connect(raft.ServerAddress(id), t)
		}
	}
	return w
}

// pull cuts a process off for ever.
func (w *wire) pull() {
	w.mu.Lock()
	w.dead = true
	w.mu.Unlock()
}

func (w *wire) isDead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

// call sends a message and waits for its answer, as far as the rules let them pass.
func (w *wire) call(to raft.ServerAddress, send func() error) error {
	there, _ := w.net.rule(way{true, w.id, string(to)})
	if w.isDead() || there.cut {
		time.Sleep(20 * time.Millisecond)
		return errCut
	}
	time.Sleep(w.net.lag() + there.delay)
	if w.isDead() {
		return errCut
	}
	w.net.mu.Lock()
	peer := w.net.wires[string(to)]
	w.net.mu.Unlock()
	if peer == nil || peer.isDead() {
		return errCut
	}
	err := send()
	back, _ := w.net.rule(way{true, string(to), w.id})
	if back.cut || peer.isDead() || w.net.odds(back.lose) {
		return errLost
	}
	time.Sleep(w.net.lag() + back.delay)
	if w.isDead() {
		return errLost
	}
	return err
}

// again reports whether a message is to be delivered twice, and does so.
func (w *wire) again(to raft.ServerAddress, send func() error) {
	r, _ := w.net.rule(way{true, w.id, string(to)})
	if !w.net.odds(r.repeat) {
		return
	}
	w.sends.Go(func() { _ = w.call(to, send) }) // nobody waits for the second answer
}

func (w *wire) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	w.again(to, func() error { return w.InmemTransport.AppendEntries(id, to, req, new(raft.AppendEntriesResponse)) })
	return w.call(to, func() error { return w.InmemTransport.AppendEntries(id, to, req, resp) })
}

func (w *wire) RequestVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	w.again(to, func() error { return w.InmemTransport.RequestVote(id, to, req, new(raft.RequestVoteResponse)) })
	return w.call(to, func() error { return w.InmemTransport.RequestVote(id, to, req, resp) })
}

func (w *wire) RequestPreVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	w.again(to, func() error { return w.InmemTransport.RequestPreVote(id, to, req, new(raft.RequestPreVoteResponse)) })
	return w.call(to, func() error { return w.InmemTransport.RequestPreVote(id, to, req, resp) })
}

func (w *wire) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return w.call(to, func() error { return w.InmemTransport.InstallSnapshot(id, to, req, resp, data) })
}

func (w *wire) TimeoutNow(id raft.ServerID, to raft.ServerAddress, req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return w.call(to, func() error { return w.InmemTransport.TimeoutNow(id, to, req, resp) })
}

// AppendEntriesPipeline sends in order, one at a time, without the sender waiting for the answers.
func (w *wire) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	p := &pipe{
		wire: w, id: id, to: to, queue: make(chan *flight, 64), answered: make(chan raft.AppendFuture, 64), over: make(chan struct{}),
	}
	w.sends.Go(p.run)
	return p, nil
}

// Close waits for nobody: what is on its way ends by its time-out.
func (w *wire) Close() error {
	w.pull()
	return w.InmemTransport.Close()
}

// pipe is a raft.AppendPipeline over a wire.
type pipe struct {
	wire     *wire
	id       raft.ServerID
	to       raft.ServerAddress
	queue    chan *flight
	answered chan raft.AppendFuture
	once     sync.Once
	over     chan struct{}
}

// flight is one request of a pipe.
type flight struct {
	began time.Time
	req   *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse
	err   error
	done  chan struct{}
}

func (f *flight) Error() error                          { <-f.done; return f.err }
func (f *flight) Start() time.Time                      { return f.began }
func (f *flight) Request() *raft.AppendEntriesRequest   { return f.req }
func (f *flight) Response() *raft.AppendEntriesResponse { return f.resp }

func (p *pipe) run() {
	for {
		select {
		case f := <-p.queue:
			f.err = p.wire.AppendEntries(p.id, p.to, f.req, f.resp)
			close(f.done)
			select {
			case p.answered <- f:
			case <-p.over:
				return
			}
		case <-p.over:
			return
		}
	}
}

func (p *pipe) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	f := &flight{began: time.Now(), req: req, resp: resp, done: make(chan struct{})}
	select {
	case p.queue <- f:
		return f, nil
	case <-p.over:
		return nil, raft.ErrPipelineShutdown
	}
}

func (p *pipe) Consumer() <-chan raft.AppendFuture { return p.answered }

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.over) })
	return nil
}
