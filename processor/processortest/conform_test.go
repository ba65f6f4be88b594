package processortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// judged is a testing.TB that keeps a failure to itself.
type judged struct {
	testing.TB
	mu     sync.Mutex // guards the rest
	failed bool
	last   string
	after  []func()
}

func (j *judged) fail(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed, j.last = true, text
}
func (j *judged) Helper()                           {}
func (j *judged) Logf(string, ...any)               {}
func (j *judged) Errorf(format string, args ...any) { j.fail(fmt.Sprintf(format, args...)) }
func (j *judged) Error(args ...any)                 { j.fail(fmt.Sprint(args...)) }

func (j *judged) Fatal(args ...any) {
	j.fail(fmt.Sprint(args...))
	runtime.Goexit()
}

func (j *judged) Fatalf(format string, args ...any) {
	j.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (j *judged) Cleanup(f func()) { j.after = append(j.after, f) }

// judge runs a check and tells whether it turned red, and with which words.
func judge(t *testing.T, check func(t testing.TB) (why string)) (red bool, words string) {
	j := &judged{TB: t}
	var why string
	done := make(chan struct{})
	go func() {
		defer close(done)
		why = check(j)
	}()
	<-done
	for _, f := range slices.Backward(j.after) {
		f()
	}
	if why != "" {
		t.Fatalf("it had nothing to look with: %s", why)
	}
	return j.failed, j.last
}

// script is a source with records in three splits, or one that has ended.
func script(ended bool) (*Source, SourceKit) {
	src := NewSource("in", "0", "1", "2")
	fill := func(from, n int) {
		for i := from; i < from+n; i++ {
			src.Append(fmt.Sprint(i%3), stream.Record{Value: fmt.Appendf(nil, "record %d", i)})
		}
		if ended {
			src.End()
		}
	}
	k := SourceKit{
		New:      func(testing.TB) Reader { return src.process() },
		Fill:     func(_ testing.TB, n int) { fill(0, n) },
		Lose:     func(testing.TB) { src.lose() },
		Patience: 2 * time.Second,
	}
	if !ended {
		k.More = func(_ testing.TB, from, n int) { fill(from, n) }
	}
	return src, k
}

// process reads the same records on its own.
func (s *Source) process() *Source {
	other := NewSource(s.name, s.order...)
	other.logs, other.ended, other.Wait = s.logs, s.ended, time.Millisecond
	return other
}

// lose takes the records away, as retention does.
func (s *Source) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.logs {
		s.logs[id] = nil
	}
}

// wrong is a source that is broken in one way.
type wrong struct {
	*Source
	how  string
	held *stream.Batch
	told bool
	stop chan struct{}
}

func (w *wrong) Open(ctx context.Context, from []stream.Position) error {
	from = slices.Clone(from)
	switch w.how {
	case "starts anew at some positions":
		from = slices.DeleteFunc(from, func(p stream.Position) bool { return p.Split.ID == "1" })
	case "starts others at their end":
		if len(from) == 1 {
			for _, id := range w.order {
				if id != from[0].Split.ID {
					from = append(from, stream.Position{Split: stream.Split{Resource: w.name, ID: id}, Offset: int64(len(w.logs[id]))})
				}
			}
		}
	case "resets", "takes any split":
		var good []stream.Position
		for _, p := range from {
			if log, ok := w.logs[p.Split.ID]; ok && p.Offset <= int64(len(log)) || w.how == "resets" && !ok {
				good = append(good, p)
			}
		}
		from = good
	case "one behind after a restart":
		for i := range from {
			from[i].Offset = max(0, from[i].Offset-1)
		}
	case "misses the end on restart":
		for i := range from {
			if from[i].Offset == int64(len(w.logs[from[i].Split.ID])) {
				from[i].Offset--
			}
		}
	case "leaks":
		go func() { <-w.stop }()
	}
	if w.how != "keeps what it fetched" {
		w.held = nil
	}
	return w.Source.Open(ctx, from)
}

