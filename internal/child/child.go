package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Spec says what is started.
type Spec struct {
	Name string   // for errors
	Path string   // of the program; looked up on the PATH if it has no slash
	Args []string // without the program
	Dir  string   // working directory; default the parent's
	Env  []string // "NAME=value", added to the parent's environment
	Log  string   // file that output and errors are appended to
	// User runs the child as somebody else; default as the parent. Only root can.
	User *syscall.Credential
}

// Crew starts children and sees to it that none is left. Its methods may be called at any time
// from anywhere; after End it starts nothing.
type Crew struct {
	requests chan func()   // run on one locked thread, see serve
	ended    chan struct{} // closed by End
	gone     chan struct{} // closed when serve has returned

	mu  sync.Mutex // guards all and end; held for memory only
	all []*Process
	end bool
}

// ErrEnded is returned by Start after End.
var ErrEnded = errors.New("the crew has ended and starts nothing more")

// New returns a crew without children. It must be ended.
func New() *Crew {
	c := &Crew{requests: make(chan func()), ended: make(chan struct{}), gone: make(chan struct{})}
	go c.serve()
	return c
}

// serve starts every child from one thread that lives as long as the crew: on Linux a child dies
// with the *thread* that started it (PR_SET_PDEATHSIG), and the runtime ends threads as it likes.
func (c *Crew) serve() {
	defer close(c.gone)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case f := <-c.requests:
			f()
		case <-c.ended:
			return
		}
	}
}

// Start starts a child and returns at once. Whoever waits for it to be ready also watches Done.
func (c *Crew) Start(s Spec) (*Process, error) {
	out, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", s.Name, err)
	}
	defer func() { _ = out.Close() }()                                                           // the child has its own
	p := &Process{name: s.Name, cmd: exec.Command(s.Path, s.Args...), done: make(chan struct{})} //nolint:noctx // it ends by Stop, Kill or End
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = out, out, s.Dir
	if len(s.Env) > 0 {
		p.cmd.Env = append(os.Environ(), s.Env...)
	}
	p.cmd.SysProcAttr = attr()
	p.cmd.SysProcAttr.Credential = s.User
	started := make(chan error)
	select {
	case c.requests <- func() { started <- c.begin(p) }:
	case <-c.ended:
		return nil, fmt.Errorf("start %s: %w", s.Name, ErrEnded)
	}
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// begin starts p and enters it, on the thread that End waits for, so that End misses none.
func (c *Crew) begin(p *Process) error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, p)
	return nil
}

// End kills what is left, with all processes of its group, and returns when it has ended.
// A second call does nothing.
func (c *Crew) End() error {
	c.mu.Lock()
	again := c.end
	c.end = true
	c.mu.Unlock()
	if again {
		return nil
	}
	close(c.ended)
	<-c.gone
	c.mu.Lock()
	all := c.all
	c.mu.Unlock()
	var errs []error
	for _, p := range all {
		if p.Alive() {
			errs = append(errs, p.group(syscall.SIGKILL))
		}
	}
	for _, p := range all {
		<-p.done
	}
	return errors.Join(errs...)
}

// Process is one child.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait, once done
}

// PID returns its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when it has ended and was waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how it ended, nil for exit code 0. It may be called once Done is closed.
func (p *Process) Err() error { return p.err }

// Alive reports whether it has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends s; that the process has ended is no error.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", s, p.name, err)
	}
	return nil
}

// group sends s to the process and to those it started in its group.
func (p *Process) group(s syscall.Signal) error {
	if err := syscall.Kill(-p.PID(), s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to the group of %s: %w", s, p.name, err)
	}
	return nil
}

// Kill ends it with -9 and returns when it has ended.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Stop asks it with s to end, waking it if it is paused, and returns when it has ended. When ctx
// ends first it is killed, which is an error.
func (p *Process) Stop(ctx context.Context, s syscall.Signal) error {
	if err := errors.Join(p.Signal(s), p.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s did not end after a %s and was killed: %w", p.name, s, context.Cause(ctx)), p.Kill())
	}
}
