package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/internal/services"
)

const clock = "15:04:05.000"

// What is killed or stopped.
const (
	killPipeline = "pipeline"
	killAtPoint  = "pipeline at a fault point"
	killBroker   = "broker"
	killLeader   = "leader"
	killDatabase = "postgres"
	killResolver = "resolver"
	stopPipeline = "pipeline stopped"
	stopLeader   = "leader stopped"
	// intoCorners is no kill: where the corners are led to, at the end.
	intoCorners = "corners"
)

// Moments of a kill that a run must have.
const (
	roundOpen  = "round open"
	unfinished = "branch unfinished"
)

// Verdicts of a run.
const (
	clean      = "clean"
	broken     = "broken"
	incomplete = "incomplete" // nothing is wrong, but not enough was done
)

// strike is one kill or stop, and what the logs say of the moment.
type strike struct {
	What  string    `json:"what"`
	Point string    `json:"point,omitempty"`
	At    time.Time `json:"at"`
	moment
	// EpochsBefore is how many epochs were decided since the strike before.
	EpochsBefore int `json:"epochs_before"`
	// Counted: at least one epoch was decided since the last counted kill.
	Counted bool `json:"counted"`
	// NextDecisionMS is how long it took to the next decision.
	NextDecisionMS int64 `json:"next_decision_ms"`
	// AwayMS is how long a stopped process stood still.
	AwayMS int64 `json:"away_ms,omitempty"`
}

func (s strike) kill() bool { return s.What != stopPipeline && s.What != stopLeader }

// idsPerGeneration is the most transactional ids that a generation may use: a slot for each epoch
// that may be open or unproven, and one to write into.
const idsPerGeneration = 3

// Report is how a run ended.
type Report struct {
	Verdict string  `json:"verdict"`
	Minutes float64 `json:"minutes"`
	Seed    uint64  `json:"seed"`
	Kafka   string  `json:"kafka"`
	Sinks   string  `json:"sinks"`
	// Mode of the PostgreSQL sink, where there is one.
	Mode string `json:"mode,omitempty"`
	// Dir is where logs and data are, if they were kept.
	Dir string `json:"dir,omitempty"`
	work
	struck
	found
	Restarts restarts `json:"restarts"`
	// Decisions is how long it took from each kill of the pipeline to the next decision.
	Decisions times           `json:"kill_to_decision"`
	Verify    json.RawMessage `json:"verify,omitempty"`
}

// work is what went through meanwhile.
type work struct {
	Records     int64 `json:"records"`
	Epochs      int   `json:"epochs_decided"`
	Generations int   `json:"generations"`
	Runs        int   `json:"pipeline_runs"`
	// IDs is how many transactional ids of ours the broker knows.
	IDs int `json:"transactional_ids"`
}

// struck is what was killed and stopped.
type struck struct {
	Kills   map[string]int `json:"kills"`            // that count, by kind
	All     map[string]int `json:"all_strikes"`      // kills and stops, by kind
	Moments map[string]int `json:"kills_by_moment"`  // that count; some are of two kinds
	Points  map[string]int `json:"crashes_by_point"` // as the pipeline's log shows them
	Missing []string       `json:"points_missing"`
	// Elsewhere are points that this run was not led to, and why.
	Elsewhere map[string]string `json:"points_elsewhere"`
	Strikes   []strike          `json:"strikes"`
}

// found is what speaks against the verdict, or for a closer look.
type found struct {
	Problems []string `json:"problems"`
	// Left is what must not be there after the drain: open transactions, staged files.
	Left   []string `json:"left_behind"`
	Alarms []string `json:"alarms"`
	Short  []string `json:"too_few"`
	// Sudden are ends of the pipeline's process that nobody had asked for.
	Sudden []string `json:"unexpected_ends"`
	// Torn counts the torn commits that the pipeline's log shows to have been repaired.
	Torn int `json:"torn_commits"`
	// ByResolver counts the branches that resolvers have ended.
	ByResolver int `json:"by_resolver"`
	// Corners: a commit was torn and records were lost on purpose as well, and both ended as they should.
	Corners bool `json:"corners"`
}

// times are some durations, in milliseconds.
type times struct {
	N   int   `json:"n"`
	P50 int64 `json:"p50_ms"`
	P99 int64 `json:"p99_ms"`
	Max int64 `json:"max_ms"`
}

