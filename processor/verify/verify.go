package verify

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/unisink/unisink/processor/stream"
)

// SourceReader reads a pipeline's source again.
type SourceReader interface {
	// Read calls f with every record of every split from the pipeline's beginning up to, and not
	// including, the position of its split; splits without a position are not read. Records of one
	// split come in order. The record is f's until it returns.
	Read(ctx context.Context, to []stream.Position, f func(split stream.Split, r *stream.Record) error) error
}

// OutputReader reads what readers of a sink can see.
type OutputReader interface {
	// Read calls f with every committed record up to the cut; those of one Part in the order in which
	// they stand there.
	Read(ctx context.Context, f func(Output) error) error
}

// Output is one committed record as it stands in a sink. Its slices are the caller's until f returns.
type Output struct {
	Key, Value []byte
	Headers    []stream.Header
	Time       int64 // Unix milliseconds; 0: the sink does not keep it
	// Generation and N are the epoch that wrote it; zero: the sink does not tell.
	Generation, N uint64
	// Part is what is in order in itself: a partition, a directory.
	Part string
	// Place says where it stands, for people: "totals/2 offset 17".
	Place string
}

// Plan says what a pipeline does, in plain functions.
type Plan struct {
	Window   Window
	Disorder time.Duration
	// Idle: silent splits may be left out of the watermark.
	Idle bool
	// Folds are the aggregates of the window.
	Folds []Fold
	// Read says what the pipeline makes of a record. An error: the record is bad. One that is late is late
	// though an aggregate could not take it: a value for which that is so is [Refused], and no error.
	Read func(r *stream.Record) (Seen, error)
	// OnBad says what became of bad records.
	OnBad OnBad
}

// Seen is what a pipeline makes of one record before its window.
type Seen struct {
	// Keep: it goes on to the window or the sinks; else it is filtered out.
	Keep bool
	// Timed: the event time is known and moves the watermark, also when the record is filtered out.
	Timed bool
	At    int64 // event time, Unix milliseconds
	Key   string
	// Values are what the folds take, by their index: nil, bool, int64, float64, *big.Rat, string or
	// []byte, [Absent] or [Refused].
	Values []any
}

// OnBad says what becomes of records that cannot be read, mapped, keyed or aggregated.
type OnBad string

// The ways to treat bad records.
const (
	BadFails   OnBad = "fail"
	BadSkipped OnBad = "skip"
	BadKept    OnBad = "dead_letter"
)

// WindowKind is how windows are laid over event time.
type WindowKind string

// The kinds of windows.
const (
	NoWindow WindowKind = "none" // records pass through
	Tumbling WindowKind = "tumbling"
	Sliding  WindowKind = "sliding"
	Session  WindowKind = "session"
)

// Window of a pipeline.
type Window struct {
	Kind WindowKind
	// Size of tumbling and sliding windows, Every of sliding ones, Gap of sessions.
	Size, Every, Gap time.Duration
	// Lateness: for how long after its end a window takes late records and sends its results again.
	Lateness time.Duration
}

// Target is a sink of a window's results.
type Target struct {
	Name   string
	Reader OutputReader
	// Find reads whose result an output is. An error: it is none.
	Find func(o *Output) (Found, error)
}

// Found is a result as it stands in a sink.
type Found struct {
	Key string
	// Start and End of the window, Unix milliseconds; at least one is known.
	Start, End       int64
	NoStart, NoEnd   bool
	Update, NoUpdate bool // Update is what it says; NoUpdate: it does not say
	// Values by index of Folds; those that are not there are not compared.
	Values map[int]any
	// Derived compares what was computed from the aggregates, given by index of Folds, and returns how
	// it differs, or "". Nil: nothing was.
	Derived func(key string, start, end int64, values []any) string
	// Needs are the folds that Derived asks for. Where one has no one right value, Derived is not asked.
	Needs []int
}

// Copies is a sink that holds records of the source: those that passed through, late ones or dead letters.
type Copies struct {
	Name   string
	Reader OutputReader
	// Key, Headers and Time: the sink keeps them beside the value.
	Key, Headers, Time bool
	// Stamps: the sink gives a record without a time the one at which it is written.
	Stamps bool
	// Want is what must stand in the sink for a record; nil: the record as it is. It may share its slices.
	Want func(r *stream.Record) (stream.Record, error)
	// Form brings a value into the form in which values are compared; nil: as they are.
	Form func(value []byte) []byte
}

