package raftnode

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
)

// TestALogOfLargeEntriesIsCut: ten thousand entries may be kept, and they would take ten gigabytes.
func TestALogOfLargeEntriesIsCut(t *testing.T) {
	const limit = 4 << 20
	inBubble(t, func(conf *Config) { conf.Seams.TrailingBytes = limit }, func(t *testing.T, c *cluster) {
		l := c.leader()
		for i := range 40 {
			large := ledger.Command{Body: ledger.PresumeAbort{Txn: benchTxn(uint64(1000 + i)), Why: strings.Repeat("x", 500_000)}}
			c.mustPropose(l, large)
			time.Sleep(500 * time.Millisecond) // virtual
		}
		time.Sleep(5 * time.Second) // virtual
		c.settle()
		for id, r := range c.running {
			first, err := r.store.FirstIndex()
			if err != nil {
				t.Fatal(err)
			}
			bytes := 0
			for i := first; i <= r.raft.LastIndex(); i++ {
				var e raft.Log
				if err := r.store.GetLog(i, &e); err != nil {
					t.Fatal(err)
				}
				bytes += len(e.Data)
			}
			if bytes > limit {
				t.Errorf("%s keeps %d bytes of log, more than %d", id, bytes, limit)
			}
			if got := r.raft.ReloadableConfig().TrailingLogs; got != minTrailingLogs {
				t.Errorf("%s goes on with %d trailing entries", id, got)
			}
		}
		c.mustPropose(l, c.commit())
		c.settle()
	})
}

func TestTheSizeOfALogFollowsWhatIsWrittenAndDeleted(t *testing.T) {
	var l logSizes
	write := func(from uint64, sizes ...int) {
		var logs []*raft.Log
		for i, n := range sizes {
			logs = append(logs, &raft.Log{Index: from + uint64(i), Data: make([]byte, n)})
		}
		l.stored(logs)
	}
	for _, step := range []struct {
		name  string
		do    func()
		total int
		count int
	}{
		{"written", func() { write(1, 10, 20, 30) }, 60, 3},
		{"more", func() { write(4, 40) }, 100, 4},
		{"the newest are overwritten", func() { l.deleted(3, 4); write(3, 5) }, 35, 3},
		{"the oldest go", func() { l.deleted(1, 2) }, 5, 1},
		{"none of them", func() { l.deleted(1, 2); l.deleted(9, 12) }, 5, 1},
		{"after a snapshot", func() { write(50, 7) }, 7, 1},
		{"all", func() { l.deleted(1, 60) }, 0, 0},
		{"anew", func() { write(51, 1, 2, 3, 4) }, 10, 4},
	} {
		step.do()
		if l.total != step.total || len(l.sizes) != step.count {
			t.Errorf("%s: %d bytes in %d entries, want %d in %d", step.name, l.total, len(l.sizes), step.total, step.count)
		}
	}
	for _, c := range []struct {
		limit, fewest int
		keep          uint64
	}{{10, 1, 0}, {9, 1, 1}, {9, 3, 3}, {9, 4, 0}, {8, 1, 1}} {
		if got := l.tooMany(c.limit, c.fewest); got != c.keep {
			t.Errorf("a limit of %d, at least %d: %d stay, want %d", c.limit, c.fewest, got, c.keep)
		}
	}
}
