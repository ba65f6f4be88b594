package participant_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

// whileBad fails one call of the contract for as long as it is told to.
func whileBad(which participanttest.Call, bad *atomic.Bool) participanttest.Hook {
	return func(_ context.Context, call participanttest.Call, when participanttest.When, _ string) error {
		if call == which && when == participanttest.Before && bad.Load() {
			return errors.New("no space left on device")
		}
		return nil
	}
}

func TestTroubleWithAResourceIsTold(t *testing.T) {
	for which, tries := range map[participanttest.Call]string{
		participanttest.CallOpen:   "tries to open since ",
		participanttest.CallCommit: "tries to commit branch ",
	} {
		t.Run(string(which), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGroup(t, ledger.Settings{EpochInterval: 100}, "solo")
				bad := &atomic.Bool{}
				bad.Store(true)
				store := participanttest.NewStore("disk")
				p := g.run("solo", store, func(c *participant.MemberConfig) {
					c.Resources["out"].(*participanttest.Memory).SetHook(whileBad(which, bad))
				})
				shown := func() string {
					st := g.nodes["a:1"].manager.Status(ledger.ScopeID{Pipeline: pipeline})
					if len(st.Members) == 0 {
						return "a leader"
					}
					return st.Members[0].WaitingFor
				}
				within(t, 10*time.Second, "the trouble is shown", func() bool { return strings.Contains(shown(), tries) })
				for _, want := range []string{`resource "out"`, "no space left on device", "UTC"} {
					if !strings.Contains(shown(), want) {
						t.Errorf("%q is not in %q", want, shown())
					}
				}
				if got := p.member.Status().WaitingFor; !strings.Contains(got, tries) {
					t.Errorf("the member itself says %q", got)
				}
				bad.Store(false)
				within(t, 20*time.Second, "it has passed", func() bool { return shown() == "" && g.newest().Final > 2 })
			})
		})
	}
}

func TestRestartOnAnotherStoreIsRefusedUnlessAllowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGroup(t, ledger.Settings{EpochInterval: 100}, "solo")
		p := g.run("solo", participanttest.NewStore("disk-1"), nil)
		within(t, 10*time.Second, "epochs", func() bool { return g.newest().Final > 2 })
		g.desire(ledger.Stopping)
		<-p.done
		g.desire(ledger.Running)
		other := participanttest.NewStore("disk-2")
		p = g.run("solo", other, nil)
		<-p.done
		if !errors.Is(p.err, participant.ErrRefused) || !strings.Contains(p.err.Error(), `"disk-2", scope orders/0 knows it as "disk-1"`) {
			t.Fatalf("it ended with %v", p.err)
		}
		was := g.newest().Generation
		g.run("solo", other, func(c *participant.MemberConfig) { c.AllowChangedResources = true })
		within(t, 10*time.Second, "epochs in the new one", func() bool { n := g.newest(); return n.Generation > was && n.Final > 2 })
	})
}