func timesOf(all []time.Duration) times {
	if len(all) == 0 {
		return times{}
	}
	slices.Sort(all)
	at := func(q float64) int64 { return all[int(math.Ceil(q*float64(len(all))))-1].Milliseconds() }
	return times{len(all), at(0.5), at(0.99), all[len(all)-1].Milliseconds()}
}

// quotas are what a run must have done, by its length.
type quotas struct {
	pauses, brokers, leaders, leaderStops, strikes, kills, epochs int
	// moments is how many kills must fall on an open round, and how many on an unfinished branch.
	moments              int
	databases, resolvers int
}

// again is what is done in a round after the first, where so many kills of the broker are left.
func (q quotas) again(brokers int) quotas {
	if q.databases > 0 {
		return quotas{brokers: min(1, brokers), leaders: 1, strikes: 5, databases: 2, resolvers: 1}
	}
	return quotas{brokers: min(1, brokers), leaders: 1, leaderStops: 1, strikes: 2}
}

func (c Config) quotas() quotas {
	scaled := func(perMinute float64, least, most int) int {
		return min(most, max(least, int(math.Round(perMinute*c.Minutes))))
	}
	if c.Sinks == allSinks {
		// In a quarter of an hour: 200 kills, 20 of them with a round open and 20 with a branch unfinished.
		return quotas{
			brokers:   scaled(0.6, 1, maxBrokers),
			leaders:   scaled(1.2, 1, math.MaxInt),
			strikes:   scaled(4, 4, math.MaxInt),
			databases: scaled(2.4, 2, math.MaxInt),
			resolvers: scaled(1.2, 3, math.MaxInt),
			kills:     scaled(200.0/15, 10, math.MaxInt),
			moments:   scaled(20.0/15, 1, math.MaxInt),
			epochs:    scaled(60, 60, math.MaxInt),
		}
	}
	return quotas{
		pauses:      scaled(0.2, 1, math.MaxInt),
		brokers:     scaled(0.6, 1, 10),
		leaders:     scaled(0.4, 1, math.MaxInt),
		leaderStops: scaled(0.3, 1, math.MaxInt),
		strikes:     scaled(0.6, 2, math.MaxInt),
		kills:       scaled(4, 4, math.MaxInt),
		epochs:      scaled(60, 60, math.MaxInt),
		moments:     scaled(0.3, 1, math.MaxInt),
	}
}

// judge classifies every strike by the timeline.
func (r *Report) judge(t *timeline, strikes []strike) {
	r.Kills, r.Moments, r.All = map[string]int{}, map[string]int{}, map[string]int{}
	slices.SortFunc(strikes, func(a, b strike) int { return a.At.Compare(b.At) })
	var last, lastCounted time.Time
	for i := range strikes {
		s := &strikes[i]
		s.moment = t.at(s.At)
		s.EpochsBefore = t.decidedIn(last, s.At)
		if next, ok := t.firstDecidedAfter(s.At); ok {
			s.NextDecisionMS = next.Sub(s.At).Milliseconds()
		}
		last = s.At
		r.All[s.What]++
		if !s.kill() || t.decidedIn(lastCounted, s.At) == 0 {
			continue
		}
		s.Counted, lastCounted = true, s.At
		r.Kills[s.What]++
		for name, is := range map[string]bool{roundOpen: s.RoundOpen, unfinished: s.Unfinished, "restoring": s.Restoring} {
			if is {
				r.Moments[name]++
			}
		}
		if !s.RoundOpen && !s.Unfinished && !s.Restoring {
			r.Moments["between epochs, or preparing"]++
		}
	}
	r.Strikes = strikes
	r.Epochs, r.Generations, r.Alarms = t.totals()
	if r.IDs > idsPerGeneration*r.Generations {
		r.Problems = append(r.Problems, fmt.Sprintf("the broker knows %d transactional ids of %d generations: they grow with something else than restarts", r.IDs, r.Generations))
	}
	for _, e := range t.open() {
		r.Left = append(r.Left, "epoch "+e+" was decided and is not proven")
	}
}

// counted is how many kills count.
func (r *Report) counted() (total int) {
	for _, n := range r.Kills {
		total += n
	}
	return total
}

