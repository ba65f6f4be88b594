package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// proc is one child process whose output goes to a log file of its own.
type proc struct {
	name string
	log  string // file
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of Wait, once done
}

// crew starts the children and sees to it that none outlives the demo.
type crew struct {
	exe string
	dir string

	requests chan func() // run on one locked thread, see serve

	mu  sync.Mutex // guards all; held for memory only
	all []*proc
}

func newCrew(exe, dir string) *crew {
	c := &crew{exe: exe, dir: dir, requests: make(chan func())}
	go c.serve()
	return c
}

// serve starts every child from one thread that lives as long as the crew: on Linux a child dies
// with the *thread* that started it (PR_SET_PDEATHSIG), and the runtime ends threads as it likes.
func (c *crew) serve() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for f := range c.requests {
		f()
	}
}

// start runs the binary itself with other arguments. Output is appended to DIR/name.log.
func (c *crew) start(name string, args ...string) (*proc, error) {
	logFile := filepath.Join(c.dir, name+".log")
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	p := &proc{name: name, log: logFile, cmd: exec.Command(c.exe, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = childAttr()
	started := make(chan error)
	c.requests <- func() { started <- p.cmd.Start() }
	err = <-started
	_ = out.Close() // the child has its own
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	c.mu.Lock()
	c.all = append(c.all, p)
	c.mu.Unlock()
	return p, nil
}

// signal sends s; a process that has ended is no error.
func (p *proc) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", s, p.name, err)
	}
	return nil
}

// stop ends a process gracefully, and hard when it takes longer than wait.
func (p *proc) stop(wait time.Duration) error {
	if err := errors.Join(p.signal(syscall.SIGTERM), p.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(wait):
	}
	err := p.signal(syscall.SIGKILL)
	<-p.done
	return err
}

// alive reports whether the process has not ended.
func (p *proc) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// end kills whatever is left and waits for it.
func (c *crew) end() error {
	c.mu.Lock()
	all := c.all
	c.all = nil
	c.mu.Unlock()
	var errs []error
	for _, p := range all {
		if p.alive() {
			errs = append(errs, p.signal(syscall.SIGKILL))
		}
	}
	for _, p := range all {
		<-p.done
	}
	close(c.requests)
	return errors.Join(errs...)
}

// sleep waits unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
