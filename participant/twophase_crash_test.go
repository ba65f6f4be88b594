package participant_test

import (
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/participant"
)

// doomed ends the goroutine that comes to a point for the n-th time, as a process ends there.
type doomed struct {
	point string
	nth   int

	mu   sync.Mutex // guards the rest
	seen int
	died bool
}

func (m *doomed) at(point string) error {
	m.mu.Lock()
	if point == m.point {
		m.seen++
	}
	die := point == m.point && m.seen == m.nth
	m.died = m.died || die
	m.mu.Unlock()
	if die {
		runtime.Goexit()
	}
	return nil
}

func (m *doomed) dead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.died
}

// deskLedger is what a coordinator knows of the processes of a desk.
type deskLedger struct {
	mu     sync.Mutex // guards the rest
	commit []participant.Handle
	abort  []participant.Handle
	want   []string
}

// vote takes a vote in, of which the epoch's number says what is decided: odd ones commit.
func (l *deskLedger) vote(n uint64, h participant.Handle, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n%2 == 0 {
		l.abort = append(l.abort, h)
		return
	}
	l.commit, l.want = append(l.commit, h), append(l.want, line)
}

// live is a member's process: four epochs, of which the second is aborted and the fourth is never voted for. It ends
// in the middle where it dies.
func (l *deskLedger) live(t *testing.T, d *deskService, path string, generation uint64) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := twoPhase(t, d, path)
		openDesk(t, r, generation)
		for n := uint64(1); n <= 4; n++ {
			line := fmt.Sprintf("%d.%d", generation, n)
			b := beginDesk(t, d, r, under(generation, n), line)
			v := voteOf(t, b)
			if n == 4 {
				return
			}
			l.vote(n, v.Handle, line)
			l.finish(t, r, n%2 == 0, v.Handle)
		}
	}()
	<-ended
}

func (l *deskLedger) finish(t *testing.T, r participant.Resource, abort bool, h participant.Handle) {
	do, want := r.Commit, participant.Committed
	if abort {
		do, want = r.Rollback, participant.RolledBack
	}
	if p, err := do(t.Context(), h); err != nil || p.Verdict != want {
		t.Errorf("finish %s: %+v, %v", h.Name, p, err)
	}
}

// restart is the next process: it finishes what is decided, sweeps the rest, and dies where it is told too.
func (l *deskLedger) restart(t *testing.T, d *deskService, path string, generation uint64) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := twoPhase(t, d, path)
		openDesk(t, r, generation)
		for _, h := range l.commit {
			l.finish(t, r, false, h)
		}
		found, err := r.List(t.Context(), under(1, 1).Namespace)
		if err != nil {
			t.Errorf("list: %v", err)
		}
		for _, x := range found {
			l.finish(t, r, true, x.Handle)
		}
	}()
	<-ended
}

// exact checks that readers see what was decided, and that nothing is held or listed.
func (l *deskLedger) exact(t *testing.T, d *deskService, path string) {
	t.Helper()
	if got := d.sees(); !slices.Equal(got, l.want) {
		t.Errorf("readers see %q, decided is %q", got, l.want)
	}
	if left := d.reserved(); len(left) > 0 {
		t.Errorf("%v stay reserved", left)
	}
	if found, err := twoPhase(t, d, path).List(t.Context(), under(1, 1).Namespace); err != nil || len(found) > 0 {
		t.Errorf("still listed: %v, %v", found, err)
	}
}

// A process dies at each point of the four-function form, each time that it comes there; and so does the one that
// takes its place and the one after it.
func TestFourFunctionsBearADeathAtEveryPoint(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs -tags faults")
	}
	points := slices.DeleteFunc(fault.Known(), func(p string) bool { return !strings.HasPrefix(p, "twophase/") })
	if len(points) < 9 {
		t.Fatalf("the points are %q", points)
	}
	for _, point := range points {
		t.Run(strings.TrimPrefix(point, "twophase/"), func(t *testing.T) {
			times := math.MaxInt // that a life comes there: known after the first that did not come once more
			for _, second := range append([]string{""}, points...) {
				for nth := 1; nth <= times; nth++ {
					d, path, l := newDesk(), filepath.Join(t.TempDir(), "journal"), &deskLedger{}
					first := &doomed{point: point, nth: nth}
					restore := fault.Set(first.at)
					l.live(t, d, path, 1)
					restore()
					heir := &doomed{point: second, nth: 1}
					restore = fault.Set(heir.at)
					l.restart(t, d, path, 2)
					restore()
					l.restart(t, d, path, 3)
					l.exact(t, d, path)
					if t.Failed() {
						t.Fatalf("after a death at %s, time %d, and one of its heir at %q", point, nth, second)
					}
					if first.dead() {
						continue
					}
					if second != "" {
						t.Fatalf("a life came to %s %d times, and then %d times", point, times, nth-1)
					}
					times = nth - 1
				}
			}
			if times == 0 {
				t.Errorf("nobody ever came to %s", point)
			}
		})
	}
}
