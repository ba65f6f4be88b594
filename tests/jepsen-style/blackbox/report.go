package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/unisink/unisink/tests/jepsen-style/blackbox/house"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/judge"
	"github.com/unisink/unisink/tests/jepsen-style/check"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

// Verdicts of a run.
const (
	passed     = "passed"
	broken     = "broken"
	incomplete = "incomplete" // nothing is wrong, but not enough was done or seen
)

// Report is how a run ended.
type Report struct {
	Verdict string  `json:"verdict"`
	Seed    uint64  `json:"seed"`
	Minutes float64 `json:"minutes"`
	Kafka   string  `json:"kafka"`
	Binary  string  `json:"binary,omitempty"`
	// Dir is where history, logs and data are, if they were kept.
	Dir    string   `json:"dir,omitempty"`
	NotRun []string `json:"not_run,omitempty"` // faults that are not possible here, and why
	done
	Rules    []judge.Verdict `json:"rules"`
	Problems []string        `json:"problems,omitempty"` // what kept the run from its end
	Missing  []string        `json:"missing,omitempty"`  // too little of it for the run's length
	Notes    []string        `json:"notes,omitempty"`    // what happened by the way
	Strikes  []strike        `json:"strikes"`
}

// done is what went through.
type done struct {
	Calls       house.Count                `json:"calls"`
	Epochs      int                        `json:"epochs"`
	Transfers   int                        `json:"transfers"`
	Leaders     int                        `json:"leader_changes"`
	Kills       int                        `json:"kills"`
	InRound     int                        `json:"kills_in_open_rounds"`
	Unfinished  int                        `json:"kills_with_branches_unfinished"`
	Cuts        int                        `json:"cuts"`
	PowerLosses int                        `json:"power_losses"`
	Compared    int                        `json:"states_compared"` // entries at which two nodes' states were seen
	Windows     map[string]json.RawMessage `json:"windows"`         // what verify says
}

// addWindows takes in what verify says of a pipeline.
func (r *Report) addWindows(pipeline string, text json.RawMessage, problem string) {
	v := judge.Verdict{Rule: "windows " + pipeline, What: "every record of " + pipeline + " is in its window, once (unisink verify)"}
	var said struct{ Records int }
	if json.Unmarshal(text, &said) == nil {
		v.Judged = said.Records
	}
	if problem != "" {
		v.Findings = append(v.Findings, check.Finding{Rule: v.Rule, Text: problem})
	}
	r.Rules = append(r.Rules, v)
	if r.Windows == nil {
		r.Windows = map[string]json.RawMessage{}
	}
	if json.Valid(text) {
		r.Windows[pipeline] = text
	}
}

// judge judges the history and concludes.
func (r *run) judge(report *Report) error {
	r.say("judging the history in %s", r.history())
	events, err := house.Load(r.history())
	if err != nil {
		return err
	}
	report.Rules = append(judge.All(events, r.bounds(), filepath.Join(r.dir, "register.html")), report.Rules...)
	panics, err := rig.Panics(r.dir)
	if err != nil {
		return err
	}
	report.Problems = append(report.Problems, panics...)
	t := r.nemesis.tally()
	report.Epochs, report.Transfers, report.Leaders = r.scribe.totals()
	report.Calls, report.Compared = r.book.Count(), compared(events)
	report.Kills, report.InRound, report.Unfinished, report.Cuts, report.PowerLosses = t.kills, t.inRound, t.open, t.cuts, t.powers
	report.Strikes, report.Notes = r.nemesis.strikes, r.nemesis.slow
	for _, k := range append(r.workers.all(), r.keepers()...) {
		lives, sudden := k.count()
		report.Problems = append(report.Problems, k.wrongEnds()...)
		if len(sudden) > 0 {
			report.Notes = append(report.Notes, fmt.Sprintf("%s ended by itself %d times in %d lives, last %s", k.name, len(sudden), lives, sudden[len(sudden)-1]))
		}
	}
	for _, e := range events {
		if e.Kind == check.Note && (e.Who == "operator" || strings.HasPrefix(e.Text, "halted")) {
			report.Notes = append(report.Notes, e.Who+": "+e.Text)
		}
	}
	report.conclude(r.wanted(), r.c.Few)
	return r.save(report, events)
}

func (r *run) keepers() (all []*keeper) {
	for _, n := range r.group.nodes {
		all = append(all, n.keeper)
	}
	return all
}

// compared counts the entries at which the states of two nodes were seen.
func compared(events []check.Event) (n int) {
	who := map[uint64]map[string]bool{}
	for _, e := range events {
		if e.Kind != check.State {
			continue
		}
		if who[e.Index] == nil {
			who[e.Index] = map[string]bool{}
		}
		who[e.Index][e.Who] = true
		if len(who[e.Index]) == 2 {
			n++
		}
	}
	return n
}

