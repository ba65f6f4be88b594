package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/cmd/bench/stats"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// clockedSource notes when it was first asked: before that a process only starts.
type clockedSource struct {
	*kafka.Source
	first atomic.Int64 // Unix nanoseconds

	mu   sync.Mutex // guards ages
	ages []float64  // milliseconds
}

// Poll notes the time of its first call, and how old records are that come.
func (s *clockedSource) Poll(ctx context.Context) (*stream.Batch, error) {
	if s.first.Load() == 0 {
		s.first.Store(time.Now().UnixNano())
	}
	b, err := s.Source.Poll(ctx)
	if err == nil && b != nil && len(b.Records) > 0 {
		age := stats.Milliseconds(time.Since(time.UnixMilli(b.Records[0].Time)))
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.ages) < keptPhases {
			s.ages = append(s.ages, age)
		}
	}
	return b, err
}

// seen are the ages.
func (s *clockedSource) seen() []float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ages)
}

// Close ends the connections of source and sink, which a process that ends may leave to the system.
func (w *Worker) Close() error { return errors.Join(w.source.Close(), w.sink.Close()) }

// Report is what the measured process says when it has ended well.
type Report struct {
	// FirstPoll and Ended are Unix nanoseconds: the source is asked, and everything is visible.
	FirstPoll int64  `json:"first_poll"`
	Ended     int64  `json:"ended"`
	Records   uint64 `json:"records"`
	// PeakRSS is the most bytes it had resident; 0 where the system does not tell.
	PeakRSS int64  `json:"peak_rss"`
	Phases  Phases `json:"phases"`
}

// WriteReport writes the report of a run that has just ended.
func (w *Worker) WriteReport(file string) error {
	r := Report{
		FirstPoll: w.source.first.Load(), Ended: time.Now().UnixNano(), Records: w.taken, PeakRSS: PeakRSS(os.Getpid()),
		Phases: w.sink.phases(w.source.seen()),
	}
	if w.Pipeline != nil {
		r.Records = w.Pipeline.Counters().Records
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return os.WriteFile(file, text, 0o600)
}

// PeakRSS is the most bytes that a living process had resident; 0 where the system does not tell. What wait4 says of
// a child would count what its parent had resident when it was started.
func PeakRSS(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0 // a system that has none
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "VmHWM:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// AwaitEnd returns when the source has ended and every window has fired, or with ctx.
func (w *Worker) AwaitEnd(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !w.Pipeline.Status().Ended {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// RunPlain runs the job without coordinator, epochs and transactions, its results going to a plain
// producer, until its source ends or ctx does, neither of which is an error.
func (w *Worker) RunPlain(ctx context.Context) (err error) {
	out, err := kafka.NewPlainWriter(w.cfg.sink(), -1)
	if err != nil {
		return err
	}
	defer out.Close()
	// What was read is written out, also after the signal to end.
	work := context.WithoutCancel(ctx)
	if w.Pipeline == nil {
		return errors.Join(w.runLoop(ctx, out), out.Flush(work))
	}
	t := w.Pipeline.Task(0, w.cfg.Logger)
	if err := t.Restore(work, participant.Restore{Generation: 1, Fresh: true}); err != nil {
		return err
	}
	run := &plainRun{out: out, ended: make(chan struct{}), failed: make(chan error, 1), done: make(chan struct{})}
	if err := t.Start(work, participant.Start{Generation: 1, MaxPending: 1, InlineLimit: 64 << 10, Run: run}); err != nil {
		return err
	}
	select {
	case <-run.ended:
	case <-ctx.Done():
	case err = <-run.failed:
	}
	close(run.done)
	if herr := t.Halted(work, "the end"); err == nil {
		err = herr
	}
	if err == nil {
		err = out.Flush(work)
	}
	return err
}

// plainRun is the pipeline's Run where there is nobody to vote for.
type plainRun struct {
	out    *kafka.PlainWriter
	once   sync.Once
	ended  chan struct{}
	failed chan error
	done   chan struct{}
}

func (r *plainRun) Branch(context.Context, string) (participant.Branch, error) {
	return plainBranch{r.out}, nil
}

func (r *plainRun) Vote(context.Context, participant.Barrier, participant.Contribution) error {
	return fmt.Errorf("%w: nobody ordered a barrier", participant.ErrBug)
}

func (r *plainRun) HasWork() {}

func (r *plainRun) Progress(_ int64, ended bool) {
	if ended {
		r.once.Do(func() { close(r.ended) })
	}
}

func (r *plainRun) Fail(err error) {
	select {
	case r.failed <- err:
	default:
	}
}

func (r *plainRun) Done() <-chan struct{} { return r.done }

func (r *plainRun) Retired() <-chan []string { return nil }

// plainBranch writes what a branch would, for good.
type plainBranch struct{ *kafka.PlainWriter }

func (plainBranch) Prepare(context.Context) (participant.Vote, error) {
	return participant.Vote{}, fmt.Errorf("%w: a plain producer prepares nothing", participant.ErrBug)
}

func (plainBranch) Discard(context.Context) error { return nil }
