package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/unisink/unisink/cmd/bench/stats"
)

// StateRow is what one run took.
type StateRow struct {
	Shape   string `json:"shape"`
	Kills   int    `json:"kills"`
	Keys    int    `json:"keys"`
	Records int    `json:"records"`
	Results int    `json:"results"`
	// Digest is the sum of the hashes of all results: equal results have equal ones, in any order.
	Digest      string     `json:"digest"`
	RecordsPerS float64    `json:"records_per_s"`
	PeakRSSMB   float64    `json:"peak_rss_mb"` // MiB, of the process that had most
	Epochs      EpochTimes `json:"epochs"`
	Store       StoreUse   `json:"store"`
	// Restarts are the seconds from the start of the process to its first decision; RestoredMB is how many MiB of
	// the store the largest restore read.
	Restarts   []float64      `json:"restarts_s,omitempty"`
	RestoredMB float64        `json:"restored_mb,omitempty"`
	Budgets    []stats.Budget `json:"budgets,omitempty"`
}

// EpochTimes are the milliseconds from the barrier to the decision of the epochs that were watched.
type EpochTimes struct {
	Count      int     `json:"count"`
	IntervalMS int64   `json:"interval_ms"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	Max        float64 `json:"max_ms"`
}

// StoreUse is what these epochs wrote to the state's store.
type StoreUse struct {
	WrittenMB      float64 `json:"written_mb"` // MiB
	PerEpochKB     float64 `json:"per_epoch_kb"`
	MostPerEpochKB float64 `json:"most_per_epoch_kb"`
	// FullMB is the whole state, as the store would have it without changes; where it grows and goes, the mean over
	// the epochs that wrote. Share is what an epoch writes of it, and ChangedShare which share of the keys it changes.
	FullMB       float64 `json:"full_mb"`
	Share        float64 `json:"share"`
	ChangedShare float64 `json:"changed_share,omitempty"`
}

const mib = 1 << 20

// row has what both shapes have, of the epochs that were decided between two times.
func (r *stateRun) row(shape string, uses []usage, from, to time.Time) StateRow {
	decided := r.time.between(from, to)
	var ms []float64
	for _, u := range uses {
		for id, at := range u.ordered {
			if done, ok := decided[id]; ok {
				ms = append(ms, float64(done-at)/1000)
			}
		}
	}
	row := StateRow{
		Shape: shape, Kills: len(r.points), Keys: r.c.Keys, PeakRSSMB: stats.Rounded(float64(r.peak)/mib, 1),
		Epochs: EpochTimes{Count: len(decided), IntervalMS: r.c.Epoch.Milliseconds()},
	}
	row.Epochs.P50, row.Epochs.P99 = stats.MiddleAndEnd(ms)
	if len(ms) > 0 {
		row.Epochs.Max = stats.Rounded(slices.Max(ms), 2)
	}
	var sum, most int64
	for _, u := range uses {
		for id, n := range u.put {
			if _, ok := decided[id]; ok {
				sum, most = sum+n, max(most, n)
			}
		}
		row.RestoredMB = max(row.RestoredMB, stats.Rounded(float64(u.got)/mib, 2))
	}
	row.Store.WrittenMB, row.Store.MostPerEpochKB = stats.Rounded(float64(sum)/mib, 2), stats.Rounded(float64(most)/1024, 1)
	if len(decided) > 0 {
		row.Store.PerEpochKB = stats.Rounded(float64(sum)/1024/float64(len(decided)), 1)
	}
	for _, s := range r.restarts {
		row.Restarts = append(row.Restarts, stats.Rounded(s, 2))
	}
	return row
}

// perEntry is how many bytes an entry has in the store, over everything that a process has written.
func (u usage) perEntry() float64 {
	if u.encoded == 0 {
		return 0
	}
	return float64(u.bytes) / float64(u.encoded)
}

// fullOfOrders is the mean of the state over the epochs that wrote. Only the first process knows how much it holds, since
// one that was restored has not made what it was given.
func (row *StateRow) fullOfOrders(uses []usage) {
	u := uses[0]
	var entries int64
	for _, n := range u.entries {
		entries += n
	}
	if len(u.entries) > 0 {
		row.full(u.perEntry() * float64(entries) / float64(len(u.entries)))
	}
}

// fullHeld is the state with all keys.
func (row *StateRow) fullHeld(uses []usage, keys int) { row.full(uses[0].perEntry() * float64(keys)) }

func (row *StateRow) full(bytes float64) {
	row.Store.FullMB = stats.Rounded(bytes/mib, 2)
	if bytes > 0 {
		row.Store.Share = stats.Rounded(row.Store.PerEpochKB*1024/bytes, 4)
	}
}

// changed says which share of the keys an epoch has changed, from what was written meanwhile.
func (row *StateRow) changed(rate int, watched time.Duration, keys int) {
	if row.Epochs.Count > 0 {
		row.Store.ChangedShare = stats.Rounded(float64(rate)*watched.Seconds()/float64(row.Epochs.Count)/float64(keys), 4)
	}
}

const (
	// mostShare is how many times the share of the keys that change an epoch may write of the state: 3 % at 1 %.
	mostShare = 3
	// mostRestart is the longest restart, seconds.
	mostRestart = 5
)

// judge puts the figures beside their budgets.
func (row *StateRow) judge() {
	if row.Store.ChangedShare > 0 {
		row.Budgets = append(row.Budgets, stats.Beside("share", row.Store.Share, mostShare*row.Store.ChangedShare))
	}
	if len(row.Restarts) > 0 {
		row.Budgets = append(row.Budgets, stats.Beside("restart s", slices.Max(row.Restarts), mostRestart))
	}
}

// String is one line for people.
func (row StateRow) String() string {
	return fmt.Sprintf("%.0f records/s, %.0f MiB, %d epochs, decided after %.1f (p99 %.1f) ms, %.1f KiB an epoch = %.2f %% of %.1f MiB",
		row.RecordsPerS, row.PeakRSSMB, row.Epochs.Count, row.Epochs.P50, row.Epochs.P99, row.Store.PerEpochKB, 100*row.Store.Share, row.Store.FullMB)
}
