package participant_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Three real nodes: the leader is killed in the midst of rounds, again and again. Nobody restarts,
// nothing is lost or doubled, and the next decision comes within seconds.
func TestALeaderKilledInMidRoundStopsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		client := c.Client()
		spec := &unisinkv1.Pipeline{Name: pipeline, Fingerprint: "f1", Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: 100}}
		for _, name := range []string{"one", "two"} {
			spec.Members = append(spec.Members, &unisinkv1.MemberSpec{
				Name: name, Source: true, Resources: []*unisinkv1.ResourceSpec{{Name: "out", Kind: "memory"}},
			})
		}
		if _, err := client.Pipelines().PutPipeline(t.Context(), &unisinkv1.PutPipelineRequest{Meta: client.NewMeta(), Pipeline: spec}); err != nil {
			t.Fatal(err)
		}
		g, store := &group{t: t}, participanttest.NewStore("s")
		at := func(cfg *participant.MemberConfig) { cfg.Coordinators, cfg.Dial = c.Addresses(), c.Dial }
		one, two := g.run("one", store, at), g.run("two", store, at)
		within(t, 10*time.Second, "the first epochs", func() bool { return len(store.Records()) > 50 })
		var gaps []time.Duration
		for range 5 {
			time.Sleep(time.Second)
			leader := c.Leader()
			before, killed := len(store.Records()), time.Now()
			c.Crash(leader)
			// What was decided before the kill may still become visible: wait for two epochs more.
			within(t, 20*time.Second, "decisions of the next leader", func() bool {
				return c.Leader() != leader && c.Leader() != "" && len(store.Records()) > before+60
			})
			gaps = append(gaps, time.Since(killed))
			c.Restart(leader)
		}
		slices.Sort(gaps)
		t.Logf("from the kill to some epochs of the next leader: %v", gaps)
		if one.restored() != 1 || two.restored() != 1 {
			t.Errorf("restored %d and %d times", one.restored(), two.restored())
		}
		_, err := client.Pipelines().SetDesired(context.Background(), &unisinkv1.SetDesiredRequest{
			Meta: client.NewMeta(), Name: pipeline, Desired: unisinkv1.DesiredState_DESIRED_STATE_STOPPING,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(one.wait(t, 10*time.Second), two.wait(t, 10*time.Second)); err != nil {
			t.Fatalf("run: %v", err)
		}
		exactlyOnce(t, store, "one", 300)
		exactlyOnce(t, store, "two", 300)
		inOrder(t, store)
		c.AssertSameState()
	})
}
