package raftnode

import (
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
)

// fsm applies the log to the ledger: decode, apply, pass effects on. It never blocks.
type fsm struct {
	mu      sync.RWMutex // guards machine and index; held for memory only
	machine *ledger.Machine
	index   uint64 // of the newest entry that machine holds; 0 after a snapshot was read

	wanted  string // namespace that the group must have, or ""
	effects func([]ledger.Effect, uint64)
	named   chan struct{} // capacity 1: the namespace may have become known
	stop    *failStop
	dead    error // of the library's goroutine for the state machine: nothing is applied any more
}

// Apply answers with a []ledger.Result, one for each command of the entry, or with the reason
// why this replica has stopped: from an entry that it cannot read on, it applies nothing more.
func (f *fsm) Apply(entry *raft.Log) any {
	if f.dead != nil {
		return f.dead
	}
	commands, err := decodeEntry(entry.Data)
	if err != nil {
		f.dead = f.stop.tell(fmt.Errorf("%w: entry %d: %w", ErrUndecodable, entry.Index, err))
		return f.dead
	}
	results := make([]ledger.Result, len(commands))
	var owed []ledger.Effect
	named := false
	f.mu.Lock()
	for i, c := range commands {
		var effects []ledger.Effect
		results[i], effects = f.machine.Apply(c)
		results[i].Index, results[i].At = entry.Index, c.At
		if owed == nil && len(effects) > 0 {
			owed = make([]ledger.Effect, 0, len(commands)-i+len(effects))
		}
		owed = append(owed, effects...)
		_, init := c.Body.(ledger.Init)
		named = named || init
	}
	f.index = entry.Index
	f.mu.Unlock()
	if named {
		if err := f.checkName(); err != nil {
			f.dead = f.stop.tell(err)
			return f.dead
		}
	}
	if len(owed) > 0 {
		f.effects(owed, entry.Index)
	}
	return results
}

// checkName compares the group's namespace with the one this node was told.
func (f *fsm) checkName() error {
	name, _ := f.namespace()
	if f.wanted != "" && name != "" && name != f.wanted {
		return fmt.Errorf("%w: this node is set up for namespace %q, and the group that it joined is %q", ErrForeignDataDir, f.wanted, name)
	}
	select {
	case f.named <- struct{}{}:
	default:
	}
	return nil
}

func (f *fsm) namespace() (string, uint64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.machine.Namespace()
}

// Snapshot holds the state as of the last applied entry fast, for which Apply waits; copying and writing it run beside Apply.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.dead != nil {
		return nil, f.dead
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	return snapshot{state: f.machine.Freeze().State}, nil
}

// Restore decodes and checks the whole snapshot before it becomes the state.
func (f *fsm) Restore(source io.ReadCloser) error {
	machine, err := readSnapshot(source)
	if err != nil {
		return f.stop.tell(fmt.Errorf("%w: %w", ErrSnapshotUnreadable, err))
	}
	f.mu.Lock()
	f.machine, f.index = machine, 0
	f.mu.Unlock()
	if err := f.checkName(); err != nil {
		return f.stop.tell(err)
	}
	f.effects(nil, 0)
	return nil
}
