package decisions

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/cmd/bench/fleet"
)

func TestTheLongestGapReachesToBothEnds(t *testing.T) {
	at := time.Now()
	told := func(ms ...int) (all []fleet.Decision) {
		for _, m := range ms {
			all = append(all, fleet.Decision{Told: at.Add(time.Duration(m) * time.Millisecond)})
		}
		return all
	}
	end := at.Add(time.Second)
	for name, c := range map[string]struct {
		told []fleet.Decision
		want float64
	}{
		"nothing":         {nil, 1000},
		"before":          {told(400, 500), 500},
		"in the middle":   {told(100, 300, 800, 900), 500},
		"not of the time": {told(-50, 400, 1200), 600},
	} {
		if got := longestGap(c.told, at, end); got != c.want {
			t.Errorf("%s: %v ms, want %v", name, got, c.want)
		}
	}
}

func TestManyScopesAreJudgedByMemoryAndByTheFirstCost(t *testing.T) {
	r := ScopesResult{
		Disks: []NodeRow{{Node: "n1", PeakMiB: 350, OwnMiB: 301}, {Node: "n2", PeakMiB: 350, OwnMiB: 200}},
		Cost:  []CostRow{{What: "alone", CPU: 200}, {What: "beside many", CPU: 240}, {What: "later", CPU: 300}},
	}
	r.judge()
	var over []string
	for _, b := range r.Budgets {
		if !b.OK {
			over = append(over, b.Of)
		}
	}
	if got := strings.Join(over, "; "); got != "n1 own MiB; later, to the first" {
		t.Errorf("over: %s", got)
	}
	if r.Cost[1].ToFirst != 1.2 {
		t.Errorf("beside the first: %v, want 1.2", r.Cost[1].ToFirst)
	}
}

func TestASnapshotIsSeenFromItsBeginningToItsEnd(t *testing.T) {
	dir := t.TempDir()
	w := &watched{dir: dir, snaps: map[string]*snap{}}
	at := time.Now()
	unwritten := filepath.Join(dir, "snapshots", "2-100-1"+unfinished)
	if err := os.MkdirAll(unwritten, 0o700); err != nil {
		t.Fatal(err)
	}
	w.look(at)
	whole := strings.TrimSuffix(unwritten, unfinished)
	if err := os.Rename(unwritten, whole); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(whole, "state.bin"), make([]byte, 77), 0o600); err != nil {
		t.Fatal(err)
	}
	w.look(at.Add(30 * time.Millisecond))
	w.look(at.Add(time.Second))
	s := w.snaps["2-100-1"]
	if len(w.snaps) != 1 || s == nil || !s.begun.Equal(at) || s.ended.Sub(at) != 30*time.Millisecond || s.bytes != 77 {
		t.Errorf("seen %+v", s)
	}
}
