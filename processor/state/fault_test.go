package state_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/processor/state"
)

// TestE4_APartIsWholeOrNotThereWhereverItsWriterDies kills the writer at every point of Put and Delete.
func TestE4_APartIsWholeOrNotThereWhereverItsWriterDies(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs -tags faults")
	}
	for _, point := range []string{"state/before-sync", "state/before-rename", "state/after-rename", "state/before-delete", ""} {
		t.Run(point, func(t *testing.T) {
			root := t.TempDir()
			d, err := state.OpenDir(root)
			if err != nil {
				t.Fatal(err)
			}
			restore := fault.Set(func(name string) error {
				if name == point {
					runtime.Goexit()
				}
				return nil
			})
			put, deleted := false, false
			done := make(chan struct{})
			go func() {
				defer close(done)
				put = d.Put(t.Context(), "a.b.1.1.1", []byte("whole")) == nil
				deleted = d.Delete(t.Context(), "a.b.1.1.1") == nil
			}()
			<-done
			restore()
			d, err = state.OpenDir(root)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := d.List(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			body, err := d.Get(t.Context(), "a.b.1.1.1")
			switch there := slices.Equal(ids, []string{"a.b.1.1.1"}); {
			case there && (err != nil || string(body) != "whole"):
				t.Errorf("listed, and %q, %v", body, err)
			case !there && !errors.Is(err, state.ErrNoPart):
				t.Errorf("not listed, and %q, %v", body, err)
			case put && !deleted && !there:
				t.Error("a part that was put is gone")
			case deleted && there:
				t.Error("a part that was deleted is there")
			}
		})
	}
}

// TestE4_APartThatWasPutSurvivesTheLossOfPower cuts the power behind every operation of the file system.
func TestE4_APartThatWasPutSurvivesTheLossOfPower(t *testing.T) {
	for n := 0; ; n++ {
		disk := crashfs.NewMem("/data")
		d, err := state.OpenDirOn(disk, "/data/state")
		if err != nil {
			t.Fatal(err)
		}
		disk.CrashAfter(n)
		var put [3]bool
		for i := range put {
			put[i] = d.Put(t.Context(), fmt.Sprintf("a.b.1.%d.1", i+1), []byte("whole")) == nil
		}
		deleted := d.Delete(t.Context(), "a.b.1.1.1") == nil
		done := !disk.Crashed()
		disk.Reboot()
		d, err = state.OpenDirOn(disk, "/data/state")
		if err != nil {
			t.Fatalf("power lost after %d operations: %v", n, err)
		}
		ids, err := d.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		for i, was := range put {
			id := fmt.Sprintf("a.b.1.%d.1", i+1)
			body, err := d.Get(t.Context(), id)
			there := slices.Contains(ids, id)
			switch {
			case there && (err != nil || string(body) != "whole"):
				t.Errorf("power lost after %d operations: %s is listed, and %q, %v", n, id, body, err)
			case was && !there && !(i == 0 && deleted):
				t.Errorf("power lost after %d operations: %s was put, and is gone", n, id)
			}
		}
		if done {
			return
		}
	}
}