func (w *wrong) Poll(ctx context.Context) (*stream.Batch, error) {
	if w.how == "deaf" && ctx.Err() != nil {
		<-w.stop
	}
	if w.how == "keeps what it fetched" {
		return w.ahead(ctx)
	}
	b, err := w.Source.Poll(ctx)
	switch {
	case b == nil && err == nil && w.how == "never idle":
		return nil, errors.New("nothing came")
	case errors.Is(err, io.EOF) && w.how == "ends once" && w.told:
		return nil, nil
	case errors.Is(err, io.EOF):
		w.told = true
	}
	if b == nil {
		return nil, err
	}
	switch w.how {
	case "drops one":
		if len(b.Records) > 1 {
			b.Records = b.Records[1:]
		}
	case "loses what a cancelled poll fetched":
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	case "position behind its records":
		b.Next.Offset--
	case "another split's position":
		b.Next.Split.ID = "0"
	case "high water out of reach":
		b.HighWater++
	}
	return b, nil
}

// ahead fetches one batch ahead, and keeps it when it is opened again.
func (w *wrong) ahead(ctx context.Context) (*stream.Batch, error) {
	b, err := w.Source.Poll(ctx)
	if err != nil {
		return nil, err
	}
	next := w.held
	w.held = nil
	if b != nil {
		copied := *b
		copied.Records = nil
		for _, r := range b.Records {
			r.Value = bytes.Clone(r.Value)
			copied.Records = append(copied.Records, r)
		}
		w.held = &copied
	}
	return next, nil
}

func (w *wrong) Splits() []stream.Split {
	all := w.Source.Splits()
	if w.how == "splits twice" {
		all = append(all, all[0])
	}
	return all
}

func (w *wrong) Drained(p stream.Position) stream.Position {
	if w.how == "drains elsewhere" {
		p.Offset = 0
	}
	return p
}

func (w *wrong) Knows(split string) error {
	if w.how == "knows nothing" || w.logs[split] == nil {
		return errors.New("not here")
	}
	return nil
}

func (w *wrong) Close() error {
	if w.how == "can't close" {
		return errors.New("it is stuck")
	}
	return w.Source.Close()
}

// sourceWays are, for each check, ways to break a source so that it must turn red.
func sourceWays() map[string]string {
	return map[string]string{
		"every record once and in order of its split":                   "drops one",
		"Z5/opening again drops what was fetched":                       "keeps what it fetched",
		"a position is where reading goes on":                           "starts anew at some positions",
		"a restart after every batch repeats nothing and loses nothing": "one behind after a restart",
		"splits without a position start at their beginning":            "starts others at their end",
		"a batch is of one split and ends at its next position":         "another split's position",
		"records lie between the positions before and behind them":      "position behind its records",
		"splits are the same for every process":                         "splits twice",
		"the high water is reached":                                     "high water out of reach",
		"a cancelled poll returns":                                      "deaf",
		"a cancelled poll loses nothing":                                "loses what a cancelled poll fetched",
		"an end is told once for each split, and stays":                 "ends once",
		"a position of a split that is not there is an error":           "takes any split",
		"a drained position goes on at the same place":                  "drains elsewhere",
		"it knows its own splits":                                       "knows nothing",
		"closing ends it, twice too":                                    "can't close",
		"no goroutine is left":                                          "leaks",
		"an idle source says so, and wakes up":                          "never idle",
		"a position that is gone is an error and no reset":              "resets",
	}
}

func TestEverySourceCheckTurnsRed(t *testing.T) {
	all := sourceWays()
	for _, c := range SourceChecks() {
		t.Run(c.Name, func(t *testing.T) {
			how, known := all[c.Name]
			if !known {
				t.Fatal("no way to break a source for this check is known")
			}
			for _, broken := range []string{"", how} {
				stop := make(chan struct{})
				src, k := script(c.Name == "an end is told once for each split, and stays")
				k.New = func(testing.TB) Reader { return &wrong{Source: src.process(), how: broken, stop: stop} }
				k.Patience = 500 * time.Millisecond
				k.Fill(t, kitRecords)
				red, words := judge(t, func(j testing.TB) string { return c.Run(k.complete(), j) })
				close(stop)
				if red != (broken != "") {
					t.Errorf("broken by %q: red is %t, %s", broken, red, words)
				}
				t.Log(words)
			}
		})
	}
}

func TestConformance_ScriptedSource(t *testing.T) {
	for _, ended := range []bool{false, true} {
		t.Run(fmt.Sprint("ended ", ended), func(t *testing.T) {
			_, k := script(ended)
			except := []string{"a drained position goes on at the same place", "it knows its own splits"} // it has neither
			if ended {
				except = append(except, "an idle source says so, and wakes up")
			} else {
				except = append(except, "an end is told once for each split, and stays")
			}
			RunSource(t, k).Require(t, except...)
		})
	}
}

