package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/unisink/unisink/tests/jepsen-style/blackbox/house"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/show"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// draw writes the run as a page that a person can look at.
func (r *run) draw(report *Report, events []check.Event, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("draw the run: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p := show.Page{
		Title: fmt.Sprintf("unisink jepsen: %s, seed %d", report.Verdict, report.Seed), Line: report.last(),
		Bars: []show.Bars{callBars(events), epochBars(events)},
	}
	for _, v := range report.Rules {
		p.Rows = append(p.Rows, show.Row{
			Name: v.Rule, State: fmt.Sprintf("%s, %d judged", state(v), v.Judged), Text: v.What, Bad: len(v.Findings) > 0,
		})
		for _, f := range v.Findings {
			p.Findings = append(p.Findings, f.String())
		}
	}
	for _, n := range report.NotRun {
		p.Rows = append(p.Rows, show.Row{Name: "not run", Text: n})
	}
	p.Findings = append(p.Findings, report.Problems...)
	for _, e := range events {
		p.Length = max(p.Length, e.At)
	}
	lanes := map[string]*show.Lane{}
	order := []string{"leader"}
	for _, k := range append(r.keepers(), r.workers.all()...) {
		order = append(order, k.name)
	}
	for _, name := range order {
		lanes[name] = &show.Lane{Name: name}
	}
	lanes["leader"].Spans = reigns(events, p.Length)
	for _, s := range report.Strikes {
		for _, t := range s.Targets {
			lanes[t].Spans = append(lanes[t].Spans, show.Span{From: s.From, To: s.To, Class: classOf(s.Family), Text: fmt.Sprintf(
				"%s at %s for %s, %s: %d rounds open, %d branches unfinished", s.Kind, s.From.Round(time.Millisecond),
				(s.To - s.From).Round(time.Millisecond), s.Aim, s.Rounds, s.Unfinished)})
		}
	}
	for _, name := range order {
		p.Lanes = append(p.Lanes, *lanes[name])
	}
	return show.Write(f, p)
}

func classOf(f family) show.Class {
	return map[family]show.Class{killing: show.Kill, pausing: show.Pause, cutting: show.Cut, filling: show.Disk, powering: show.Disk}[f]
}

// reigns are who led from when to when, as far as anybody took it up after them.
func reigns(events []check.Event, end time.Duration) (all []show.Span) {
	for _, e := range events {
		if e.Kind != check.Leads {
			continue
		}
		if n := len(all); n > 0 {
			all[n-1].To = max(all[n-1].From, e.At-100*time.Millisecond)
		}
		all = append(all, show.Span{From: e.At, To: end, Class: show.Leader, Text: fmt.Sprintf("%s leads term %d", e.Who, e.Term)})
	}
	return all
}

func second(e check.Event) int { return int(e.At / time.Second) }

func callBars(events []check.Event) show.Bars {
	good, neutral, bad := map[int]int{}, map[int]int{}, map[int]int{}
	for _, e := range events {
		if e.Kind != check.Return {
			continue
		}
		//exhaustive:ignore
		switch e.Answer {
		case check.AnswerCommitted:
			good[second(e)]++
		case check.AnswerUnknown:
			bad[second(e)]++
		default:
			neutral[second(e)]++
		}
	}
	return show.Bars{Name: "calls", Counts: []show.Count{
		{Class: show.Bad, Text: "unknown", Number: bad},
		{Class: show.Neutral, Text: "aborted, pending or refused", Number: neutral},
		{Class: show.Good, Text: "committed", Number: good},
	}}
}

func epochBars(events []check.Event) show.Bars {
	seen, n := map[string]bool{}, map[int]int{}
	for _, e := range events {
		key := e.Branch.Transaction()
		switch {
		case e.Kind == check.Decided && !seen[key], e.Kind == check.Committed && e.Store == house.Accounts:
			seen[key] = true
			n[second(e)]++
		}
	}
	return show.Bars{Name: "decisions", Counts: []show.Count{{Class: show.Good, Text: "epochs and transfers decided", Number: n}}}
}
