package sim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/judge"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// world is one run.
type world struct {
	t         *testing.T
	plan      plan
	hist      *check.History
	nodes     *nodes
	watch     *watchers
	seats     []*seat
	hands     []*hand
	accounts  map[string]*participanttest.Store
	rounds    *rounds
	kafka     *broker // nil where no member needs it
	operator  *participant.Client
	calm      chan struct{} // closed when faults are to end
	rewinding chan struct{} // capacity 1: held while a pipeline is set back
	owed      map[debt]bool // at the end
	undoing   sync.WaitGroup

	mu         sync.Mutex // guards the rest
	rnd        *rand.Rand
	armed      []*armed
	txns       []string
	calls      uint64
	complaints []check.Finding
	standing   string // where the goroutines were when something did not end
}

// armed is a fault that waits for its moment.
type armed struct {
	at    string
	fire  chan string // gets who came to that moment
	taken bool
}

func newWorld(t *testing.T, p plan) *world {
	start := time.Now()
	w := &world{
		t: t, plan: p, hist: check.NewHistory(func() time.Duration { return time.Since(start) }), rounds: newRounds(),
		accounts: map[string]*participanttest.Store{}, calm: make(chan struct{}), rewinding: make(chan struct{}, 1), rnd: rand.New(rand.NewPCG(p.seed, 2)),
	}
	logger := slog.New(slog.NewTextHandler(&ear{w}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	if os.Getenv("UNISINK_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(&teller{w, os.Stderr}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	w.nodes = newNodes(t, p.nodes, p.seed, w.hist, logger, p.tune)
	w.nodes.decided = w.rounds.decided
	for _, alias := range []string{"left", "right"} {
		w.accounts[alias] = w.store("account-" + alias)
	}
	for _, pl := range p.pipelines {
		for _, m := range pl.members {
			s := &seat{w: w, pipeline: pl.name, name: m, targets: map[string]target{}, every: pl.every}
			if windows, ok := pl.windows[m]; ok {
				s.windows = newWindows(s, windows, p.seed)
			}
			for _, alias := range pl.resources[m] {
				s.targets[alias] = w.target(s, pl.kinds[m+"/"+alias], alias)
			}
			w.seats = append(w.seats, s)
		}
	}
	for i := range p.hands {
		w.hands = append(w.hands, &hand{w: w, name: fmt.Sprintf("hand%d", i+1)})
	}
	return w
}

// target makes what a member's resource changes.
func (w *world) target(s *seat, kind, alias string) target {
	name := s.pipeline + "-" + s.name + "-" + alias
	switch kind {
	case "file":
		most := int64(64) // several files in an epoch
		if s.windows != nil {
			most = 1 << 10 // a handle names no more than some hundred files, and results come in heaps
		}
		return newFileTarget(w, name, most)
	case "kafka":
		return w.kafkaTarget(name, s, alias)
	}
	return &memoryTarget{w: w, name: name, store: w.store(name)}
}

// teller puts the run's time in front of what is logged.
type teller struct {
	w  *world
	to io.Writer
}

func (t *teller) Write(b []byte) (int, error) { return t.to.Write(b) }

// planted is in the position of every member, whose bytes are the application's alone.
const planted = "planted-secret-7f3a"

// ear listens to what is logged, and keeps what nobody should have said.
type ear struct{ w *world }

func (e *ear) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(planted)) {
		e.w.hist.Add(check.Event{Who: "log", Kind: check.Said, Text: string(b)})
	}
	return len(b), nil
}

// store makes one whose every change is in the history.
func (w *world) store(name string) *participanttest.Store {
	s := participanttest.NewStore(name)
	s.Watch(func(c participanttest.Change) {
		e := check.Event{Who: name, Store: name, Handle: c.Handle, Records: c.Records, Branch: check.Branch{
			Member: c.Name.Member, Resource: c.Name.Resource, Txn: c.Name.Txn, Epoch: check.Epoch{Generation: c.Name.Generation, N: c.Name.N},
		}}
		if c.Name.Txn == "" {
			e.Branch.Scope = c.Name.Scope()
		}
		switch c.Call {
		case participanttest.CallOpen:
			e.Kind = check.Opened
			e.Branch = check.Branch{
				Scope: c.Opening.Scope, Member: c.Opening.Member, Resource: c.Opening.Resource, Epoch: check.Epoch{Generation: c.Opening.Generation},
			}
		case participanttest.CallPrepare:
			e.Kind = check.Prepared
		case participanttest.CallCommit:
			e.Kind = check.Committed
			if c.Name.Txn == "" {
				w.rounds.decided(c.Name.Scope(), e.Branch.Epoch)
			}
		case participanttest.CallRollback:
			e.Kind = check.RolledBack
		default:
		}
		w.hist.Add(e)
	})
	return s
}

func (w *world) say(who, format string, args ...any) {
	w.hist.Add(check.Event{Who: who, Kind: check.Note, Text: fmt.Sprintf(format, args...)})
}

// complain says that the run itself could not go as it must.
func (w *world) complain(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.complaints = append(w.complaints, check.Finding{Rule: "run", Text: fmt.Sprintf(format, args...)})
}

// found is all that is wrong with a run that has ended.
func (w *world) found() []check.Finding {
	events := w.hist.Events()
	_, answers := judge.Register(events, "")
	return slices.Concat(check.All(events, w.bounds()), answers, w.complaints)
}

// draw is a number below n. Which one depends on who else draws: the plan alone is determined.
func (w *world) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

func (w *world) nextCall() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	return w.calls
}

