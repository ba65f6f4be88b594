package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

func TestAKeptProcessComesBackUnlessItIsHeld(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	crew := child.New()
	t.Cleanup(func() {
		if err := crew.End(); err != nil {
			t.Error(err)
		}
	})
	k := newKeeper("sleeper", crew, func(int) child.Spec {
		return child.Spec{Name: "sleeper", Path: "sleep", Args: []string{"1000"}, Log: filepath.Join(t.TempDir(), "log")}
	})
	died := make(chan struct{}, 10)
	k.died = func() { died <- struct{}{} }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- k.run(ctx) }()
	await := func(what string, lives int) {
		t.Helper()
		err := rig.Await(ctx, 10*time.Second, what, func() error {
			if n, _ := k.count(); n != lives || !k.alive() {
				return fmt.Errorf("life %d, alive %t", n, k.alive())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	await("the first life", 1)
	if was, err := k.kill(); !was || err != nil {
		t.Fatalf("kill: %t, %v", was, err)
	}
	await("the second life", 2)
	if was, err := k.hold(); !was || err != nil {
		t.Fatalf("hold: %t, %v", was, err)
	}
	<-died
	<-died // seen by the keeper, which now waits
	if n, _ := k.count(); n != 2 || k.alive() {
		t.Fatalf("held down, and in life %d", n)
	}
	k.release()
	await("the third life", 3)
	if err := k.stop(ctx, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, sudden := k.count(); len(sudden) > 0 {
		t.Errorf("ends that were wanted are told as sudden: %v", sudden)
	}
	if was, err := k.kill(); was || err != nil {
		t.Errorf("killed what had ended: %t, %v", was, err)
	}
}

// An end that no fault explains is a problem of the run, and not a note.
func TestAKeeperTellsEndsThatNoFaultExplains(t *testing.T) {
	for script, want := range map[string]int{"exit 2": 1, "exit 3": 0} {
		crew := child.New()
		k := newKeeper("server", crew, func(int) child.Spec {
			return child.Spec{Name: "server", Path: "sh", Args: []string{"-c", script}, Log: filepath.Join(t.TempDir(), "log")}
		})
		ctx, cancel := context.WithCancel(t.Context())
		k.died = cancel
		if err := k.run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", script, err)
		}
		if _, sudden := k.count(); len(sudden) != 1 || len(k.wrongEnds()) != want {
			t.Errorf("%s: ends %q, of which no fault explains %q", script, sudden, k.wrongEnds())
		}
		if err := crew.End(); err != nil {
			t.Error(err)
		}
	}
}
