package decisions

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/unisink/unisink/cmd/bench/fleet"
	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/cmd/bench/stats"
)

// NodeRow is memory and disk of a node under load.
type NodeRow struct {
	Node string `json:"node"`
	// Memory resident: its median in the second half of the load, and the most since the node's start.
	SteadyMiB float64 `json:"steady_mib"`
	PeakMiB   float64 `json:"peak_mib"`
	// OwnMiB is the most without pages of mapped files, of the program and the log, which the kernel takes back
	// when it needs memory. It is read twice a second.
	OwnMiB float64 `json:"own_most_mib"`
	// Data directory: at the beginning, at the end and at most, and through time at equal distances.
	DirFromMiB float64   `json:"dir_from_mib"`
	DirToMiB   float64   `json:"dir_to_mib"`
	DirMostMiB float64   `json:"dir_most_mib"`
	DirMiB     []float64 `json:"dir_mib"`
	Snapshots  int       `json:"snapshots"`
}

// SnapshotRow is one snapshot that a node took under load.
type SnapshotRow struct {
	Node string  `json:"node"`
	AtS  float64 `json:"at_s"`
	MiB  float64 `json:"mib"`
	// WriteMS is how long it was being written, and PauseMS the longest time, from a second before that on, in
	// which no scope was told a decision.
	WriteMS float64 `json:"write_ms"`
	PauseMS float64 `json:"longest_gap_ms"`
}

// eye watches nodes from outside.
type eye struct {
	group *group.Group
	began time.Time
	each  []*watched

	work sync.WaitGroup
	stop context.CancelFunc
}

// watched is one node. It belongs to its goroutine until the eye has ended.
type watched struct {
	node      *group.Node
	dir       string
	rss, disk []float64 // MiB
	peak, own float64
	snaps     map[string]*snap
	failed    error
}

type snap struct {
	begun, ended time.Time
	bytes        int64
}

func newEye(g *group.Group) *eye {
	e := &eye{group: g}
	for _, n := range g.Nodes {
		e.each = append(e.each, &watched{node: n, dir: g.Data(n), snaps: map[string]*snap{}})
	}
	return e
}

// How often a node is looked at: for snapshots, and for what is slow to read.
const (
	lookEvery = 10 * time.Millisecond
	readEvery = 500 * time.Millisecond
)

// begin watches until end.
func (e *eye) begin(ctx context.Context) {
	ctx, e.stop = context.WithCancel(ctx)
	e.began = time.Now()
	for _, w := range e.each {
		w.look(e.began) // what is there is not news
		clear(w.snaps)
		e.work.Go(func() { w.watch(ctx, w.known()) })
	}
}

func (e *eye) end() error {
	e.stop()
	e.work.Wait()
	var errs []error
	for _, w := range e.each {
		errs = append(errs, w.failed)
	}
	return errors.Join(errs...)
}

// known are the snapshots that are there.
func (w *watched) known() map[string]bool {
	known := map[string]bool{}
	entries, _ := os.ReadDir(filepath.Join(w.dir, "snapshots"))
	for _, f := range entries {
		known[f.Name()] = true
	}
	return known
}

func (w *watched) watch(ctx context.Context, old map[string]bool) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	read := time.Time{}
	for {
		now := time.Now()
		w.look(now)
		for name := range old {
			delete(w.snaps, name)
		}
		if now.Sub(read) >= readEvery {
			read = now
			w.failed = errors.Join(w.failed, w.read())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// unfinished is how the name of a snapshot ends that is being written.
const unfinished = ".tmp"

// look notes which snapshots are there.
func (w *watched) look(now time.Time) {
	entries, err := os.ReadDir(filepath.Join(w.dir, "snapshots"))
	if err != nil {
		return // none was taken yet
	}
	for _, f := range entries {
		name := strings.TrimSuffix(f.Name(), unfinished)
		s := w.snaps[name]
		if s == nil {
			s = &snap{begun: now}
			w.snaps[name] = s
		}
		if name == f.Name() && s.ended.IsZero() {
			s.ended = now
			if info, err := os.Stat(filepath.Join(w.dir, "snapshots", name, "state.bin")); err == nil {
				s.bytes = info.Size()
			}
		}
	}
}

func (w *watched) read() error {
	u, err := group.UsageOf(w.node.Proc.PID())
	if err != nil {
		return err
	}
	size, err := group.DirBytes(w.dir)
	w.rss, w.disk = append(w.rss, mib(float64(u.RSS))), append(w.disk, mib(float64(size)))
	w.peak, w.own = max(w.peak, mib(float64(u.Peak))), max(w.own, mib(float64(u.Own)))
	return err
}

// nodes are the rows of what was seen. The eye has ended.
func (e *eye) nodes(_, _ look) []NodeRow {
	const points = 20
	out := make([]NodeRow, 0, len(e.each))
	for _, w := range e.each {
		r := NodeRow{Node: w.node.ID, PeakMiB: w.peak, OwnMiB: w.own, Snapshots: len(w.snaps)}
		if n := len(w.rss); n > 0 {
			r.SteadyMiB = stats.Rounded(stats.Median(w.rss[n/2:]), 1)
			r.DirFromMiB, r.DirToMiB = w.disk[0], w.disk[n-1]
			for i, v := range w.disk {
				r.DirMostMiB = max(r.DirMostMiB, v)
				if i%max(n/points, 1) == 0 {
					r.DirMiB = append(r.DirMiB, v)
				}
			}
		}
		out = append(out, r)
	}
	return out
}

// snapshots are the rows of those that were begun while the eye watched.
func (e *eye) snapshots(told []fleet.Decision) []SnapshotRow {
	var out []SnapshotRow
	for _, w := range e.each {
		for _, s := range w.snaps {
			r := SnapshotRow{Node: w.node.ID, AtS: stats.Rounded(s.begun.Sub(e.began).Seconds(), 1), MiB: mib(float64(s.bytes))}
			end := s.ended
			if end.IsZero() {
				end = s.begun
			}
			r.WriteMS = stats.Rounded(stats.Milliseconds(end.Sub(s.begun)), 0)
			r.PauseMS = longestGap(told, s.begun.Add(-time.Second), end)
			out = append(out, r)
		}
	}
	return out
}
