package participanttest

import "github.com/unisink/unisink/participant"

// Change is one thing that became so in a Store, for checks that judge a whole history. Repeats
// that changed nothing are no changes.
type Change struct {
	// Call is CallOpen, CallPrepare, CallCommit or CallRollback.
	Call    Call
	Opening participant.Opening    // of an open
	Name    participant.BranchName // of the branch
	Handle  string                 // its name in the store
	Records []string               // prepared or committed
}

// Watch makes f see every change from now on, in order, while it happens: f must not block, nor
// call the store. Nil ends that.
func (s *Store) Watch(f func(Change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = f
}

// changed tells the watcher. Called with mu held.
func (s *Store) changed(c Change) {
	if s.watch != nil {
		s.watch(c)
	}
}
