package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Settings of what is measured.
type Settings struct {
	Partitions  int    // of every topic
	Compression string // of input and output; see kafka.Compression
	// Profiles is a directory for a CPU profile of each measured process; empty: none.
	Profiles string
}

// PipelineConfig says what Pipeline measures.
type PipelineConfig struct {
	Lab      LabConfig
	Settings Settings
	Jobs     []string
	// Epochs between barriers; 0 is the same pipeline without transactions.
	Epochs  []time.Duration
	Records int // of a pass
	Passes  int
	// Latency is how long a pass's own run at Rate records per second is watched; 0: not at all.
	Latency time.Duration
	Rate    int
}

// Validate reports every mistake at once.
func (c PipelineConfig) Validate() error {
	var errs []error
	if c.Records < 1 || c.Records > maxRecords {
		errs = append(errs, fmt.Errorf("%d records: give 1 to %d", c.Records, maxRecords))
	}
	if c.Passes < 1 || c.Rate < 1 || c.Settings.Partitions < 1 {
		errs = append(errs, errors.New("passes, rate and partitions must be 1 or more"))
	}
	if c.Lab.Nodes != 1 && c.Lab.Nodes != 3 {
		errs = append(errs, fmt.Errorf("%d nodes: give 1 or 3", c.Lab.Nodes))
	}
	for _, j := range c.Jobs {
		if j != JobPass && j != JobWindow {
			errs = append(errs, fmt.Errorf("no job %q; there is %v", j, Jobs()))
		}
	}
	for _, e := range c.Epochs {
		if e != 0 && e < 20*time.Millisecond {
			errs = append(errs, fmt.Errorf("an epoch of %s is too short; at least 20ms, or 0 for none", e))
		}
	}
	if c.Latency != 0 && c.Latency < windowSize {
		errs = append(errs, fmt.Errorf("%s to watch the delay are too short for a window of %s to end", c.Latency, windowSize))
	}
	if len(c.Jobs) == 0 || len(c.Epochs) == 0 {
		errs = append(errs, errors.New("nothing is left to measure"))
	}
	return errors.Join(errs...)
}

// PipelineRow is what a job costs at one length of epochs: medians over the passes.
type PipelineRow struct {
	Job           string  `json:"job"`
	EpochMS       int64   `json:"epoch_ms"` // 0: no epochs
	Transactional bool    `json:"transactional"`
	RecordsPerS   float64 `json:"records_per_s"`
	CPUPerMillion float64 `json:"cpu_s_per_million"`
	PeakRSSMB     float64 `json:"peak_rss_mb"` // MiB
	// Visible: of a record, from when it was made until a reader of committed records has it; of a
	// window, from its end. -1 if that was not measured.
	VisibleP50 float64 `json:"visible_p50_ms"`
	VisibleP99 float64 `json:"visible_p99_ms"`
	Passes     int     `json:"passes"`
}

// figures are those of each pass.
type figures struct {
	perS, cpu, rss, p50, p99 []float64
}

// Pipeline measures every job at every length of epochs, pass by pass, so that all meet the same noise.
func Pipeline(ctx context.Context, c PipelineConfig) (rows []PipelineRow, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	err = inLab(ctx, c.Lab, func(l *lab) error {
		m := &measurement{lab: l, c: c, got: map[string]*figures{}}
		if err := m.input(ctx); err != nil {
			return err
		}
		for pass := range c.Passes {
			if err := m.pass(ctx, pass); err != nil {
				return err
			}
		}
		rows = m.rows()
		return l.admin.DeleteTopic(ctx, m.inputTopic())
	})
	return rows, err
}

type measurement struct {
	lab *lab
	c   PipelineConfig
	got map[string]*figures // by kind
	at  func(n int) int64   // event times of the input
}

// inputTopic is read by every pass.
func (m *measurement) inputTopic() string { return m.lab.name("bench-input") }

// input writes the records that every pass reads.
func (m *measurement) input(ctx context.Context) error {
	m.lab.say("writing %d records of %d bytes", m.c.Records, recordBytes)
	if err := m.lab.topic(ctx, m.inputTopic(), m.c.Settings.Partitions); err != nil {
		return err
	}
	w, err := load(m.lab.brokers, m.inputTopic(), m.c.Settings.Compression, -1)
	if err != nil {
		return err
	}
	defer w.Close()
	m.at = eventTimes(m.c.Records, time.Now())
	return fill(ctx, w, m.c.Records, m.at)
}

// kind names a job at a length of epochs.
func kind(job string, epoch time.Duration) string {
	if epoch == 0 {
		return job + "-plain"
	}
	return fmt.Sprintf("%s-%dms", job, epoch.Milliseconds())
}

