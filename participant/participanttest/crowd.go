package participanttest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/participant"
)

// wave prepares branches from..from+many-1 side by side and returns their handles in order, and their records.
func (b bench) wave(r participant.Resource, from, many int) ([]participant.Handle, []string) {
	b.Helper()
	handles, records := make([]participant.Handle, many), make([]string, many)
	branches := make([]participant.Branch, many)
	for i := range many {
		records[i] = record(from + i)
		branches[i] = b.begin(r, branchName(home, 1, uint64(from+i)), records[i])
	}
	var group sync.WaitGroup
	for i, branch := range branches {
		group.Go(func() {
			vote, err := branch.Prepare(b.ctx)
			if err != nil || vote.Kind != participant.Yes {
				b.Errorf("prepare branch %d: vote %v, reason %v, error %v", from+i, vote.Kind, vote.Reason, err)
				return
			}
			handles[i] = vote.Handle
		})
	}
	group.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return handles, records
}

func checkHundred(t testing.TB, target Target) {
	b := newBench(t, target)
	r := b.opened(1)
	handles, records := b.wave(r, 1, 100)
	b.sees()
	for _, h := range handles {
		b.commit(r, h)
	}
	b.sees(records...)
}

// memoryPerBranch is the most that a finished branch may leave in memory. In-process brokers count too.
const memoryPerBranch = 64 << 10

func checkThousand(t testing.TB, target Target) {
	b := patientBench(t, target, 5)
	total := b.kit.Branches
	if total <= 0 {
		total = 1000
	}
	if total < 1000 {
		b.gap("%d branches only (Kit.Branches)", total)
	}
	const wave = 100
	r := b.opened(1)
	var want []string
	var before uint64
	began := time.Now()
	for done := 0; done < total; {
		handles, records := b.wave(r, done+1, min(wave, total-done))
		for _, h := range handles {
			b.commit(r, h)
		}
		want = append(want, records...)
		done += len(handles)
		if before == 0 {
			before = heap() // what is made once is made
		}
	}
	took, grown := time.Since(began), int64(heap())-int64(before)
	if limit := int64(max(total-wave, wave)) * memoryPerBranch; grown > limit {
		b.Errorf("%d finished branches left %d KiB in memory, %d are allowed for each", total, grown>>10, memoryPerBranch>>10)
	}
	b.sees(want...)
	b.lists(r, home)
	b.figure("%d branches in %s, %+d KiB of memory", total, took.Round(time.Millisecond), grown>>10)
}

// heap is what is in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// live opens, writes, prepares, commits, leaves a branch open, and closes.
func (b bench) live(generation uint64) {
	b.Helper()
	r := b.Process(b.TB)
	b.open(r, generation)
	h := b.prepared(b.begin(r, branchName(home, generation, 1), "a"))
	b.begin(r, branchName(home, generation, 2), "b")
	b.commit(r, h)
	if err := r.Close(); err != nil {
		b.Fatalf("close: %v", err)
	}
}

func checkGoroutines(t testing.TB, target Target) {
	b := newBench(t, target)
	before := goleak.IgnoreCurrent()
	b.live(1)
	if err := goleak.Find(before); err != nil {
		b.Errorf("goroutines are left after Close: %v", err)
	}
}

// ownFiles lists what this process has open, by number: "7 /data/x", "9 socket:[123]".
func ownFiles() (map[string]bool, error) {
	const here = "/proc/self/fd"
	entries, err := os.ReadDir(here)
	if err != nil {
		return nil, err
	}
	open := map[string]bool{}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(here, e.Name()))
		if err != nil || strings.HasPrefix(to, "/proc/") || strings.HasPrefix(to, "anon_inode:") {
			continue // closed meanwhile, as the listing's own is; or the runtime's
		}
		open[e.Name()+" "+to] = true
	}
	return open, nil
}

func checkOpenFiles(t testing.TB, target Target) {
	b := newBench(t, target)
	if _, err := ownFiles(); err != nil {
		b.skip("this system does not tell which files a process has open: " + err.Error())
	}
	b.live(1) // what is opened once, and stays
	before, err := ownFiles()
	if err != nil {
		b.Fatalf("list open files: %v", err)
	}
	for g := uint64(2); g <= 4; g++ {
		b.live(g)
	}
	// The other end of a connection, in this same process, takes a moment to see that it is over.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(5 * time.Second)
	for {
		now, err := ownFiles()
		if err != nil {
			b.Fatalf("list open files: %v", err)
		}
		var left []string
		for f := range now {
			if !before[f] {
				left = append(left, f)
			}
		}
		// An in-process server may keep a few that it took meanwhile; one for each life is a leak.
		if len(left) < 3 {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			b.Errorf("left open after Close, by three processes: %q", left)
			return
		}
	}
}