// wanted are the least numbers for a run of a length, where a fault is possible at all.
func (r *run) wanted() map[string]int {
	able := r.ground.Able()
	m := r.c.Minutes
	w := map[string]int{
		"kills": int(8.5 * m), "kills in open rounds": int(2 * m), "leader changes": int(m), "transfers": int(30 * m), "epochs": int(10 * m),
		"states compared": 1,
	}
	if able.Networks {
		w["cuts"] = int(m / 2)
	}
	if able.Disks {
		w["power losses"] = int(m / 2)
	}
	return w
}

// conclude says how the run ended.
func (r *Report) conclude(wanted map[string]int, few bool) {
	have := map[string]int{
		"kills": r.Kills, "kills in open rounds": r.InRound, "leader changes": r.Leaders, "transfers": r.Transfers, "epochs": r.Epochs,
		"states compared": r.Compared, "cuts": r.Cuts, "power losses": r.PowerLosses,
	}
	for _, what := range slices.Sorted(maps.Keys(wanted)) {
		if have[what] < wanted[what] {
			r.Missing = append(r.Missing, fmt.Sprintf("%d %s, wanted %d", have[what], what, wanted[what]))
		}
	}
	found := 0
	for _, v := range r.Rules {
		found += len(v.Findings)
		if v.Judged == 0 {
			r.Missing = append(r.Missing, "nothing to judge "+v.Rule+" by")
		}
	}
	switch {
	case found > 0 || len(r.Problems) > 0:
		r.Verdict = broken
	case len(r.Missing) > 0 && !few:
		r.Verdict = incomplete
	default:
		r.Verdict = passed
	}
}

// save writes the report as JSON and as a page. A run that is kept keeps both with it.
func (r *run) save(report *Report, events []check.Event) error {
	if err := os.MkdirAll(r.c.Out, 0o755); err != nil {
		return fmt.Errorf("make the directory of the report: %w", err)
	}
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(r.c.Out, "jepsen.json"), append(data, '\n'), 0o644),
		r.draw(report, events, filepath.Join(r.c.Out, "jepsen.html")),
	)
}

// write shows the report to a person. Its last line says how it ended and how to repeat it.
func (r *Report) write(w io.Writer) {
	if r.Verdict == "" {
		return // it did not come that far
	}
	kinds := map[string]int{}
	for _, s := range r.Strikes {
		kinds[string(s.Kind)]++
	}
	fmt.Fprintf(w, "\n%.1f minutes of faults, seed %d, Kafka %s\n", r.Minutes, r.Seed, r.Kafka)
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(w, "  %-36s %4d\n", k, kinds[k])
	}
	for _, n := range r.NotRun {
		fmt.Fprintf(w, "  NOT RUN %s\n", n)
	}
	for _, v := range r.Rules {
		fmt.Fprintf(w, "  %-14s %-11s %8d  %s\n", v.Rule, state(v), v.Judged, v.What)
	}
	for _, v := range r.Rules {
		for i, f := range v.Findings {
			if i == 10 {
				fmt.Fprintf(w, "  %s: … and %d more\n", v.Rule, len(v.Findings)-i)
				break
			}
			fmt.Fprintf(w, "  %s\n", f)
		}
	}
	for _, list := range []struct {
		name string
		rows []string
	}{{"problem", r.Problems}, {"too few", r.Missing}, {"note", r.Notes}} {
		for _, row := range list.rows {
			fmt.Fprintf(w, "  %s: %s\n", list.name, row)
		}
	}
	if r.Dir != "" {
		fmt.Fprintf(w, "  history, logs and data are kept in %s\n", r.Dir)
	}
	if r.Verdict != passed {
		fmt.Fprintf(w, "replay the plan with: make jepsen SEED=%d MINUTES=%g\n", r.Seed, r.Minutes)
	}
	fmt.Fprintln(w, r.last())
}

// state of a rule, in a word.
func state(v judge.Verdict) string {
	switch {
	case len(v.Findings) > 0:
		return fmt.Sprintf("BROKEN (%d)", len(v.Findings))
	case v.Judged == 0:
		return "NOT JUDGED"
	}
	return "kept"
}

// last is the line that says how it ended.
func (r *Report) last() string {
	return fmt.Sprintf("VERDICT %s  seed %d  %d calls, %d unknown  decided %d epochs, %d transfers  "+
		"%d kills, %d in open rounds, %d with branches unfinished  %d cuts  %d power losses  %d leader changes",
		r.Verdict, r.Seed, r.Calls.Calls, r.Calls.Unknown, r.Epochs, r.Transfers,
		r.Kills, r.InRound, r.Unfinished, r.Cuts, r.PowerLosses, r.Leaders)
}
