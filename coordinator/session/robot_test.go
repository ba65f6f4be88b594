package session

import (
	"context"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// robot is a process that follows the rules: it restores, votes, commits and rolls back as told,
// attaches again when its stream ends, and repeats the votes it holds.
type robot struct {
	w        *world
	member   string
	instance string
	down     []*robot        // where the source's barriers go
	ctx      context.Context // of the process
	kill     context.CancelFunc
	gone     chan struct{}

	mu     sync.Mutex
	st     *unisinkv1.Standing
	votes  map[uint64]*unisinkv1.Vote // left the process, outcome unknown
	term   uint64
	said   []string // orders heard, without Waiting
	waits  string
	out    *resource
	cut    context.CancelFunc // ends the present stream
	thaw   chan struct{}      // closed while the process is not paused
	mute   bool               // keeps its votes to itself
	deaf   bool               // does not say what is proven
	idle   bool               // has no work
	curt   bool               // says what it has to and does not renew its lease besides
	solo   bool
	starts int
	fence  string
}

// start runs robots for the members of the pipeline, barriers flowing from the first to the rest.
func (w *world) start(members ...string) []*robot {
	var all []*robot
	for _, m := range members {
		all = append(all, &robot{w: w, member: m, instance: m + "-1"})
	}
	all[0].down = all[1:]
	for _, r := range all {
		r.run()
	}
	return all
}

func (r *robot) run() {
	r.st = &unisinkv1.Standing{Phase: unisinkv1.Phase_PHASE_IDLE}
	r.votes, r.out, r.gone = map[uint64]*unisinkv1.Vote{}, r.w.resource(r.member), make(chan struct{})
	r.thaw = make(chan struct{})
	close(r.thaw)
	ctx, cancel := context.WithCancel(context.Background())
	r.ctx, r.kill = ctx, cancel
	r.w.ends(r.die)
	go func() {
		defer close(r.gone)
		defer cancel()
		go r.renew(ctx)
		for ctx.Err() == nil && r.session(ctx) {
			pause(ctx, 50*time.Millisecond)
		}
	}()
}

// sleep pauses the whole process; wake lets it go on where it was.
func (r *robot) sleep() { r.set(func() { r.thaw = make(chan struct{}) }) }
func (r *robot) wake()  { r.set(func() { close(r.thaw) }) }

// awake waits while the process is paused.
func (r *robot) awake() {
	r.mu.Lock()
	thaw := r.thaw
	r.mu.Unlock()
	select {
	case <-thaw:
	case <-r.ctx.Done():
	}
}

// pause waits between two tries.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// die kills the process: its stream ends at once, its memory is gone.
func (r *robot) die() { r.kill(); <-r.gone }

func (r *robot) renew(ctx context.Context) {
	for ctx.Err() == nil {
		r.awake()
		r.mu.Lock()
		gen, work, curt := r.st.GetGeneration(), !r.idle && len(r.down) > 0 || r.solo, r.curt
		r.mu.Unlock()
		if curt {
			pause(ctx, 200*time.Millisecond)
			continue
		}
		_, _ = r.w.now().Renew(ctx, &unisinkv1.RenewRequest{
			Scope: &unisinkv1.Scope{Pipeline: pipelineName}, Member: r.member, Instance: r.instance, Generation: gen, HasWork: work,
		})
		pause(ctx, 200*time.Millisecond)
	}
}

// session is one attachment; false: this process has come to its end.
func (r *robot) session(ctx context.Context) bool {
	proc := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.awake()
	r.set(func() { r.cut = cancel })
	req := attachRequest(r.member, r.instance)
	r.mu.Lock()
	st := &unisinkv1.Standing{
		Generation: r.st.GetGeneration(), Phase: r.st.GetPhase(), NewestBarrier: r.st.GetNewestBarrier(),
		NewestBarrierFinal: r.st.GetNewestBarrierFinal(), NewestOutcome: r.st.GetNewestOutcome(), ProvenThrough: r.st.GetProvenThrough(),
	}
	if !r.mute {
		for _, v := range r.votes {
			st.Votes = append(st.Votes, v)
		}
	}
	req.Standing, req.Term = st, r.term
	r.mu.Unlock()
	o := &orders{ctx: ctx, out: make(chan *unisinkv1.Order, 100)}
	ended := make(chan error, 1)
	go func() { ended <- r.w.now().Attach(req, o) }()
	for {
		select {
		case x := <-o.out:
			r.awake()
			if !r.obey(proc, x) {
				cancel()
				<-ended //nolint:errcheck // it was cut on purpose
				return false
			}
		case err := <-ended:
			for len(o.out) > 0 {
				if !r.obey(proc, <-o.out) {
					return false
				}
			}
			reason, _ := grpcerr.Reason(err)
			return reason != grpcerr.Fenced
		}
	}
}

func (r *robot) obey(ctx context.Context, o *unisinkv1.Order) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term = max(r.term, o.GetTerm())
	if w := o.GetWaiting(); w != nil {
		r.waits = w.GetFor()
		return true
	}
	r.said = append(r.said, describe(o))
	switch x := o.GetOrder().(type) {
	case *unisinkv1.Order_Restore:
		r.restore(ctx, x.Restore)
	case *unisinkv1.Order_Start:
		r.st.Phase = unisinkv1.Phase_PHASE_RUNNING
		r.starts++
		if x.Start.GetSolo() {
			r.solo = true
			go r.runSolo(ctx, x.Start.GetGeneration())
		}
	case *unisinkv1.Order_Barrier:
		r.inject(x.Barrier.GetEpoch(), x.Barrier.GetFinal())
	case *unisinkv1.Order_Committed:
		r.through(x.Committed.GetEpoch().GetGeneration(), x.Committed.GetEpoch().GetN())
		if !r.deaf {
			go r.prove(ctx, x.Committed.GetEpoch().GetGeneration(), r.st.GetProvenThrough())
		}
	case *unisinkv1.Order_Close:
		if x.Close.GetGeneration() != r.st.GetGeneration() {
			return true
		}
		r.through(x.Close.GetGeneration(), x.Close.GetFinal())
		go r.prove(ctx, x.Close.GetGeneration(), x.Close.GetFinal())
		for n, v := range r.votes {
			r.finish(v, "rolled back")
			delete(r.votes, n)
		}
		r.st.Phase = unisinkv1.Phase_PHASE_IDLE
	case *unisinkv1.Order_VoteAgain:
		for n := range r.votes {
			go r.send(ctx, n)
		}
	case *unisinkv1.Order_Stop:
		_, _ = r.w.now().Leave(ctx, &unisinkv1.LeaveRequest{
			Scope: &unisinkv1.Scope{Pipeline: pipelineName}, Member: r.member, Instance: r.instance, Cause: "told to stop",
		})
		return false
	case *unisinkv1.Order_Fenced:
		r.fence = x.Fenced.GetCause()
		return false
	}
	return true
}

