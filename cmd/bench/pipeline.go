package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/unisink/unisink/cmd/bench/stats"
	"github.com/unisink/unisink/cmd/bench/worker"
)

// Settings of what is measured.
type Settings struct {
	Partitions  int    // of every topic
	Compression string // of input and output; see kafka.Compression
	// Profiles is a directory for profiles of each measured process, of its CPU and its memory; empty: none.
	Profiles string
}

// PipelineConfig says what Pipeline measures.
type PipelineConfig struct {
	Lab      LabConfig
	Settings Settings
	Jobs     []string
	// Epochs between barriers; 0 is the same pipeline without transactions. The loop has no epochs.
	Epochs  []time.Duration
	Records int // of a pass
	Passes  int
	// Latency is how long a pass's own run at Rate records per second is watched; 0: not at all.
	Latency time.Duration
	Rate    int
	// Within is the time after which nothing more is begun; 0: no such time.
	Within time.Duration
}

// Validate reports every mistake at once.
func (c PipelineConfig) Validate() error {
	var errs []error
	if c.Records < 1 || c.Records > maxRecords {
		errs = append(errs, fmt.Errorf("%d records: give 1 to %d", c.Records, maxRecords))
	}
	if c.Passes < 1 || c.Rate < 1 || c.Settings.Partitions < 1 || c.Within < 0 {
		errs = append(errs, errors.New("passes, rate and partitions must be 1 or more, and the time not negative"))
	}
	errs = append(errs, c.Lab.validate())
	for _, j := range c.Jobs {
		if !slices.Contains(worker.Jobs(), j) {
			errs = append(errs, fmt.Errorf("no job %q; there is %v", j, worker.Jobs()))
		}
	}
	for _, e := range c.Epochs {
		if e != 0 && e < 20*time.Millisecond {
			errs = append(errs, fmt.Errorf("an epoch of %s is too short; at least 20ms, or 0 for none", e))
		}
	}
	if c.Latency != 0 && c.Latency < worker.WindowSize {
		errs = append(errs, fmt.Errorf("%s to watch the delay are too short for a window of %s to end", c.Latency, worker.WindowSize))
	}
	if len(c.kinds()) == 0 {
		errs = append(errs, errors.New("nothing is left to measure"))
	}
	return errors.Join(errs...)
}

// kind is a job at a length of epochs.
type kind struct {
	job   string
	epoch time.Duration
}

func (k kind) String() string {
	if k.epoch == 0 {
		return k.job + "-plain"
	}
	return fmt.Sprintf("%s-%dms", k.job, k.epoch.Milliseconds())
}

// kinds are what each pass measures.
func (c PipelineConfig) kinds() []kind {
	var out []kind
	for _, job := range c.Jobs {
		if job == worker.Loop {
			out = append(out, kind{job, 0})
			continue
		}
		for _, epoch := range c.Epochs {
			out = append(out, kind{job, epoch})
		}
	}
	return out
}

// figures are those of each pass.
type figures struct {
	perS, cpu, rss, p50, p99 []float64
}

// PipelineResult is what was measured.
type PipelineResult struct {
	Rows []PipelineRow `json:"rows"`
	// CutOff says why there is less than was asked for.
	CutOff string `json:"cut_off,omitempty"`
}

// Pipeline measures every job at every length of epochs, pass by pass, so that all meet the same noise. With an error
// comes what was measured before it.
func Pipeline(ctx context.Context, c PipelineConfig) (PipelineResult, error) {
	if err := c.Validate(); err != nil {
		return PipelineResult{}, err
	}
	m := &measurement{c: c, got: map[kind]*figures{}, began: time.Now()}
	err := inLab(ctx, c.Lab, func(l *lab) error {
		m.lab = l
		if err := m.input(ctx); err != nil {
			return err
		}
		for pass := range c.Passes {
			if err := m.pass(ctx, pass); err != nil {
				return err
			}
		}
		return l.admin.DeleteTopic(ctx, m.inputTopic())
	})
	out := PipelineResult{Rows: m.rows(), CutOff: m.cut}
	if err != nil {
		out.CutOff = "it ended with an error"
	}
	return out, err
}

type measurement struct {
	lab *lab
	c   PipelineConfig
	got map[kind]*figures
	at  func(n int) int64 // event times of the input

	began time.Time
	cut   string // why the rest is left out; empty: it is not
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

// pass measures each kind once, beginning with another one each time.
func (m *measurement) pass(ctx context.Context, pass int) error {
	kinds := m.c.kinds()
	for i := range kinds {
		if m.over(pass) {
			return nil
		}
		if err := m.one(ctx, pass, kinds[(i+pass)%len(kinds)]); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether the time is up. What was begun is finished.
func (m *measurement) over(pass int) bool {
	if m.cut == "" && m.c.Within > 0 && time.Since(m.began) > m.c.Within {
		m.cut = fmt.Sprintf("%s were over in pass %d of %d", m.c.Within, pass+1, m.c.Passes)
		m.lab.say("%s; nothing more is begun", m.cut)
	}
	return m.cut != ""
}

// one measures one kind in one pass.
func (m *measurement) one(ctx context.Context, pass int, k kind) error {
	f := m.got[k]
	if f == nil {
		f = &figures{}
		m.got[k] = f
	}
	t := task{
		Name: m.lab.name(fmt.Sprintf("%s-t%d", k, pass+1)), Job: k.job, From: m.inputTopic(), Epoch: k.epoch, Bounded: true, Settings: m.c.Settings,
	}
	if err := m.throughput(ctx, t, f); err != nil {
		return err
	}
	m.lab.say("%4.0f s, pass %d of %d, %s: %.0f records/s, %.2f CPU-s per million, %.0f MiB", time.Since(m.began).Seconds(), pass+1, m.c.Passes, k,
		last(f.perS), last(f.cpu), last(f.rss))
	if m.c.Latency == 0 || k.job == worker.Loop || k.job == worker.YAML { // what is seen of YAML is seen of the window
		return nil
	}
	t.Name, t.Bounded = m.lab.name(fmt.Sprintf("%s-l%d", k, pass+1)), false
	t.From = t.Name + "-in"
	if err := m.latency(ctx, t, f); err != nil {
		return err
	}
	m.lab.say("%4.0f s, pass %d of %d, %s: visible after %.1f ms (p50), %.1f ms (p99)", time.Since(m.began).Seconds(), pass+1, m.c.Passes, k,
		last(f.p50), last(f.p99))
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
	f.p50, f.p99 = append(f.p50, stats.Quantile(delays, 0.5)), append(f.p99, stats.Quantile(delays, 0.99))
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
