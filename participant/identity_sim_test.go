package participant_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/participant/participanttest"
)

// Row I4. A process dies right before or right after the effect of a commit, time and again, and each time another
// process with another instance id takes its place: what tells finished work from unfinished is the coordinator's
// (scope, generation, epoch), so everything is there once, and no name holds anything of a process.
func TestI4_WhatIsFinishedIsKnownWhoeverAsks(t *testing.T) {
	for name, at := range map[string]participanttest.When{"before its effect": participanttest.Before, "after its effect": participanttest.After} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g, store := newGroup(t, quick(), "solo"), participanttest.NewStore("s")
				instances := map[string]bool{}
				var last string
				const lives = 6
				for life := range lives {
					p := g.run("solo", store, nil)
					if life == lives-1 {
						time.Sleep(2 * time.Second)
						g.desire(ledger.Stopping)
						if err := p.wait(t, 20*time.Second); err != nil {
							t.Fatalf("run: %v", err)
						}
						continue
					}
					var seen atomic.Int32
					dying := make(chan struct{})
					p.memory.SetHook(func(ctx context.Context, call participanttest.Call, when participanttest.When, _ string) error {
						if call != participanttest.CallCommit || when != at || seen.Add(1) != 5 {
							return nil
						}
						close(dying)
						<-ctx.Done() // nothing that it does from now on reaches anybody
						return ctx.Err()
					})
					<-dying
					last = p.member.Status().Instance
					if instances[last] {
						t.Errorf("two processes are instance %s", last)
					}
					instances[last] = true
					p.kill()
				}
				exactlyOnce(t, store, "solo", 100)
				inOrder(t, store)
				for _, step := range store.Trail() {
					for id := range instances {
						if strings.Contains(step, id) {
							t.Errorf("a name in the resource holds instance %s: %s", id, step)
						}
					}
				}
				if len(instances) != lives-1 {
					t.Errorf("%d processes died, want %d", len(instances), lives-1)
				}
			})
		})
	}
}
