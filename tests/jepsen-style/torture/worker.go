package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

const (
	pipelineName = "orders"
	topicIn      = "orders"
	topicOut     = "order-totals"
	outputDir    = "out"
	stateDir     = "state"
	faultEnv     = "UNISINK_FAULT"
)

// life is one run of the pipeline's process.
type life struct {
	proc  *child.Process
	plan  string // what stood in the environment
	began time.Time

	alone chan struct{} // closed when somebody else looks after it

	mu   sync.Mutex // guards told; held for memory only
	told bool       // it was killed or asked to end, so its end is no news
}

// expect says that the end of the process is wanted.
func (l *life) expect() {
	l.mu.Lock()
	l.told = true
	l.mu.Unlock()
}

func (l *life) expected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// letGo leaves the process to the caller, who must kill it; the worker starts another.
func (l *life) letGo() { close(l.alone) }

// kill ends the process with -9 and returns when it was seen alive last.
func (l *life) kill() (time.Time, error) {
	l.expect()
	at := time.Now()
	return at, l.proc.Kill()
}

// worker runs the pipeline, as often as it ends, until it ends well.
type worker struct {
	crew *child.Crew
	bin  string
	args []string
	log  string
	// chance are points that no run can be made to reach, and some do.
	chance []string

	mu      sync.Mutex // guards the rest; held for memory only
	now     *life
	next    string // plan of the next run
	changed chan struct{}
	began   []time.Time   // of each run
	sudden  []string      // ends that nobody had asked for
	wrong   []string      // those among them that no fault explains
	held    chan struct{} // closed when the next run may start; nil: at once
}

func newWorker(crew *child.Crew, bin, log string, args, coordinators []string) *worker {
	args = append(slices.Clone(args), "--log-level", "debug", "--log-format", "json")
	for _, c := range coordinators {
		args = append(args, "--coordinator", c)
	}
	return &worker{crew: crew, bin: bin, args: args, log: log, changed: make(chan struct{})}
}

// hold keeps further runs from starting until release is called.
func (w *worker) hold() (release func()) {
	held := make(chan struct{})
	w.mu.Lock()
	w.held = held
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		w.held = nil
		w.mu.Unlock()
		close(held)
	}
}

// free waits until a run may start.
func (w *worker) free(ctx context.Context) error {
	w.mu.Lock()
	held := w.held
	w.mu.Unlock()
	if held == nil {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start starts one run with a plan of faults.
func (w *worker) start(plan string) (*life, error) {
	l := &life{plan: plan, began: time.Now(), alone: make(chan struct{})}
	s := child.Spec{Name: "pipeline", Path: w.bin, Args: w.args, Log: w.log, Env: []string{faultEnv + "=" + plan}}
	var err error
	l.proc, err = w.crew.Start(s)
	return l, err
}

// supervise starts the pipeline again and again until it ends without an error: then it was stopped.
func (w *worker) supervise(ctx context.Context) error {
	const calm = 200 * time.Millisecond // between runs that end by themselves
	for {
		if err := w.free(ctx); err != nil {
			return err
		}
		w.mu.Lock()
		plan := w.next
		w.next = ""
		w.mu.Unlock()
		plan, err := w.withChance(plan)
		if err != nil {
			return err
		}
		l, err := w.start(plan)
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.now = l
		w.began = append(w.began, l.began)
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
		select {
		case <-l.proc.Done():
		case <-l.alone:
			continue
		case <-ctx.Done():
			l.expect()
			return errors.Join(context.Cause(ctx), l.proc.Kill())
		}
		if l.expected() || (plan != "" && killed(l.proc.Err())) {
			continue
		}
		if l.proc.Err() == nil {
			return nil
		}
		w.mu.Lock()
		w.sudden = append(w.sudden, fmt.Sprintf("%s: %v", time.Now().Format(clock), l.proc.Err()))
		if why := rig.NeverMeant(l.proc.Err()); why != "" {
			w.wrong = append(w.wrong, "the pipeline ended by itself: "+why)
		}
		w.mu.Unlock()
		if err := rig.Sleep(ctx, calm); err != nil {
			return err
		}
	}
}

// withChance adds to a plan the first point of those that only chance leads to at which no run has
// crashed yet.
func (w *worker) withChance(plan string) (string, error) {
	hit, _, err := crashes(w.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	for _, p := range missing(w.chance, hit) {
		return strings.TrimPrefix(plan+","+p+"@1=crash", ","), nil
	}
	return plan, nil
}

// killed reports whether a process ended by kill -9.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// current is the run that was started last.
func (w *worker) current() *life {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// plan sets what the next run finds in its environment.
func (w *worker) plan(p string) {
	w.mu.Lock()
	w.next = p
	w.mu.Unlock()
}

// after waits until a run later than l was started.
func (w *worker) after(ctx context.Context, l *life) (*life, error) {
	for {
		w.mu.Lock()
		now, changed := w.now, w.changed
		w.mu.Unlock()
		if now != nil && now != l {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// leave asks a run to end as an operator would, and kills it if it does not.
func (l *life) leave(ctx context.Context) error {
	l.expect()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return l.proc.Stop(ctx, syscall.SIGTERM)
}

func (w *worker) wrongEnds() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.wrong)
}

func (w *worker) count() (runs int, sudden []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.began), slices.Clone(w.sudden)
}

// starts are when each run began.
func (w *worker) starts() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.began)
}