// Job is one verification.
type Job struct {
	Plan   Plan
	Source SourceReader
	// Results are the sinks of a window, Passed those of a pipeline without one.
	Results []Target
	Passed  []Copies
	// Late and Dead are the outputs for late records and dead letters; nil: there is none.
	Late, Dead *Copies
	Cut        Cut
	// Doubts are reasons why something cannot be known that are clear before anything is read.
	Doubts []Case
	// Progress is told, now and then and from the goroutine of Run, what is being read and how many
	// records of it there were so far; nil: nobody asks.
	Progress func(what string, records int)
}

// Cut is up to where to judge: the pipeline's last proven epoch.
type Cut struct {
	// Positions of every split of the source, with offset 0 for one that never had a record: it holds
	// every window back, and without it windows look missing that were right not to fire.
	Positions []stream.Position
	// Newest is how far the newest decided epoch had read after the outputs' extent was fixed, for a
	// pipeline that goes on meanwhile: windows that fired between Positions and Newest may be there,
	// and are judged if they are. Nil: nothing went on.
	Newest []stream.Position
	// Proven is the epoch of Positions, and Decided that of Newest. Outputs that tell their epoch are
	// judged up to Proven; one that is newer than Decided must not be there. Zero: not known.
	Proven, Decided Epoch
	// Rewinds of the pipeline, oldest first: outputs of epochs that Proven does not build on are left out. Forgotten:
	// there may have been older ones.
	Rewinds   []Rewound
	Forgotten bool
	// Final: the epoch ended a stop or a drain, and nothing went on since. Which of the two is seen in
	// the sinks: if one holds a window that the watermark had not reached, it was a drain, and then
	// all must hold all. (A drain that lost every such window in every sink looks like a stop; who
	// knows that it was a drain says Drained.)
	Final bool
	// Drained: everything has fired, because the epoch drained the pipeline or the source has ended. (What
	// an earlier drain fired, and the pipeline then went on behind, is not known here: records that
	// came late for it look missing.)
	Drained bool
	// Behind: the source had ended before, and everything fired; then the pipeline went on. What came
	// since may have been late for what had fired, whatever its split's watermark says.
	Behind bool
	// Ended splits had no more records and hold no window back.
	Ended []stream.Split
}

// Epoch of a scope; zero: not known.
type Epoch struct{ Generation, N uint64 }

func (e Epoch) known() bool { return e.Generation != 0 }

func (e Epoch) after(o Epoch) bool {
	return e.Generation > o.Generation || e.Generation == o.Generation && e.N > o.N
}

func (e Epoch) String() string { return fmt.Sprintf("%d.%d", e.Generation, e.N) }

// Run recomputes and compares. An error says that something could not be read, or that the job makes no
// sense; the comparison's outcome is in the report.
func (j *Job) Run(ctx context.Context) (Report, error) {
	if err := j.check(); err != nil {
		return Report{}, fmt.Errorf("verify: %w", err)
	}
	e := newEvaluator(j)
	e.report.Undeterminable = append(e.report.Undeterminable, j.Doubts...)
	if err := e.readCopies(ctx); err != nil {
		return Report{}, fmt.Errorf("verify: %w", err)
	}
	to := j.Cut.Positions
	if at := j.Cut.newest(); at != nil {
		to = at
	}
	tick := e.ticker("the source")
	err := j.Source.Read(ctx, to, func(split stream.Split, r *stream.Record) error {
		tick()
		return e.record(split, r)
	})
	if err != nil {
		return Report{}, fmt.Errorf("verify: read the source: %w", err)
	}
	e.close(j.Cut.Drained)
	e.settleCopies()
	c := newComparison(e)
	for i := range j.Results {
		if err := c.read(ctx, &j.Results[i]); err != nil {
			return Report{}, fmt.Errorf("verify: read sink %q: %w", j.Results[i].Name, err)
		}
	}
	switch {
	case c.drained():
		e.close(true)
	case j.Cut.Behind:
		e.newest = math.MaxInt64 // everything may have fired at the end before
	}
	return c.finish(), nil
}

const tickEvery = 10_000

// ticker returns a function that counts records and tells of them now and then.
func (e *evaluator) ticker(what string) func() {
	n := 0
	return func() {
		if n++; n%tickEvery == 0 && e.job.Progress != nil {
			e.job.Progress(what, n)
		}
	}
}
