package processor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

// sharing is a sink whose branches take the records of others.
type sharing struct {
	*processortest.Sink
	others  map[participant.Resource]string
	refuses error
}

func (s *sharing) Shares(_ context.Context, other participant.Resource) (bool, error) {
	return s.others[other] != "", s.refuses
}

func (s *sharing) Begin(ctx context.Context, name participant.BranchName) (participant.Branch, error) {
	b, err := s.Sink.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	return &sharedBranch{b.(Writer), s}, nil
}

type sharedBranch struct {
	Writer
	of *sharing
}

func (b *sharedBranch) WriteFor(ctx context.Context, other participant.Resource, records []stream.Record) error {
	for _, r := range records {
		r.Key = fmt.Appendf(nil, "%s/%s", b.of.others[other], r.Key)
		if err := b.Write(ctx, []stream.Record{r}); err != nil {
			return err
		}
	}
	return nil
}

// sharedRig writes sums to three sinks, of which the first takes what is for the third.
func sharedRig(t *testing.T, src *processortest.Source) (*rig, *sharing) {
	var one *sharing
	r := newRig(t, src, func(r *rig) *Pipeline {
		w := Tumbling(From("in", r.source, decodeReading()).EventTime(at).Key(byKey), time.Second, aggregate.Sum(value))
		p, err := w.To("one", one, encodeSum).To("two", r.sinks["two"], encodeSum).To("three", r.sinks["three"], encodeSum).Pipeline("test")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}, "one", "two", "three")
	one = &sharing{Sink: r.sinks["one"], others: map[participant.Resource]string{r.sinks["three"]: "three"}}
	r.scope = processortest.NewScope(map[string]participant.Resource{"one": one, "two": r.sinks["two"], "three": r.sinks["three"]})
	return r, one
}

func TestSinksThatShareHaveOneBranchInAnEpoch(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r, _ := sharedRig(t, src)
	r.restart()
	src.Append("0", record("1", "a", 100, 1), record("2", "b", 999, 4), record("3", "b", 1001, 4))
	r.poll()
	r.barrier(false)
	if n := r.sinks["three"].Prepared(); n != 0 {
		t.Errorf("the sink that shares has %d branches of its own", n)
	}
	r.decide()
	r.expect("one", "a=0 1", "b=0 4", "three/a=0 1", "three/b=0 4")
	r.expect("two", "a=0 1", "b=0 4")
	r.expect("three")
}

// What was prepared while the sinks did not share is ended under its own name.
func TestABranchFromBeforeTheSinksSharedIsFinished(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r, one := sharedRig(t, src)
	third := one.others
	one.others = nil
	r.restart()
	src.Append("0", record("1", "a", 100, 1), record("3", "b", 1001, 4))
	r.poll()
	r.barrier(false)
	r.must(r.scope.Decide(r.ctx)) // and the process dies before it is finished
	one.others = third
	src.Append("0", record("4", "b", 2001, 4))
	r.restart()
	r.poll()
	r.epoch()
	r.expect("three", "a=0 1")
	r.expect("one", "a=0 1", "b=1000 4", "three/b=1000 4")
	r.expect("two", "a=0 1", "b=1000 4")
}

func TestSinksThatCannotBeSideBySideAreNotDeclaredAndNotStarted(t *testing.T) {
	src := processortest.NewSource("in", "0")
	r, one := sharedRig(t, src)
	one.refuses = fmt.Errorf("mode is prepared and staged: %w", participant.ErrMisconfigured)
	const says = `sinks "one" and "two": mode is prepared and staged`
	if _, err := r.build().Spec(t.Context()); !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), says) {
		t.Errorf("declared: %v", err)
	}
	if err := r.tryRestart(); !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), says) {
		t.Errorf("started: %v", err)
	}
}
