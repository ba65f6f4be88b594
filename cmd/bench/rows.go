package bench

import (
	"math"
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
	VisibleP50 float64        `json:"visible_p50_ms"`
	VisibleP99 float64        `json:"visible_p99_ms"`
	Passes     int            `json:"passes"`
	Budgets    []stats.Budget `json:"budgets,omitempty"`
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

func budgetsOf(k kind, r PipelineRow) []stats.Budget {
	var out []stats.Budget
	second := k.epoch == time.Second
	if second && (k.job == worker.Window || k.job == worker.YAML) {
		most := mostCPUTyped
		if k.job == worker.YAML {
			most = mostCPUYAML
		}
		out = append(out, stats.Beside("CPU", r.CPUPerMillion, most), stats.Beside("MiB", r.PeakRSSMB, mostRSS))
	}
	if second && r.ToPlain > 0 {
		out = append(out, stats.Beside("to plain", r.ToPlain, mostToPlain))
	}
	if k.job == worker.Pass && k.epoch != 0 && r.VisibleP50 >= 0 {
		interval := stats.Milliseconds(k.epoch)
		out = append(out, stats.Beside("p50", r.VisibleP50, interval/2+10), stats.Beside("p99", r.VisibleP99, interval+30))
	}
	return out
}
