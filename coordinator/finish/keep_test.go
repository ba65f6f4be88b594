package finish

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// What a node remembers of decided epochs does not grow with the number of scopes once there are many: each keeps fewer.
func TestManyScopesKeepFewerEpochsEach(t *testing.T) {
	for scopes, want := range map[int]uint32{0: 100, 1: 100, 500: 100, 501: 99, 600: 83, 1000: 64, 100_000: 64} {
		if got := New(Config{}).c.keepEpochs(scopes); got != want {
			t.Errorf("%d scopes keep %d epochs each, want %d", scopes, got, want)
		}
	}
	few := Config{KeepEpochs: 5, KeepInAll: 20}
	if got := few.keepEpochs(1000); got != 5 {
		t.Errorf("%d epochs are kept where five are asked for", got)
	}
	synctest.Test(t, func(t *testing.T) {
		l := &retiring{log: newLog(t)}
		for i := range 4 {
			l.apply(t, ledger.PutPipeline{Pipeline: ledger.Pipeline{
				Name: fmt.Sprintf("p%d", i), Fingerprint: "v1",
				Members: []ledger.MemberSpec{{Name: "a", Source: true, Resources: []ledger.ResourceSpec{{Name: "out", Kind: "mem"}}}},
			}})
		}
		run(t, Config{Log: l, RetireEvery: 5 * time.Second, KeepEpochs: 200, KeepInAll: 400})
		time.Sleep(6 * time.Second)
		if got := l.keep.Load(); got != 100 {
			t.Errorf("each of four scopes keeps %d epochs, want 100", got)
		}
	})
}

// retiring remembers how many epochs the last Retire keeps.
type retiring struct {
	*log
	keep atomic.Uint32
}

func (l *retiring) Propose(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	if r, ok := c.Body.(ledger.Retire); ok {
		l.keep.Store(r.KeepEpochs)
	}
	return l.log.Propose(ctx, c)
}

// Epochs that came in between two turns are not kept until the next turn, however many they are: a tenth of what all may
// keep, and the next look retires. Where the log does not answer, the look after it does.
func TestManyDecisionsAreRetiredBeforeTheirTurn(t *testing.T) {
	for what, c := range map[string]struct {
		shards, most, each uint32 // most in all
		tenth              uint64
	}{
		"one scope":                       {1, 1000, 100, 100},
		"more scopes than the most allow": {4, 10, fewestEpochs, 4 * fewestEpochs / 10},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLog(t)
				l.apply(t, ledger.PutPipeline{Pipeline: ledger.Pipeline{
					Name: "p", Fingerprint: "v1", Shards: c.shards, Members: []ledger.MemberSpec{{Name: "a", Source: true}},
				}})
				scope := ledger.ScopeID{Pipeline: "p"}
				g := l.apply(t, ledger.OpenGeneration{Scope: scope, Fingerprint: "v1", Members: []ledger.MemberInstance{{Member: "a", Instance: "i"}}}).Opened.Generation
				run(t, Config{Log: l, Tick: time.Second, RetireEvery: time.Hour, KeepInAll: c.most, KeepEpochs: 100})
				synctest.Wait()
				n := uint64(0)
				decide := func(more uint64) {
					for range more {
						n++
						l.apply(t, ledger.Decide{Scope: scope, Epoch: ledger.Epoch{Generation: g, N: n}, Votes: []ledger.Vote{{Member: "a", Instance: "i"}}})
					}
				}
				expect := func(retired int, why string) {
					t.Helper()
					time.Sleep(5 * time.Second)
					if got := l.count("retire"); got != retired {
						t.Fatalf("retired %d times, want %d: %s", got, retired, why)
					}
				}
				for turn := range 6 {
					decide(c.tenth - 1)
					expect(turn, "one epoch less than a tenth")
					decide(1)
					if turn == 3 {
						l.fail(true)
						expect(turn, "the log does not answer")
						l.fail(false)
					}
					expect(turn+1, "a tenth")
				}
				var kept int
				l.View(func(m *ledger.Machine) { kept = m.EpochCount() })
				if each := int(c.each); kept < each || kept > each+2 {
					t.Fatalf("%d epochs are kept of %d, want %d and what is still needed", kept, n, each)
				}
			})
		})
	}
}
