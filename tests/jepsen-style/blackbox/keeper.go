package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

// calm is how long a keeper waits after a process that ended before it starts the next.
const calm = 300 * time.Millisecond

// keeper starts a process again whenever it has ended, as a supervisor does, unless it is held down.
type keeper struct {
	name string
	crew *child.Crew
	spec func(life int) child.Spec
	// died is told about each end, when the process is gone and before the next one starts.
	died func()

	mu      sync.Mutex // guards the rest; held for memory only
	proc    *child.Process
	held    bool
	ending  bool // it may end and is not started again
	told    bool // the present one's end is no news
	lives   int
	sudden  []string
	wrong   []string // ends among them that no fault explains
	changed chan struct{}
}

func newKeeper(name string, crew *child.Crew, spec func(life int) child.Spec) *keeper {
	return &keeper{name: name, crew: crew, spec: spec, died: func() {}, changed: make(chan struct{})}
}

// run keeps the process alive until ctx ends, or the process does after let.
func (k *keeper) run(ctx context.Context) error {
	for {
		if !k.awaitTurn(ctx) {
			return nil
		}
		p, err := k.start()
		if err != nil {
			return err
		}
		if p == nil {
			continue // held down meanwhile
		}
		select {
		case <-p.Done():
		case <-ctx.Done():
			err := p.Kill()
			k.died()
			return err
		}
		k.died()
		if k.noteEnd(p) {
			return nil
		}
		_ = rig.Sleep(ctx, calm) // its end is seen next
	}
}

func (k *keeper) awaitTurn(ctx context.Context) bool {
	for {
		k.mu.Lock()
		held, changed := k.held, k.changed
		k.mu.Unlock()
		if !held {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (k *keeper) start() (*child.Process, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held {
		return nil, nil
	}
	p, err := k.crew.Start(k.spec(k.lives))
	if err != nil {
		return nil, err
	}
	k.proc, k.told = p, false
	k.lives++
	k.signalChange()
	return p, nil
}

// noteEnd takes an end in and reports whether it was the last one.
func (k *keeper) noteEnd(p *child.Process) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.told && !k.ending {
		if why := rig.NeverMeant(p.Err()); why != "" {
			k.wrong = append(k.wrong, fmt.Sprintf("%s ended by itself: %s", k.name, why))
		}
		k.sudden = append(k.sudden, fmt.Sprintf("%s %s: %v", time.Now().Format(clock), k.name, p.Err()))
	}
	return k.ending
}

// signalChange is called with mu held.
func (k *keeper) signalChange() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// alive reports whether a process runs now.
func (k *keeper) alive() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.proc != nil && k.proc.Alive()
}

// kill ends the present process with -9. It reports whether there was one.
func (k *keeper) kill() (bool, error) {
	k.mu.Lock()
	p := k.proc
	k.told = true
	k.mu.Unlock()
	if p == nil || !p.Alive() {
		return false, nil
	}
	return true, p.Kill()
}

// hold kills the present process and starts no other until release.
func (k *keeper) hold() (bool, error) {
	k.mu.Lock()
	k.held = true
	k.mu.Unlock()
	return k.kill()
}

func (k *keeper) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held {
		k.held = false
		k.signalChange()
	}
}

// signal sends s to the present process, if there is one.
func (k *keeper) signal(s syscall.Signal) error {
	k.mu.Lock()
	p := k.proc
	k.mu.Unlock()
	if p == nil || !p.Alive() {
		return nil
	}
	return p.Signal(s)
}

// expect says that the present process may end by itself because of what is done to it.
func (k *keeper) expect() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = true
}

// let lets the process end: the next end is the last.
func (k *keeper) let() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ending = true
}

// stop asks the process to end, and waits for that.
func (k *keeper) stop(ctx context.Context, limit time.Duration) error {
	k.let()
	k.mu.Lock()
	p := k.proc
	k.mu.Unlock()
	if p == nil || !p.Alive() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("it had time enough"))
	defer cancel()
	return p.Stop(ctx, syscall.SIGTERM)
}

func (k *keeper) wrongEnds() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.wrong)
}

func (k *keeper) count() (lives int, sudden []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lives, append([]string(nil), k.sudden...)
}
