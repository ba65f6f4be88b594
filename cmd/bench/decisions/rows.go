package decisions

import (
	"context"
	"fmt"
	"time"

	"github.com/unisink/unisink/cmd/bench/fleet"
	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/cmd/bench/stats"
)

// LoadRow is what the group did while every scope made epochs.
type LoadRow struct {
	DecisionsPerS float64 `json:"decisions_per_s"`
	// From a prepared vote until its member was told the decision, milliseconds.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
	// Microseconds of CPU for each decision: of the node that led, of all nodes, and of the process with the members.
	LeaderCPU  float64 `json:"leader_cpu_us"`
	NodesCPU   float64 `json:"nodes_cpu_us"`
	MembersCPU float64 `json:"members_cpu_us"`
	// PerEntry is how many decisions shared an entry of the log, about: entries hold proofs as well.
	PerEntry float64 `json:"decisions_per_entry"`
	// WrittenPerS are the bytes that the leader caused to be written to storage, snapshots included.
	WrittenPerS float64 `json:"leader_written_mib_per_s"`
	// Bytes per decision between the members and the group, both ways.
	NetBytes float64 `json:"net_bytes_per_decision"`
	// Gap is the longest time in which no scope at all was told a decision, milliseconds.
	Gap float64 `json:"longest_gap_ms"`
}

func (r *LoadRow) fill(from, to look, told []fleet.Decision) {
	n := float64(len(told))
	if n == 0 {
		return
	}
	s := to.at.Sub(from.at).Seconds()
	r.DecisionsPerS = stats.Rounded(n/s, 0)
	r.P50, r.P99, r.Max = latencies(told)
	perDecision := func(d time.Duration) float64 { return stats.Rounded(d.Seconds()*1e6/n, 1) }
	r.NodesCPU, r.LeaderCPU, r.MembersCPU = perDecision(to.cpu()-from.cpu()), perDecision(to.leader().CPU-from.nodes[to.lead].CPU), perDecision(to.self.CPU-from.self.CPU)
	if entries := to.index - from.index; entries > 0 {
		r.PerEntry = stats.Rounded(n/float64(entries), 1)
	}
	r.WrittenPerS = mib(float64(to.leader().Written-from.nodes[to.lead].Written) / s)
	r.NetBytes = stats.Rounded(float64(to.net-from.net)/n, 0)
}

func (r LoadRow) String() string {
	return fmt.Sprintf("%.0f decisions/s, p50 %.1f ms, p99 %.0f ms, %.0f µs of the nodes' CPU for each, %.1f MiB/s written by the leader", r.DecisionsPerS, r.P50, r.P99, r.NodesCPU, r.WrittenPerS)
}

// latencies in milliseconds.
func latencies(told []fleet.Decision) (p50, p99, most float64) {
	ms := make([]float64, len(told))
	for i, d := range told {
		ms[i] = stats.Milliseconds(d.Took)
		most = max(most, ms[i])
	}
	p50, p99 = stats.MiddleAndEnd(ms)
	return p50, p99, stats.Rounded(most, 2)
}

// longestGap is the longest time without any decision, milliseconds.
func longestGap(told []fleet.Decision, from, to time.Time) float64 {
	last, gap := from, time.Duration(0)
	for _, d := range told {
		if d.Told.Before(from) || d.Told.After(to) {
			continue
		}
		gap, last = max(gap, d.Told.Sub(last)), d.Told
	}
	return stats.Rounded(stats.Milliseconds(max(gap, to.Sub(last))), 1)
}

// IdleRow is what members cost that do nothing.
type IdleRow struct {
	What   string `json:"what"`
	Scopes int    `json:"scopes"`
	// CPU in percent of one processor: of the node that leads, and of all nodes.
	LeaderCPU float64 `json:"leader_cpu_percent"`
	CPU       float64 `json:"nodes_cpu_percent"`
	// NetPerS are bytes between members and group, both ways; WrittenPerS those that the leader wrote to storage.
	NetPerS     float64 `json:"net_kib_per_s"`
	WrittenPerS float64 `json:"leader_written_kib_per_s"`
	EntriesPerS float64 `json:"entries_per_s"`
	LeaderMiB   float64 `json:"leader_mib"`
}