func (r *Report) tooFew(q quotas) (short []string) {
	for _, x := range []struct {
		what      string
		have, min int
	}{
		{"kills that count", r.counted(), q.kills},
		{"kills of the broker", r.All[killBroker], q.brokers},
		{"kills of the leader", r.All[killLeader], q.leaders},
		{"stops of the leader", r.All[stopLeader], q.leaderStops},
		{"stops of the pipeline", r.All[stopPipeline], q.pauses},
		{"kills of PostgreSQL", r.All[killDatabase], q.databases},
		{"kills of the resolver", r.All[killResolver], q.resolvers},
		{"branches that a resolver has ended", r.ByResolver, min(1, q.resolvers)},
		{"kills with a round open", r.Moments[roundOpen], q.moments},
		{"kills with a branch unfinished", r.Moments[unfinished], q.moments},
		{"decided epochs", r.Epochs, q.epochs},
	} {
		if x.have < x.min {
			short = append(short, fmt.Sprintf("%s: %d, wanted %d", x.what, x.have, x.min))
		}
	}
	for _, p := range r.Missing {
		short = append(short, "never crashed at "+p)
	}
	return short
}

// conclude sets the verdict.
func (r *Report) conclude() {
	switch {
	case len(r.Problems)+len(r.Left)+len(r.Alarms) > 0:
		r.Verdict = broken
	case len(r.Short) > 0:
		r.Verdict = incomplete
	default:
		r.Verdict = clean
	}
}

// encode writes the report as JSON.
func (r *Report) encode(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// save writes it into a file.
func (r *Report) save(name string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("save the report: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.encode(f)
}

// write shows the report to a person.
func (r *Report) write(w io.Writer) {
	if r.Verdict == "" {
		return // it did not come that far
	}
	fmt.Fprintf(w, "\n%.1f minutes, seed %d, Kafka %s, sinks %s", r.Minutes, r.Seed, r.Kafka, r.Sinks)
	if r.Mode != "" {
		fmt.Fprintf(w, ", PostgreSQL %s in mode %s, %d branches ended by a resolver", services.PostgresCurrent, r.Mode, r.ByResolver)
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "  %d orders, %d epochs decided, %d generations, %d runs of the pipeline, %d transactional ids\n",
		r.Records, r.Epochs, r.Generations, r.Runs, r.IDs)
	fmt.Fprintf(w, "  kills that count  %s\n", counts(r.Kills))
	fmt.Fprintf(w, "  by moment         %s\n", counts(r.Moments))
	fmt.Fprintf(w, "  all strikes       %s\n", counts(r.All))
	fmt.Fprintf(w, "  torn commits      %d found and mended\n", r.Torn)
	if r.Corners {
		fmt.Fprintln(w, "  corners           one commit torn on purpose and mended, one loss of records proven and told")
	}
	fmt.Fprintf(w, "  fault points      %d crashed at, %d missing, %d left out\n", len(r.Points), len(r.Missing), len(r.Elsewhere))
	for _, row := range []struct {
		name string
		t    times
	}{
		{"kill to decision", r.Decisions},
		{"start to decision", r.Restarts.Decision},
		{"start to attached", r.Restarts.Attach},
		{"attached to restored", r.Restarts.Restore},
		{"restored to started", r.Restarts.Start},
	} {
		fmt.Fprintf(w, "  %-21s p50 %d ms, p99 %d ms, longest %d ms (%d)\n", row.name, row.t.P50, row.t.P99, row.t.Max, row.t.N)
	}
	byReason := map[string][]string{}
	for _, p := range slices.Sorted(maps.Keys(r.Elsewhere)) {
		byReason[r.Elsewhere[p]] = append(byReason[r.Elsewhere[p]], p)
	}
	for _, why := range slices.Sorted(maps.Keys(byReason)) {
		fmt.Fprintf(w, "  left out: %s: %s\n", why, strings.Join(byReason[why], ", "))
	}
	for _, list := range []struct {
		name string
		rows []string
	}{
		{"problem", r.Problems}, {"left behind", r.Left}, {"alarm", r.Alarms}, {"too few", r.Short}, {"unexpected end", r.Sudden},
	} {
		for _, row := range list.rows {
			fmt.Fprintf(w, "  %s: %s\n", list.name, row)
		}
	}
	if r.Dir != "" {
		fmt.Fprintf(w, "  logs and data are kept in %s\n", r.Dir)
	}
	fmt.Fprintf(w, "VERDICT %s\n", r.Verdict)
}

func counts(m map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
