package ground_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unisink/unisink/tests/jepsen-style/blackbox/ground"
)

func take(t *testing.T) *ground.Ground {
	t.Helper()
	if testing.Short() {
		t.Skip("makes networks and mounts disks")
	}
	g, err := ground.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(g.Dir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", g.Dir(), err)
		}
		mounts, err := os.ReadFile("/proc/mounts")
		if err != nil || strings.Contains(string(mounts), g.Dir()) {
			t.Errorf("something of %s is still mounted (%v)", g.Dir(), err)
		}
	})
	return g
}

func TestPowerLossLosesWhatWasNotSynced(t *testing.T) {
	g := take(t)
	if !g.Able().Disks {
		t.Skip("no disks here: " + g.Able().NoDisks)
	}
	d, err := g.AddDisk(t.Context(), "d", 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, sync bool) {
		f, err := os.Create(filepath.Join(d.Dir(), name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("text"); err != nil {
			t.Fatal(err)
		}
		if sync {
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("synced", true)
	write("lost", false)
	if err := d.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Dir(), "after"), nil, 0o600); err == nil {
		t.Error("a disk without power took a file")
	}
	if err := d.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(d.Dir(), "synced")); err != nil || string(text) != "text" {
		t.Errorf("the synced file is %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(d.Dir(), "lost")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was not synced is still there: %v", err)
	}
}

func TestAFullDiskTakesNothingUntilItIsEmptied(t *testing.T) {
	g := take(t)
	if !g.Able().Disks {
		t.Skip("no disks here: " + g.Able().NoDisks)
	}
	d, err := g.AddDisk(t.Context(), "d", 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Fill(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(d.Dir(), "f")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing to the full disk: %v", err)
	}
	if err := d.Empty(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Errorf("after it was emptied: %v", err)
	}
}

func TestACutIsOneWayOrBoth(t *testing.T) {
	g := take(t)
	if !g.Able().Networks {
		t.Skip("no networks here: " + g.Able().NoNetworks)
	}
	var hosts [2]*ground.Host
	for i := range hosts {
		h, err := g.AddHost(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		hosts[i] = h
	}
	// From the machine a refused port says that both ways are open; silence, that one is not.
	answers := func(h *ground.Host) bool {
		c, err := (&net.Dialer{Timeout: 300 * time.Millisecond}).DialContext(t.Context(), "tcp", net.JoinHostPort(h.Address(), "9"))
		if err == nil {
			_ = c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	for _, d := range []ground.Direction{ground.In, ground.Out, ground.Both} {
		if !answers(hosts[0]) || !answers(hosts[1]) {
			t.Fatalf("before it was cut off (%s): no answer", d)
		}
		if err := hosts[0].Cut(t.Context(), d, hosts[1]); err != nil {
			t.Fatal(err)
		}
		if !answers(hosts[0]) {
			t.Errorf("cut off (%s) from the other host: the machine is not heard any more", d)
		}
		if err := hosts[0].Cut(t.Context(), d, nil); err != nil {
			t.Fatal(err)
		}
		if answers(hosts[0]) {
			t.Errorf("cut off (%s) from the machine: it still answers", d)
		}
		if err := hosts[0].Heal(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatAKilledOwnerLeftIsCleared(t *testing.T) {
	if testing.Short() {
		t.Skip("makes networks and mounts disks")
	}
	g, err := ground.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first owner dies, the second takes over
		if _, err := g.AddHost(t.Context()); err != nil {
			t.Fatalf("an old network is in the way: %v", err)
		}
		if _, err := g.AddDisk(t.Context(), "d", 16<<20); err != nil {
			t.Fatalf("an old disk is in the way: %v", err)
		}
		if err := g.Forget(); err != nil {
			t.Fatal(err)
		}
		if g, err = ground.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}