// wrongSink is a sink that is broken in one way.
type wrongSink struct {
	*Sink
	how string
}

func (w wrongSink) Begin(ctx context.Context, name participant.BranchName) (participant.Branch, error) {
	b, err := w.Sink.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	return &wrongBranch{branch: b.(*branch), how: w.how}, nil
}

func (w wrongSink) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	p, err := w.Sink.Commit(ctx, h)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.how {
	case "shows a part":
		w.committed = w.committed[:len(w.committed)-1]
	case "turns its order":
		slices.Reverse(w.committed)
	}
	return p, err
}

func (w wrongSink) Rollback(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	if w.how == "keeps what was rolled back" {
		w.mu.Lock()
		if b := w.prepared[h.Name]; b != nil {
			w.committed = append(w.committed, Committed{Record: b.records[0]})
		}
		w.mu.Unlock()
	}
	return w.Sink.Rollback(ctx, h)
}

type wrongBranch struct {
	*branch
	how string
}

func (b *wrongBranch) Write(ctx context.Context, records []stream.Record) error {
	switch {
	case b.how == "keeps the caller's slices":
		b.records = append(b.records, records...)
		return nil
	case b.how == "drops the end of big batches" && len(records) > 1000:
		records = records[:1000]
	case b.how == "half of a cancelled write" && ctx.Err() != nil:
		records = records[:len(records)/2]
	case b.how == "writes after the vote" && b.prepared:
		b.records = append(b.records, records...)
		return nil
	}
	for _, r := range records {
		if bytes.Equal(r.Value, badValue) {
			if b.how == "swallows what it can't write" {
				return nil
			}
			return errors.New("it can't be written")
		}
	}
	return b.branch.Write(ctx, records)
}

func (b *wrongBranch) Prepare(ctx context.Context) (participant.Vote, error) {
	if b.how == "empty is yes" && len(b.records) == 0 {
		b.prepared = true
		return participant.Vote{Kind: participant.Yes, Handle: b.handle()}, nil
	}
	return b.branch.Prepare(ctx)
}

var badValue = []byte("not to be written")

func sinkTarget(how string) SinkTarget {
	sink := wrongSink{NewSink("kit"), how}
	return SinkTarget{
		Process: func(testing.TB) participant.Resource { return sink },
		Read: func(testing.TB) (values []string) {
			for _, c := range sink.Committed() {
				values = append(values, string(c.Record.Value))
			}
			return values
		},
		Bad: &stream.Record{Value: badValue}, patience: time.Minute, big: 5000,
	}
}

// sinkWays are, for each check, ways to break a sink so that it must turn red.
func sinkWays() map[string]string {
	return map[string]string{
		"everything of an epoch shows, or nothing":               "shows a part",
		"epochs show in their order, key by key":                 "turns its order",
		"the next generation goes on where the last was decided": "keeps what was rolled back",
		"E1/empty epochs are nothing, however many":              "empty is yes",
		"what was written is the caller's again":                 "keeps the caller's slices",
		"a big batch shows whole, in one write or many":          "drops the end of big batches",
		"E3/a record that can't be written is no vote":           "swallows what it can't write",
		"a cancelled write is no half of an epoch":               "half of a cancelled write",
		"nothing is written after the vote":                      "writes after the vote",
	}
}

func TestEverySinkCheckTurnsRed(t *testing.T) {
	all := sinkWays()
	for _, c := range SinkChecks() {
		t.Run(c.Name, func(t *testing.T) {
			how, known := all[c.Name]
			if !known {
				t.Fatal("no way to break a sink for this check is known")
			}
			for _, broken := range []string{"", how} {
				red, words := judge(t, func(j testing.TB) string { return c.Run(sinkTarget(broken), j) })
				if red != (broken != "") {
					t.Errorf("broken by %q: red is %t, %s", broken, red, words)
				}
				t.Log(words)
			}
		})
	}
}

func TestConformance_RecordingSink(t *testing.T) {
	RunSink(t, SinkKit{New: func(testing.TB) SinkTarget { return sinkTarget("") }}).Require(t)
}
