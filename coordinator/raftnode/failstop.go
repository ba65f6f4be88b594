package raftnode

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// failStop ends a node whose view of its own disk or log can no longer be trusted. Whoever
// meets such an error must not go on: raft would answer the error and may then win the next
// election with a wrong idea of what it has stored.
type failStop struct {
	onFatal func(error)
	running atomic.Bool           // the node has been opened
	opening atomic.Pointer[error] // the first failure before that
	once    sync.Once
	err     error         // set before failed is closed
	failed  chan struct{} // closed by the first failure
}

func newFailStop(onFatal func(error)) *failStop {
	return &failStop{onFatal: onFatal, failed: make(chan struct{})}
}

// report makes err the reason of the node's end and returns when OnFatal has. Any goroutine,
// any number of times; the first counts.
func (s *failStop) report(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.failed)
		s.onFatal(err)
	})
}

// end reports err and ends the calling goroutine, as if the process had died there.
func (s *failStop) end(err error) {
	s.report(err)
	runtime.Goexit()
}

// fail is end for a running node; while the node is being opened it returns err, which opened
// returns again, whatever the library made of it.
func (s *failStop) fail(err error) error {
	if s.running.Load() {
		s.end(err)
	}
	s.opening.CompareAndSwap(nil, &err)
	return err
}

// tell is fail for a caller that may go on: it always returns err.
func (s *failStop) tell(err error) error {
	if s.running.Load() {
		s.report(err)
	} else {
		s.opening.CompareAndSwap(nil, &err)
	}
	return err
}

// opened ends the opening and returns the first failure in it.
func (s *failStop) opened() error {
	s.running.Store(true)
	if err := s.opening.Load(); err != nil {
		return *err
	}
	return nil
}

// cause is the first failure, or nil.
func (s *failStop) cause() error {
	select {
	case <-s.failed:
		return s.err
	default:
		return nil
	}
}
