package raftnode

import (
	"sync"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
)

const (
	// trailingBytes is how much the log may hold before it is cut shorter than Config.TrailingLogs says.
	trailingBytes = 512 << 20
	// fewestTrailing entries stay all the same: far more than can be on their way uncommitted.
	fewestTrailing = 1024
)

// logSizes knows how many bytes the entries have that were written since the log was opened.
type logSizes struct {
	mu    sync.Mutex // guards what follows
	first uint64     // index of sizes[0]
	sizes []int
	total int
}

func (l *logSizes) stored(logs []*raft.Log) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range logs {
		if next := l.first + uint64(len(l.sizes)); e.Index != next {
			l.first, l.sizes, l.total = e.Index, nil, 0 // after a snapshot was installed
		}
		l.sizes = append(l.sizes, len(e.Data))
		l.total += len(e.Data)
	}
}

func (l *logSizes) deleted(from, to uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.first + uint64(len(l.sizes))
	switch {
	case to < l.first || from >= end:
		return
	case from <= l.first: // the oldest
		l.drop(l.sizes[:min(to+1, end)-l.first])
		l.sizes = append([]int(nil), l.sizes[min(to+1, end)-l.first:]...)
		l.first = min(to+1, end)
	default: // the newest, which another leader overwrites
		l.drop(l.sizes[from-l.first:])
		l.sizes = l.sizes[:from-l.first]
	}
}

func (l *logSizes) drop(sizes []int) {
	for _, n := range sizes {
		l.total -= n
	}
}

// tooMany returns 0 while the log is within limit, else how many of the newest entries may stay.
func (l *logSizes) tooMany(limit, fewest int) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total <= limit || len(l.sizes) <= fewest {
		return 0
	}
	bytes, keep := 0, 0
	for keep < len(l.sizes) && (keep < fewest || bytes < limit/2) {
		keep++
		bytes += l.sizes[len(l.sizes)-keep]
	}
	return uint64(keep)
}

// trim cuts a log of large entries: it takes a snapshot behind which fewer entries are kept. It does
// not wait; trimmed is called when it has ended.
func (n *Node) trim(trimmed func()) {
	limit, fewest := n.config.Seams.TrailingBytes, fewestTrailing
	if limit == 0 {
		limit = trailingBytes
	} else {
		fewest = 1
	}
	keep := n.store.sizes.tooMany(limit, fewest)
	if keep == 0 || mutant.On("raft/trailing-bytes") {
		trimmed()
		return
	}
	go func() { // ends with raft at the latest
		defer trimmed()
		usual := n.raft.ReloadableConfig()
		short := usual
		short.TrailingLogs = keep
		err := n.raft.ReloadConfig(short)
		if err == nil {
			err = n.raft.Snapshot().Error()
		}
		if again := n.raft.ReloadConfig(usual); err == nil {
			err = again
		}
		if err != nil {
			n.config.Logger.Debug("log of large entries not cut yet", obs.Err(err))
		}
	}()
}