func (r *robot) restore(ctx context.Context, x *unisinkv1.Restore) {
	r.st = &unisinkv1.Standing{Generation: x.GetGeneration(), Phase: unisinkv1.Phase_PHASE_RESTORING}
	clear(r.votes)
	r.out.restore(x.GetGeneration(), x.GetUnfinished())
	req := &unisinkv1.ReadyRequest{
		Scope: &unisinkv1.Scope{Pipeline: pipelineName}, Member: r.member, Instance: r.instance, Generation: x.GetGeneration(), Swept: x.GetDebts(),
	}
	for _, u := range x.GetUnfinished() {
		req.Proofs = append(req.Proofs, &unisinkv1.BranchProof{
			Epoch: u.GetEpoch(), Member: u.GetMember(), Resource: u.GetResource(),
			Proof: &unisinkv1.Proof{Verdict: unisinkv1.Verdict_VERDICT_COMMITTED, Evidence: "seen"},
		})
	}
	go func() {
		for ctx.Err() == nil {
			r.awake()
			if _, err := r.w.now().Ready(ctx, req); err == nil {
				r.mu.Lock()
				if r.st.GetPhase() == unisinkv1.Phase_PHASE_RESTORING {
					r.st.Phase = unisinkv1.Phase_PHASE_READY
				}
				r.mu.Unlock()
				return
			}
			pause(ctx, 50*time.Millisecond)
		}
	}()
}