func (r *IdleRow) fill(from, to look) {
	s := to.at.Sub(from.at).Seconds()
	r.LeaderCPU = stats.Rounded((to.leader().CPU-from.nodes[to.lead].CPU).Seconds()/s*100, 1)
	r.CPU = stats.Rounded((to.cpu()-from.cpu()).Seconds()/s*100, 1)
	r.NetPerS = stats.Rounded(float64(to.net-from.net)/s/1024, 1)
	r.WrittenPerS = stats.Rounded(float64(to.leader().Written-from.nodes[to.lead].Written)/s/1024, 1)
	r.EntriesPerS = stats.Rounded(float64(to.index-from.index)/s, 1)
	r.LeaderMiB = mib(float64(to.leader().RSS))
}

func (r IdleRow) String() string {
	return fmt.Sprintf("the leader takes %.1f %% of a processor, all nodes %.1f %%, %.1f KiB/s on the wire, %.1f entries/s, %.0f MiB", r.LeaderCPU, r.CPU, r.NetPerS, r.EntriesPerS, r.LeaderMiB)
}

// CostRow is what a decision costs beside so many idle scopes and behind so many decisions.
type CostRow struct {
	What      string `json:"what"`
	Idle      int    `json:"idle_scopes"`
	History   int    `json:"decisions_before"`
	Decisions int    `json:"decisions"`
	// CPU is microseconds of all nodes for a decision, without what they take when idle.
	CPU float64 `json:"nodes_cpu_us"`
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	// ToFirst is CPU beside that of the first row.
	ToFirst float64 `json:"cpu_to_first"`
}

func (r *CostRow) fill(from, to look, told []fleet.Decision, idlePercent float64) {
	r.Decisions = len(told)
	if r.Decisions == 0 {
		return
	}
	s := to.at.Sub(from.at).Seconds()
	r.CPU = stats.Rounded(((to.cpu()-from.cpu()).Seconds()-idlePercent/100*s)*1e6/float64(r.Decisions), 1)
	r.P50, r.P99, _ = latencies(told)
}

func (r CostRow) String() string {
	return fmt.Sprintf("%d decisions, %.0f µs of the nodes' CPU for each, p50 %.2f ms, p99 %.2f ms", r.Decisions, r.CPU, r.P50, r.P99)
}

// look is what was read at one moment.
type look struct {
	at    time.Time
	nodes []group.Usage
	lead  int // index of the node that leads
	self  group.Usage
	index uint64 // newest entry of the log
	net   int64  // bytes between members and group
}

func (l look) cpu() (sum time.Duration) {
	for _, n := range l.nodes {
		sum += n.CPU
	}
	return sum
}

func (l look) leader() group.Usage { return l.nodes[l.lead] }

func (s *scopes) look(ctx context.Context) (l look, err error) {
	n, err := s.group.Leader(ctx)
	if err != nil {
		return l, err
	}
	st, err := s.group.Status(ctx, n)
	if err != nil {
		return l, fmt.Errorf("ask node %s how far it is: %w", n.ID, err)
	}
	l.index = st.GetLastIndex()
	for i, o := range s.group.Nodes {
		u, err := group.UsageOf(o.Proc.PID())
		if err != nil {
			return l, err
		}
		l.nodes = append(l.nodes, u)
		if o == n {
			l.lead = i
		}
	}
	if l.self, err = group.UsageOf(0); err != nil {
		return l, err
	}
	sent, received := s.probe.Traffic()
	l.net = sent + received
	if s.many != nil {
		sent, received = s.many.Traffic()
		l.net += sent + received
	}
	l.at = time.Now()
	return l, nil
}

// between looks, lets time pass, and looks again.
func (s *scopes) between(ctx context.Context, d time.Duration) (from, to look, err error) {
	if err := group.Sleep(ctx, settle); err != nil {
		return from, to, err
	}
	if from, err = s.look(ctx); err != nil {
		return from, to, err
	}
	if err := group.Sleep(ctx, d); err != nil {
		return from, to, err
	}
	to, err = s.look(ctx)
	return from, to, err
}

func mib(bytes float64) float64 { return stats.Rounded(bytes/(1<<20), 1) }
