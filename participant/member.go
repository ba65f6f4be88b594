package participant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Member is a process's part in a scope: it attaches to the leader, restores, runs its Task, votes
// and finishes what was decided. A Member runs once.
type Member struct {
	cfg    MemberConfig
	task   Task
	router *route.Router
	log    *slog.Logger
	links  *links
	infos  []*unisinkv1.ResourceInfo

	troubles *troubles
	renewing chan struct{} // asks for a renewal now; holds one
	steps    *steps        // for the driver

	// Set by Run before anything else starts.
	newLife func() *life
	end     func(error) // ends Run with the error; the first counts

	mu  sync.Mutex // guards the rest; never held across I/O or a callback
	ran bool
	ns  Namespace
	gen *generation // the newest restored or being restored; nil before the first
}

// NewMember makes a member of a scope. Nothing is contacted before Run.
func NewMember(cfg MemberConfig, task Task) (*Member, error) {
	err := cfg.Validate()
	if task == nil {
		err = errors.Join(err, errors.New("the task is nil"))
	}
	if err != nil {
		return nil, fmt.Errorf("member: %w", err)
	}
	cfg = cfg.filled()
	router, err := cfg.router()
	if err != nil {
		return nil, fmt.Errorf("member: %w", err)
	}
	m := &Member{
		cfg: cfg, task: task, router: router, links: newLinks(), steps: newSteps(),
		troubles: &troubles{},
		renewing: make(chan struct{}, 1),
	}
	m.log = cfg.Logger.With(obs.Scope(m.scopeName()), obs.Member(cfg.Member), obs.Instance(cfg.Instance))
	return m, nil
}

// errStopped ends Run without an error.
var errStopped = errors.New("stopped")

// Run takes part until one of these:
//   - ctx ends: the task is halted, what is proven is told, the generation is closed at once (Leave), what is not
//     prepared is dropped, what is prepared stays, nothing is published (S2). Returns the context's cause.
//   - the pipeline is stopped and everything is proven. Returns nil.
//   - it can't go on: ErrFenced (final: start a new process), ErrNoSuchPipeline, ErrMemberAlive (with
//     NoWait), ErrRefused, ErrMisconfigured; ErrUnreachable when no coordinator was found at the start.
//
// A leader that is lost is looked for without end; the task works on meanwhile, held back when
// MaxPending epochs are not proven. Everything that Run started has ended when it returns. The
// resources stay open: they are the caller's.
func (m *Member) Run(ctx context.Context) error {
	m.mu.Lock()
	again := m.ran
	m.ran = true
	m.mu.Unlock()
	if again {
		return fmt.Errorf("%w: a member runs once; make another", ErrBug)
	}
	if err := m.describe(ctx); err != nil {
		return err
	}
	work, end := context.WithCancelCause(ctx)
	defer end(nil)
	m.newLife = func() *life { return newLife(work) }
	m.end = func(err error) { end(err) }
	// The wire outlives the work, so that leaving can be said.
	wire, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()

	var group sync.WaitGroup
	group.Go(func() {
		if err := m.attachAlways(wire); err != nil {
			end(err)
		}
	})
	group.Go(func() { m.renewAlways(wire) })
	m.drive(work)
	m.part(wire, context.Cause(work), ctx.Err() != nil)
	hangUp()
	group.Wait()
	if err := m.router.Close(); err != nil {
		m.log.DebugContext(ctx, "closing connections", obs.Err(err))
	}
	if err := context.Cause(work); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

// describe asks every resource what it is, before anybody is told of it.
func (m *Member) describe(ctx context.Context) error {
	var infos []*unisinkv1.ResourceInfo
	for alias, r := range m.cfg.Resources {
		d, err := r.Describe(ctx)
		if err != nil {
			return fmt.Errorf("resource %q: %w", alias, err)
		}
		infos = append(infos, &unisinkv1.ResourceInfo{
			Name: alias, Kind: d.Kind, Identity: d.Identity, CanList: d.CanList, HasBranches: true, Text: d.Text,
		})
	}
	for alias, d := range m.cfg.Inputs {
		infos = append(infos, &unisinkv1.ResourceInfo{Name: alias, Kind: d.Kind, Identity: d.Identity, CanList: d.CanList, Text: d.Text})
	}
	slices.SortFunc(infos, func(a, b *unisinkv1.ResourceInfo) int { return strings.Compare(a.GetName(), b.GetName()) })
	m.infos = infos
	return nil
}

// part is the end of a run: the task is halted, what is not prepared dropped, and if the process
// is told to go while its generation is open, the coordinator is told.
func (m *Member) part(wire context.Context, cause error, told bool) {
	g := m.generation()
	if g == nil {
		return
	}
	ctx, cancel := context.WithTimeout(wire, 30*time.Second)
	defer cancel()
	open := g.supersede(cause)
	g.halt(ctx, causeText(cause))
	g.dropUnprepared(ctx)
	g.finishing.over(cause)
	if told && open {
		m.links.leave()
		g.tellLast(wire)
		m.leave(wire, g.id, causeText(cause))
	}
}

func causeText(cause error) string {
	if errors.Is(cause, context.Canceled) {
		return "the process was told to stop"
	}
	return cause.Error()
}

// leave closes the generation at once instead of at the lease's end. It is a courtesy: nothing
// depends on it, so it is tried for a second only.
func (m *Member) leave(ctx context.Context, generation uint64, why string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req := &unisinkv1.LeaveRequest{
		Meta: m.newMeta(), Scope: m.scope(), Member: m.cfg.Member, Instance: m.cfg.Instance, Generation: generation, Cause: why,
	}
	err := m.answer(ctx, func(ctx context.Context, l *link) error {
		_, err := l.session.Leave(ctx, req)
		return err
	})
	if err != nil && !errors.Is(err, ErrClosed) {
		m.log.WarnContext(ctx, "could not say goodbye; the generation ends with the lease", obs.Gen(generation), obs.Err(err))
	}
}

func (m *Member) generation() *generation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gen
}

func (m *Member) namespace() Namespace {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ns
}

func (m *Member) scope() *unisinkv1.Scope {
	return &unisinkv1.Scope{Pipeline: m.cfg.Pipeline, Shard: m.cfg.Shard}
}

func (m *Member) scopeName() string {
	return BranchName{Pipeline: m.cfg.Pipeline, Shard: m.cfg.Shard}.Scope()
}

// actor is "orders/0/sink".
func (m *Member) actor() string { return m.scopeName() + "/" + m.cfg.Member }

func (m *Member) newMeta() *unisinkv1.Meta {
	return &unisinkv1.Meta{RequestId: uuid.NewString(), Actor: m.actor()}
}