// inject passes a barrier through the process: once, in order, then on to the others.
func (r *robot) inject(e *unisinkv1.Epoch, final bool) {
	if r.st.GetPhase() != unisinkv1.Phase_PHASE_RUNNING || e.GetGeneration() != r.st.GetGeneration() {
		return
	}
	for n := r.st.GetNewestBarrier() + 1; n <= e.GetN(); n++ {
		v := yes(r.member, e.GetGeneration(), n)
		if !r.out.prepare(v.GetBranches()[0].GetHandle().GetName(), e.GetGeneration()) {
			return // a zombie; it will be told
		}
		r.st.NewestBarrier, r.st.NewestBarrierFinal = n, final && n == e.GetN()
		v.Final = r.st.GetNewestBarrierFinal()
		r.votes[n] = v
		if !r.solo {
			go r.send(r.ctx, n)
		}
		for _, d := range r.down {
			go d.pass(d.ctx, &unisinkv1.Epoch{Generation: e.GetGeneration(), N: n}, v.GetFinal())
		}
	}
}

// pass takes a barrier from upstream, which waits until this process has started.
func (r *robot) pass(ctx context.Context, e *unisinkv1.Epoch, final bool) {
	for ctx.Err() == nil {
		r.mu.Lock()
		if r.st.GetGeneration() == e.GetGeneration() && r.st.GetPhase() == unisinkv1.Phase_PHASE_RUNNING {
			r.inject(e, final)
			r.mu.Unlock()
			return
		}
		over := r.st.GetGeneration() > e.GetGeneration() || r.st.GetPhase() == unisinkv1.Phase_PHASE_IDLE
		r.mu.Unlock()
		if over {
			return
		}
		pause(ctx, time.Millisecond)
	}
}

// send repeats a vote until a leader has taken it.
func (r *robot) send(ctx context.Context, n uint64) {
	for ctx.Err() == nil {
		r.awake()
		r.mu.Lock()
		v, mute := r.votes[n], r.mute
		r.mu.Unlock()
		if v == nil || mute {
			return
		}
		_, err := r.w.now().Vote(ctx, &unisinkv1.VoteRequest{Scope: &unisinkv1.Scope{Pipeline: pipelineName}, Member: r.member, Instance: r.instance, Vote: v})
		if reason, _ := grpcerr.Reason(err); err == nil || reason == grpcerr.Closed || reason == grpcerr.Fenced {
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// through commits what is decided.
func (r *robot) through(gen, n uint64) {
	if gen != r.st.GetGeneration() {
		return
	}
	for k, v := range r.votes {
		if k <= n {
			r.finish(v, "committed")
			delete(r.votes, k)
		}
	}
	r.st.NewestOutcome = max(r.st.GetNewestOutcome(), n)
	r.st.ProvenThrough = r.st.GetNewestOutcome()
}

func (r *robot) finish(v *unisinkv1.Vote, how string) {
	for _, b := range v.GetBranches() {
		r.out.finish(b.GetHandle().GetName(), how)
	}
}

func (r *robot) prove(ctx context.Context, gen, n uint64) {
	for n > 0 && ctx.Err() == nil {
		r.awake()
		_, err := r.w.now().Resolved(ctx, &unisinkv1.ResolvedRequest{
			Scope: &unisinkv1.Scope{Pipeline: pipelineName}, Member: r.member, Instance: r.instance, Generation: gen, ProvenThrough: n,
		})
		if reason, _ := grpcerr.Reason(err); err == nil || reason == grpcerr.Fenced {
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// runSolo times its own barriers and decides them, one at a time.
func (r *robot) runSolo(ctx context.Context, gen uint64) {
	for ctx.Err() == nil {
		pause(ctx, 100*time.Millisecond)
		r.mu.Lock()
		running := r.st.GetPhase() == unisinkv1.Phase_PHASE_RUNNING && r.st.GetGeneration() == gen
		if !running {
			r.mu.Unlock()
			return
		}
		if len(r.votes) == 0 && !r.st.GetNewestBarrierFinal() {
			r.inject(&unisinkv1.Epoch{Generation: gen, N: r.st.GetNewestBarrier() + 1}, false)
		}
		v := r.votes[r.st.GetNewestBarrier()]
		r.mu.Unlock()
		if v == nil {
			continue
		}
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		resp, err := r.w.now().Decide(one, &unisinkv1.DecideRequest{Vote: &unisinkv1.VoteRequest{
			Scope: &unisinkv1.Scope{Pipeline: pipelineName}, Member: r.member, Instance: r.instance, Vote: v,
		}})
		cancel()
		if err == nil && resp.GetOutcome() == unisinkv1.Outcome_OUTCOME_COMMITTED {
			r.mu.Lock()
			r.through(gen, v.GetEpoch().GetN())
			n := r.st.GetProvenThrough()
			r.mu.Unlock()
			r.prove(ctx, gen, n)
		}
	}
}

func (r *robot) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *robot) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.said...)
}