func (w *world) addTxn(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.txns = append(w.txns, id)
}

// someTxn is one of the last few that anybody began.
func (w *world) someTxn() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.txns) == 0 {
		return ""
	}
	last := w.txns[max(0, len(w.txns)-8):]
	return last[w.rnd.IntN(len(last))]
}

// aimed tells a waiting fault that its moment has come, and reports whether one waited.
func (w *world) aimed(moment, who string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.armed {
		if !a.taken && a.at == moment {
			a.taken = true
			a.fire <- who
			return true
		}
	}
	return false
}

// await waits for a fault's moment, at most two seconds.
func (w *world) await(moment string) {
	a := &armed{at: moment, fire: make(chan string, 1)}
	w.mu.Lock()
	w.armed = append(w.armed, a)
	w.mu.Unlock()
	select {
	case <-a.fire:
	case <-time.After(2 * time.Second):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = slices.DeleteFunc(w.armed, func(x *armed) bool { return x == a })
}

// run is the whole run, from the first node to the last record.
func (w *world) run(ctx context.Context) {
	defer w.stopNodes()
	if w.kafka != nil {
		defer w.kafka.close()
	}
	for _, id := range w.nodes.ids {
		w.nodes.start(id)
	}
	watching, stopWatching := context.WithCancel(ctx)
	w.watch = w.nodes.watch(watching)
	defer w.watch.group.Wait()
	defer stopWatching()
	desk := w.nodes.host("operator")
	desk.immune = true
	w.operator = w.nodes.client(desk, w.nodes.addresses()...)
	defer func() { _ = w.operator.Close() }()
	if !w.set(ctx) {
		return
	}
	working, stopWorking := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for _, h := range w.hands {
		clients.Go(func() { h.work(working) })
	}
	supervising, stopSupervising := context.WithCancel(ctx)
	var supervisors sync.WaitGroup
	for _, s := range w.seats {
		s.run()
		supervisors.Go(func() { s.supervise(supervising) })
	}
	defer w.giveUp(stopSupervising, &supervisors)
	time.Sleep(2 * time.Second)
	w.minority(ctx)
	w.storm(ctx)
	w.heal(ctx)
	stopWorking()
	clients.Wait()
	w.finishByHand(ctx, w.operator)
	w.stopPipelines(ctx)
	w.hist.Add(check.Event{Who: "run", Kind: check.Quiet})
	w.read(ctx)
}

// set makes the group and declares the pipelines.
func (w *world) set(ctx context.Context) bool {
	if err := w.patiently(ctx, time.Minute, func(ctx context.Context) error { return w.nodes.bootstrap(ctx, w.operator) }); err != nil {
		w.complain("bootstrap: %v", err)
		return false
	}
	for _, pl := range w.plan.pipelines {
		p := &unisinkv1.Pipeline{Name: pl.name, Fingerprint: "f1", Shards: 1, Settings: &unisinkv1.PipelineSettings{
			EpochIntervalMs: pl.interval.Milliseconds(), LeaseMs: pl.lease.Milliseconds(), MaxPending: uint32(pl.maxPending), PrepareTimeoutMs: 1500,
		}}
		for _, m := range pl.members {
			spec := &unisinkv1.MemberSpec{Name: m, Source: true}
			for _, r := range pl.resources[m] {
				spec.Resources = append(spec.Resources, &unisinkv1.ResourceSpec{Name: r, Kind: pl.kinds[m+"/"+r]})
			}
			p.Members = append(p.Members, spec)
		}
		meta := w.operator.NewMeta()
		err := w.patiently(ctx, time.Minute, func(ctx context.Context) error {
			_, err := w.operator.Pipelines().PutPipeline(ctx, &unisinkv1.PutPipelineRequest{Meta: meta, Pipeline: p})
			return err
		})
		if err != nil {
			w.complain("declare %s: %v", pl.name, err)
			return false
		}
	}
	return true
}

// patiently tries until it succeeds or the time is over.
func (w *world) patiently(ctx context.Context, d time.Duration, do func(context.Context) error) error {
	end := time.Now().Add(d)
	for {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := do(try)
		cancel()
		if err == nil || errors.Is(err, participant.ErrRefused) || time.Now().After(end) {
			return err
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// bounds are what this run must keep.
func (w *world) bounds() check.Bounds {
	b := check.Bounds{
		MaxPending: map[string]int{}, Resources: map[string]map[string][]string{}, Windows: map[string]map[string]check.Windows{}, DecideWithin: 90 * time.Second,
		Grace: 5 * time.Second, Share: 0.99, EntriesPerChange: 4,
		Secrets: []string{planted},
		Broken:  []string{"takes back its vote", "a second time, differently", "claims to have seen the barrier", "for the final one, which it is not"},
	}
	for _, pl := range w.plan.pipelines {
		scope := pl.name + "/0"
		b.MaxPending[scope] = pl.maxPending
		b.Resources[scope], b.Windows[scope] = pl.resources, map[string]check.Windows{}
	}
	for _, s := range w.seats {
		if s.windows != nil {
			b.Windows[s.scope()][s.name] = s.windows.judged()
		}
	}
	return b
}

// heal ends all that is wrong and waits until everything goes on.
func (w *world) heal(ctx context.Context) {
	close(w.calm)
	w.undoing.Wait()
	for _, id := range w.nodes.ids {
		_ = w.patiently(ctx, time.Minute, func(context.Context) error {
			if !w.nodes.start(id) {
				return errors.New("it does not start")
			}
			return nil
		})
	}
	w.hist.Add(check.Event{Who: "run", Kind: check.Healed})
	for _, pl := range w.plan.pipelines {
		w.desire(ctx, pl.name, unisinkv1.DesiredState_DESIRED_STATE_RUNNING)
		w.resume(ctx, pl.name)
	}
	waiting := map[string]bool{}
	for _, pl := range w.plan.pipelines {
		waiting[pl.name+"/0"] = true
	}
	from := len(w.hist.Events())
	for end := time.Now().Add(2 * time.Minute); len(waiting) > 0 && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		events := w.hist.Events()
		for _, e := range events[from:] {
			if e.Kind == check.Decided {
				delete(waiting, e.Branch.Scope)
			}
		}
		from = len(events)
	}
}

func (w *world) desire(ctx context.Context, pipeline string, state unisinkv1.DesiredState) {
	meta := w.operator.NewMeta()
	err := w.patiently(ctx, time.Minute, func(ctx context.Context) error {
		_, err := w.operator.Pipelines().SetDesired(ctx, &unisinkv1.SetDesiredRequest{Meta: meta, Name: pipeline, Desired: state})
		return err
	})
	if err != nil {
		w.say("operator", "%s is not set to %s: %v", pipeline, state, err)
	}
}

func (w *world) status(ctx context.Context, pipeline string) *unisinkv1.ScopeStatus {
	var st *unisinkv1.ScopeStatus
	_ = w.patiently(ctx, time.Minute, func(ctx context.Context) error {
		g, err := w.operator.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: pipeline})
		if err == nil {
			st = g.GetScopes()[0]
		}
		return err
	})
	return st
}

// resume lets a scope go on that has halted because nothing worked for too long.
func (w *world) resume(ctx context.Context, pipeline string) {
	st := w.status(ctx, pipeline)
	if st.GetHalted() == "" {
		return
	}
	w.say("operator", "resumes %s, which had halted: %s", pipeline, st.GetHalted())
	if strings.Contains(st.GetHalted(), participant.ErrMisconfigured.Error()) {
		w.complain("%s has halted, which no fault can do: %s", pipeline, st.GetHalted())
	}
	meta := w.operator.NewMeta()
	err := w.patiently(ctx, time.Minute, func(ctx context.Context) error {
		_, err := w.operator.Pipelines().Resume(ctx, &unisinkv1.ResumeRequest{Meta: meta, Scope: st.GetScope(), Why: "the faults are over"})
		return err
	})
	if err != nil {
		w.complain("resume %s: %v", pipeline, err)
	}
}

// stopPipelines asks for the last epoch of each and waits for their members to leave.
func (w *world) stopPipelines(ctx context.Context) {
	for _, s := range w.seats {
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
	}
	for _, pl := range w.plan.pipelines {
		w.desire(ctx, pl.name, pl.atStop())
	}
	for _, s := range w.seats {
		end := time.After(2 * time.Minute)
		for left := false; !left; {
			l := s.now()
			select {
			case <-l.done:
				left = l.err == nil
				if !left {
					pause(ctx, 500*time.Millisecond)
				}
			case <-time.After(5 * time.Second):
				// A process that came when the pipeline had stopped waits until it is started again.
				if l.task.idle() && w.stopped(ctx, s.pipeline) {
					w.say(s.id(), "process %d came after the stop, and is told to end", l.number)
					l.cancel()
					<-l.done
					left = true
				}
			case <-end:
				w.complain("%s does not leave", s.id())
				w.standing = goroutines("unisink/coordinator", "unisink/participant")
				left = true
			}
		}
	}
}

// stopped reports a pipeline that no member leaves any more, since none is in it.
func (w *world) stopped(ctx context.Context, pipeline string) (stopped bool) {
	if err := w.patiently(ctx, time.Minute, func(ctx context.Context) error {
		g, err := w.operator.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: pipeline})
		stopped = g.GetPipeline().GetDesired() == unisinkv1.DesiredState_DESIRED_STATE_STOPPED
		return err
	}); err != nil {
		w.complain("ask whether %s has stopped: %v", pipeline, err)
	}
	return stopped
}

// giveUp ends the members that are left, in a run that failed.
func (w *world) giveUp(stop context.CancelFunc, supervisors *sync.WaitGroup) {
	stop()
	supervisors.Wait()
	for _, s := range w.seats {
		l := s.now()
		l.cancel()
		l.die()
		<-l.done
	}
}

func (w *world) stopNodes() {
	for _, id := range w.nodes.ids {
		w.nodes.crash(id)
	}
	w.nodes.dying.Wait()
	w.nodes.pumps.Wait()
}

func join(findings []check.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		b.WriteString("    " + f.String() + "\n")
	}
	return b.String()
}
