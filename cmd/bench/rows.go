package bench

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/unisink/unisink/cmd/bench/stats"
	"github.com/unisink/unisink/cmd/bench/worker"
)

// PipelineRow is what a job costs at one length of epochs: medians over the passes.
type PipelineRow struct {
	Job           string  `json:"job"`
	EpochMS       int64   `json:"epoch_ms"` // 0: no epochs
	Transactional bool    `json:"transactional"`
	RecordsPerS   float64 `json:"records_per_s"`
	CPUPerMillion float64 `json:"cpu_s_per_million"`
	PeakRSSMB     float64 `json:"peak_rss_mb"` // MiB
	// ToPlain and ToLoop are the CPU beside that of the same job without transactions, and of the loop by
	// hand. 0 if that was not measured.
	ToPlain float64 `json:"cpu_to_plain"`
	ToLoop  float64 `json:"cpu_to_loop"`
	// Visible: of a record, from when it was made until a reader of committed records has it; of a
	// window, from its end. -1 if that was not measured.
	VisibleP50 float64  `json:"visible_p50_ms"`
	VisibleP99 float64  `json:"visible_p99_ms"`
	Passes     int      `json:"passes"`
	Budgets    []Budget `json:"budgets,omitempty"`
}

// Budget is one figure beside the most that it may be.
type Budget struct {
	Of    string  `json:"of"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	OK    bool    `json:"ok"`
}

func budget(of string, value, limit float64) Budget { return Budget{of, value, limit, value <= limit} }

// Verdict is "ok", or what is over; "-" of no budgets.
func Verdict(budgets []Budget) string {
	if len(budgets) == 0 {
		return "-"
	}
	var over []string
	for _, b := range budgets {
		if !b.OK {
			over = append(over, fmt.Sprintf("%s %.4g > %.4g", b.Of, b.Value, b.Limit))
		}
	}
	if len(over) == 0 {
		return "ok"
	}
	return "over: " + strings.Join(over, ", ")
}

// rows are the medians, of what was measured at least once.
func (m *measurement) rows() []PipelineRow {
	cpu := func(k kind) float64 {
		if f := m.got[k]; f != nil && len(f.cpu) > 0 {
			return stats.Median(f.cpu)
		}
		return 0
	}
	beside := func(v, other float64) float64 {
		if other == 0 {
			return 0
		}
		return stats.Rounded(v/other, 3)
	}
	var out []PipelineRow
	for _, k := range m.c.kinds() {
		f := m.got[k]
		if f == nil || len(f.cpu) == 0 {
			continue
		}
		r := PipelineRow{
			Job: k.job, EpochMS: k.epoch.Milliseconds(), Transactional: k.epoch != 0, Passes: len(f.cpu),
			RecordsPerS: math.Round(stats.Median(f.perS)), CPUPerMillion: stats.Rounded(stats.Median(f.cpu), 3), PeakRSSMB: stats.Rounded(stats.Median(f.rss), 1),
			VisibleP50: -1, VisibleP99: -1,
		}
		if k.epoch != 0 {
			r.ToPlain = beside(cpu(k), cpu(kind{k.job, 0}))
		}
		if k.job != worker.Loop && k.job != worker.Pass {
			r.ToLoop = beside(cpu(k), cpu(kind{worker.Loop, 0}))
		}
		if len(f.p50) > 0 {
			r.VisibleP50, r.VisibleP99 = stats.Rounded(stats.Median(f.p50), 1), stats.Rounded(stats.Median(f.p99), 1)
		}
		r.Budgets = budgetsOf(k, r)
		out = append(out, r)
	}
	return out
}

// The budgets of a record. Cost and memory are those of windows at epochs of a second; the delay is that of
// the pass-through, since windows end each second, and with them the epochs.
const (
	mostCPUTyped = 0.9
	mostCPUYAML  = 1.2
	mostRSS      = 120  // MiB
	mostToPlain  = 1.05 // at epochs of a second
)

func budgetsOf(k kind, r PipelineRow) []Budget {
	var out []Budget
	second := k.epoch == time.Second
	if second && (k.job == worker.Window || k.job == worker.YAML) {
		most := mostCPUTyped
		if k.job == worker.YAML {
			most = mostCPUYAML
		}
		out = append(out, budget("CPU", r.CPUPerMillion, most), budget("MiB", r.PeakRSSMB, mostRSS))
	}
	if second && r.ToPlain > 0 {
		out = append(out, budget("to plain", r.ToPlain, mostToPlain))
	}
	if k.job == worker.Pass && k.epoch != 0 && r.VisibleP50 >= 0 {
		interval := stats.Milliseconds(k.epoch)
		out = append(out, budget("p50", r.VisibleP50, interval/2+10), budget("p99", r.VisibleP99, interval+30))
	}
	return out
}
