package demo

import (
	"context"
	"path/filepath"
	"syscall"
	"time"

	"github.com/unisink/unisink/internal/child"
)

// proc is one child process whose output goes to a log file of its own.
type proc struct {
	*child.Process
	name string
	log  string // file
	done <-chan struct{}
}

// crew starts the children, which are this binary with other arguments.
type crew struct {
	*child.Crew
	exe, dir string
	env      []string // added to the children's environment
}

// start appends the child's output to DIR/name.log.
func (c *crew) start(name string, args ...string) (*proc, error) {
	log := filepath.Join(c.dir, name+".log")
	p, err := c.Start(child.Spec{Name: name, Path: c.exe, Args: args, Log: log, Env: c.env})
	if err != nil {
		return nil, err
	}
	return &proc{Process: p, name: name, log: log, done: p.Done()}, nil
}

// signal sends s; a process that has ended is no error.
func (p *proc) signal(s syscall.Signal) error { return p.Signal(s) }

// alive reports whether the process was started and has not ended.
func (p *proc) alive() bool { return p != nil && p.Alive() }

// kill ends the process with -9.
func (p *proc) kill() (time.Time, error) {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return time.Time{}, err
	}
	at := time.Now()
	<-p.done
	return at, nil
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
