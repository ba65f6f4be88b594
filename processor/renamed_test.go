package processor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

// lenient is a source that goes by the ids of splits and does not mind under which name they were read.
type lenient struct {
	*processortest.Source
	name string
}

func (l lenient) Open(ctx context.Context, from []stream.Position) error {
	own := make([]stream.Position, len(from))
	for i, p := range from {
		p.Split.Resource = l.name
		own[i] = p
	}
	return l.Source.Open(ctx, own)
}

func TestPositionsOfASourceByAnotherNameAreRefused(t *testing.T) { synctest.Test(t, renamed) }

func renamed(t *testing.T) {
	sink := processortest.NewSink("two")
	scope := processortest.NewScope(map[string]participant.Resource{"two": sink})
	task := func(name string) participant.Task {
		src := processortest.NewSource(name, "0")
		src.Append("0", record("1", "a", 100, 1), record("2", "a", 200, 1))
		p, err := PassThrough(From(name, lenient{src, name}, decodeReading())).To("two", sink, passID).Pipeline("test")
		if err != nil {
			t.Fatal(err)
		}
		return p.Task(0, nil)
	}
	ctx := t.Context()
	first := task("in")
	if _, err := scope.Begin(ctx, first); err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // all is read
	err := errors.Join(first.Barrier(ctx, participant.Barrier{Generation: 1, N: 1, Final: true, Drain: true}), scope.Decide(ctx), first.Halted(ctx, "stopped"))
	if err != nil {
		t.Fatal(err)
	}
	other := task("a")
	_, err = scope.Begin(ctx, other)
	if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), `has positions of source "in", and the source's name is "a" now`) {
		t.Errorf("a source of another name: %v", err)
	}
	if err := scope.Close(ctx); err != nil {
		t.Error(err)
	}
}
