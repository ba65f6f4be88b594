package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/unisink/unisink/internal/plural"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

const (
	screenEvery = 250 * time.Millisecond
	lineEvery   = 2 * time.Second
)

// show draws what is going on until ctx ends: one screen that is redrawn, or a line now and then
// where the output is no terminal.
func (d *demo) show(ctx context.Context) {
	began := time.Now()
	var lastLine time.Time
	lastPhase := ""
	drawn := 0
	draw := func(ctx context.Context) {
		v := d.look(ctx)
		if !d.c.Screen {
			if v.phase != lastPhase || time.Since(lastLine) >= lineEvery {
				fmt.Fprintln(d.c.Out, v.line(time.Since(began)))
				lastLine, lastPhase = time.Now(), v.phase
			}
			return
		}
		text := v.page(d.c.Workload.Text(), d.c.Epoch, time.Since(began))
		if drawn > 0 {
			fmt.Fprintf(d.c.Out, "\x1b[%dA", drawn)
		}
		for _, l := range text {
			fmt.Fprintf(d.c.Out, "\x1b[2K%s\n", cut(l, d.c.Width))
		}
		fmt.Fprint(d.c.Out, "\x1b[J")
		drawn = len(text)
	}
	for sleep(ctx, screenEvery) == nil {
		draw(ctx)
	}
	// One last look, so that the screen that stays shows how it ended.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), screenEvery)
	defer cancel()
	draw(last)
}

// view is one look at the group through its public API, and what the demo itself did.
type view struct {
	phase   string
	nodes   []string
	leader  string
	term    uint64
	scope   *unisinkv1.ScopeStatus
	epochs  []*unisinkv1.EpochRecord
	strikes []strike
	orders  int64
	runs    int
	worker  string // what became of the pipeline's process
}

func (d *demo) look(ctx context.Context) view {
	var v view
	if st, err := d.status(ctx); err == nil {
		v.leader, v.term = st.GetLeader(), st.GetTerm()
	}
	if p, err := d.pipeline(ctx); err == nil && len(p.GetScopes()) > 0 {
		v.scope = p.GetScopes()[0]
		list, err := d.client.Pipelines().ListEpochs(ctx, &unisinkv1.ListEpochsRequest{Scope: v.scope.GetScope(), Limit: 8})
		if err == nil {
			v.epochs = list.GetEpochs()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v.phase, v.runs, v.orders = d.phase, d.runs, d.orders.Load()
	v.worker = state(d.worker)
	for _, s := range d.strikes {
		v.strikes = append(v.strikes, *s)
	}
	for _, n := range d.nodes {
		state := "follows"
		switch {
		case !n.proc.alive():
			state = "killed"
		case n.id == v.leader:
			state = "LEADS"
		case v.leader == "":
			state = "no leader known"
		}
		v.nodes = append(v.nodes, n.id+" "+state)
	}
	return v
}

func state(p *proc) string {
	switch {
	case p == nil:
		return "not started"
	case p.alive():
		return "running"
	case p.Err() == nil:
		return "ended"
	default:
		return "killed, starting again"
	}
}

func (v view) lag() string {
	lag := int64(-1)
	for _, m := range v.scope.GetMembers() {
		lag = max(lag, m.GetLag())
	}
	if lag < 0 {
		return "unknown"
	}
	return plural.Of(lag, "record")
}

func (v view) newest() string {
	if len(v.epochs) == 0 {
		return "none"
	}
	e := v.epochs[0].GetEpoch()
	return fmt.Sprintf("%d.%d", e.GetGeneration(), e.GetN())
}

func (v view) line(at time.Duration) string {
	return fmt.Sprintf("%5.1f s  leader %-2s  term %d  epoch %-6s  in doubt %d undecided, %d not proven  lag %s  %s  %s",
		at.Seconds(), dash(v.leader), v.term, v.newest(), v.scope.GetRoundsOpen(), v.scope.GetUnfinished(), v.lag(), plural.Of(v.orders, "order"), v.phase)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (v view) page(text string, epoch, at time.Duration) []string {
	out := []string{
		fmt.Sprintf("unisink demo  %4.1f s   an epoch every %s", at.Seconds(), epoch),
		"  " + text,
		"",
		fmt.Sprintf("  coordinator  %s   term %d", strings.Join(v.nodes, " · "), v.term),
		fmt.Sprintf("  pipeline     process %d %s · generation %d · lag %s · %s written", v.runs, v.worker, v.scope.GetGeneration(), v.lag(), plural.Of(v.orders, "order")),
		fmt.Sprintf("  in doubt     %d undecided, %d decided and not proven", v.scope.GetRoundsOpen(), v.scope.GetUnfinished()),
		fmt.Sprintf("  now          %s", v.phase),
		"",
		"  EPOCH     DECIDED       PROVEN        POSITION  BRANCHES",
	}
	for i := range 8 {
		if i < len(v.epochs) {
			out = append(out, epochLine(v.epochs[i]))
		} else {
			out = append(out, "")
		}
	}
	out = append(out, "")
	for _, s := range v.strikes {
		result := "waiting for the logs"
		if s.Counted {
			result = s.Outcome + " after it"
		}
		out = append(out, fmt.Sprintf("  kill -9 of the %-8s at %s: vote for epoch %s was in, %s", s.Target, s.Killed.Format("15:04:05.000"), s.Epoch, result))
	}
	return out
}

func epochLine(e *unisinkv1.EpochRecord) string {
	proven := "not yet"
	if e.GetProvenAtMs() != 0 {
		proven = fmt.Sprintf("after %d ms", max(0, e.GetProvenAtMs()-e.GetDecidedAtMs()))
	}
	position := "-" // older epochs keep their outcome alone
	if at := e.GetPositions(); len(at) > 0 {
		var sum int64
		for _, p := range at {
			sum += p.GetOffset()
		}
		position = fmt.Sprint(sum)
	}
	var branches []string
	for _, b := range e.GetBranches() {
		branches = append(branches, b.GetResource())
	}
	what := strings.Join(branches, " + ")
	if what == "" {
		what = "nothing to write"
	}
	return fmt.Sprintf("  %-8s  %s  %-12s  %8s  %s", fmt.Sprintf("%d.%d", e.GetEpoch().GetGeneration(), e.GetEpoch().GetN()),
		time.UnixMilli(e.GetDecidedAtMs()).Format("15:04:05.000"), proven, position, what)
}

// cut keeps a line from wrapping, which would spoil the redrawing.
func cut(line string, width func() int) string {
	if width == nil {
		return line
	}
	r := []rune(line)
	if n := width(); n > 1 && len(r) >= n {
		return string(r[:n-2]) + "…"
	}
	return line
}