// pass measures each kind once.
func (m *measurement) pass(ctx context.Context, pass int) error {
	for _, job := range m.c.Jobs {
		for i := range m.c.Epochs {
			epoch := m.c.Epochs[(i+pass)%len(m.c.Epochs)] // none is always the first
			f := m.got[kind(job, epoch)]
			if f == nil {
				f = &figures{}
				m.got[kind(job, epoch)] = f
			}
			t := task{
				Name: m.lab.name(fmt.Sprintf("%s-t%d", kind(job, epoch), pass+1)), Job: job, From: m.inputTopic(), Epoch: epoch, Bounded: true, Settings: m.c.Settings,
			}
			if err := m.throughput(ctx, t, f); err != nil {
				return err
			}
			m.lab.say("pass %d of %d, %s: %.0f records/s, %.2f CPU-s per million, %.0f MiB", pass+1, m.c.Passes, kind(job, epoch),
				last(f.perS), last(f.cpu), last(f.rss))
			if m.c.Latency == 0 {
				continue
			}
			t.Name, t.Bounded = m.lab.name(fmt.Sprintf("%s-l%d", kind(job, epoch), pass+1)), false
			t.From = t.Name + "-in"
			if err := m.latency(ctx, t, f); err != nil {
				return err
			}
			m.lab.say("pass %d of %d, %s: visible after %.1f ms (p50), %.1f ms (p99)", pass+1, m.c.Passes, kind(job, epoch), last(f.p50), last(f.p99))
		}
	}
	return nil
}

func last(v []float64) float64 { return v[len(v)-1] }

// throughput takes all of the input through the job, as fast as it goes.
func (m *measurement) throughput(ctx context.Context, t task, f *figures) error {
	if err := m.lab.topic(ctx, t.Name, t.Partitions); err != nil {
		return err
	}
	p, err := m.lab.worker(t, "")
	if err != nil {
		return err
	}
	r, err := m.lab.ended(ctx, t, p)
	if err != nil {
		return err
	}
	if r.Records != uint64(m.c.Records) {
		return fmt.Errorf("the pipeline %s read %d records of %d", t.Name, r.Records, m.c.Records)
	}
	if err := check(ctx, m.lab.admin, t.Job, t.Name, m.c.Records, m.at(0)); err != nil {
		return err
	}
	n := float64(m.c.Records)
	f.perS = append(f.perS, n/time.Duration(r.Ended-r.FirstPoll).Seconds())
	f.cpu = append(f.cpu, p.CPU().Seconds()/n*1e6)
	f.rss = append(f.rss, float64(r.PeakRSS)/(1<<20))
	return m.lab.admin.DeleteTopic(ctx, t.Name)
}

const (
	// warmUp after the first record came out is not counted.
	warmUp = 2 * time.Second
	// visibleWait bounds how long what was written may take to come out.
	visibleWait = 30 * time.Second
)

// latency writes at a steady rate and watches what becomes visible when.
func (m *measurement) latency(ctx context.Context, t task, f *figures) (err error) {
	for _, topic := range []string{t.From, t.Name} {
		if err := m.lab.topic(ctx, topic, t.Partitions); err != nil {
			return err
		}
	}
	p, err := m.lab.worker(t, "")
	if err != nil {
		return err
	}
	delays, err := m.observe(ctx, t)
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	f.p50, f.p99 = append(f.p50, quantile(delays, 0.5)), append(f.p99, quantile(delays, 0.99))
	if err := m.lab.stop(ctx, t, p); err != nil {
		return errors.Join(err, p.Kill())
	}
	r, err := m.lab.ended(ctx, t, p)
	if err != nil {
		return err
	}
	if t.Epoch != 0 {
		m.lab.say("%s: %s", t.Name, r.Phases)
	}
	return errors.Join(m.lab.admin.DeleteTopic(ctx, t.From), m.lab.admin.DeleteTopic(ctx, t.Name))
}

// observe writes, and returns the milliseconds that each output took which is counted.
func (m *measurement) observe(ctx context.Context, t task) ([]float64, error) {
	w, err := load(m.lab.brokers, t.From, t.Compression, 0)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	see := newSightings(t.Job, warmUp, m.c.Latency, int(m.c.Latency.Seconds()+30)*m.c.Rate)
	watching, stopWatching := context.WithCancel(ctx)
	dripping, stopDripping := context.WithCancel(ctx)
	var both sync.WaitGroup
	var watched, dripped error
	both.Go(func() { watched = watch(watching, m.lab.brokers, t.Name, see.take); see.over() })
	both.Go(func() { _, dripped = drip(dripping, w, m.c.Rate, see.made); see.over() })
	late := time.NewTimer(warmUp + m.c.Latency + visibleWait)
	defer late.Stop()
	select {
	case <-see.done:
	case <-late.C:
		err = fmt.Errorf("the pipeline %s made too little visible within %s of its start\n%s", t.Name, warmUp+m.c.Latency+visibleWait, m.lab.tail(t.Name))
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	stopDripping()
	stopWatching()
	both.Wait()
	return see.delays, errors.Join(err, watched, dripped)
}

// rows are the medians.
func (m *measurement) rows() []PipelineRow {
	var out []PipelineRow
	for _, job := range m.c.Jobs {
		for _, epoch := range m.c.Epochs {
			f := m.got[kind(job, epoch)]
			r := PipelineRow{
				Job: job, EpochMS: epoch.Milliseconds(), Transactional: epoch != 0, Passes: m.c.Passes,
				RecordsPerS: math.Round(median(f.perS)), CPUPerMillion: rounded(median(f.cpu), 3), PeakRSSMB: rounded(median(f.rss), 1),
				VisibleP50: -1, VisibleP99: -1,
			}
			if len(f.p50) > 0 {
				r.VisibleP50, r.VisibleP99 = rounded(median(f.p50), 1), rounded(median(f.p99), 1)
			}
			out = append(out, r)
		}
	}
	return out
}

func rounded(v float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(v*scale) / scale
}
