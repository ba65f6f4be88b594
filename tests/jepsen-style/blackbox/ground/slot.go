package ground

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	slots = 8
	name  = "unisink-jepsen"
	// cleanIn bounds one command of the clearing up, which also runs when the run's context is over.
	cleanIn = 20 * time.Second
)

// Able says what this machine lets us do, and in one sentence each what is in the way.
type Able struct {
	Networks, Disks     bool
	NoNetworks, NoDisks string
}

// Ground is one slot and what was made in it.
type Ground struct {
	slot  int
	dir   string
	lock  *os.File
	able  Able
	hosts []*Host
	disks []*Disk
}

// Take takes a free slot, clears it, and tries out what is possible. It is given back by Close.
func Take(ctx context.Context) (*Ground, error) {
	for slot := range slots {
		lock, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("%s-%d.lock", name, slot)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open the lock of a slot: %w", err)
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			_ = lock.Close() // somebody else's
			continue
		}
		g := &Ground{slot: slot, dir: filepath.Join(os.TempDir(), fmt.Sprintf("%s-%d", name, slot)), lock: lock}
		if err := g.begin(ctx); err != nil {
			return nil, errors.Join(err, g.Close()) //nolint:contextcheck // what was made goes also when ctx is over
		}
		return g, nil
	}
	return nil, fmt.Errorf("all %d slots are taken by living runs", slots)
}

func (g *Ground) begin(ctx context.Context) error {
	if err := g.clear(ctx); err != nil {
		return fmt.Errorf("clear what an earlier run left in slot %d: %w", g.slot, err)
	}
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return fmt.Errorf("make a directory for what can be broken: %w", err)
	}
	g.able = g.probe(ctx)
	if err := g.clear(ctx); err != nil { // what the trial made
		return err
	}
	return os.Mkdir(g.dir, 0o700)
}

// Able says what is possible here.
func (g *Ground) Able() Able { return g.able }

// Dir is the slot's directory; what is in it is gone after Close.
func (g *Ground) Dir() string { return g.dir }

// Close takes down everything that was made, and gives the slot back. Whoever ran in it must have
// ended. It also works when the run's context is over.
func (g *Ground) Close() error {
	err := g.clear(context.Background())
	return errors.Join(err, g.lock.Close())
}

// probe makes one of each and breaks it.
func (g *Ground) probe(ctx context.Context) (a Able) {
	if os.Geteuid() != 0 {
		why := "it needs root"
		return Able{NoNetworks: why, NoDisks: why}
	}
	a.Networks, a.Disks = true, true
	if err := g.tryNetworks(ctx); err != nil {
		a.Networks, a.NoNetworks = false, firstLine(err)
	}
	if err := g.tryDisks(ctx); err != nil {
		a.Disks, a.NoDisks = false, firstLine(err)
	}
	return a
}

func (g *Ground) tryNetworks(ctx context.Context) error {
	g.able.Networks = true
	one, err := g.AddHost(ctx)
	if err != nil {
		return err
	}
	two, err := g.AddHost(ctx)
	if err != nil {
		return err
	}
	if err := g.command(ctx, "nsenter", append(one.enter(), "true")...); err != nil {
		return err
	}
	return errors.Join(one.Cut(ctx, Both, two), one.Heal(ctx))
}

func (g *Ground) tryDisks(ctx context.Context) error {
	g.able.Disks = true
	d, err := g.AddDisk(ctx, "trial", 16<<20)
	if err != nil {
		return err
	}
	return errors.Join(d.PowerOff(), d.PowerOn(ctx))
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// clear takes down what is named after the slot, whoever made it.
func (g *Ground) clear(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	errs := []error{g.clearNetworks(ctx), g.clearDisks(ctx)}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	g.hosts, g.disks = nil, nil
	return os.RemoveAll(g.dir)
}

func (g *Ground) clearNetworks(ctx context.Context) error {
	var errs []error
	spaces, err := filepath.Glob(filepath.Join("/run/netns", g.prefix()+"n*"))
	if err != nil {
		return err
	}
	for _, path := range spaces {
		ns := filepath.Base(path)
		out, err := g.output(ctx, "ip", "netns", "pids", ns)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for pid := range strings.FieldsSeq(out) {
			if n, err := strconv.Atoi(pid); err == nil {
				_ = syscall.Kill(n, syscall.SIGKILL) // it may have ended
			}
		}
		errs = append(errs, g.command(ctx, "ip", "netns", "del", ns))
	}
	if _, err := net.InterfaceByName(g.bridge()); err == nil {
		errs = append(errs, g.command(ctx, "ip", "link", "del", g.bridge()))
	}
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, l := range links { // ends of pairs whose namespace is still going
		if strings.HasPrefix(l.Name, g.prefix()+"v") {
			_ = g.command(ctx, "ip", "link", "del", l.Name) // it goes with its namespace
		}
	}
	return errors.Join(errs...)
}

// prefix of the names of what the kernel knows; interfaces have at most 15 letters.
func (g *Ground) prefix() string { return fmt.Sprintf("uj%d", g.slot) }

func (g *Ground) bridge() string { return g.prefix() + "br" }

// command runs a program to its end. The error has what it said.
func (g *Ground) command(ctx context.Context, program string, args ...string) error {
	_, err := g.output(ctx, program, args...)
	return err
}

func (g *Ground) output(ctx context.Context, program string, args ...string) (string, error) {
	return g.feed(ctx, "", program, args...)
}

// feed is output with something to read.
func (g *Ground) feed(ctx context.Context, text, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanIn)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
