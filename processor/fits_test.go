package processor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/processortest"
)

// What a restore would refuse is refused before anything was declared, whether the state is in the vote or
// in a store that is not at hand.
func TestAPipelineSaysWhetherAStateFits(t *testing.T) {
	for name, limit := range map[string]int{"in the vote": 64 << 10, "in a store": 200} {
		t.Run(name, func(t *testing.T) {
			src := processortest.NewSource("in", "0")
			r, _ := stored(t, src)
			r.scope.InlineLimit = limit
			r.restart()
			for i := range 100 {
				src.Append("0", record("1", strings.Repeat("k", i), 100, 1))
			}
			r.allOf()
			r.epoch()
			last, _, err := r.scope.Open(r.ctx)
			r.must(err)
			if (len(last.Parts) > 1) != (limit == 200) {
				t.Fatalf("the snapshot has %d parts", len(last.Parts))
			}
			other := func(size time.Duration, agg Aggregate[reading, int64], id string, opts ...Option) *Pipeline {
				w := Tumbling(From("in", src, decodeReading()).EventTime(at).Key(byKey), size, agg).ID(id)
				p, err := w.To("two", processortest.NewSink("two"), encodeSum).Pipeline("test", opts...)
				r.must(err)
				return p
			}
			without, err := PassThrough(From("in", src, decodeReading())).To("two", processortest.NewSink("two"), passID).Pipeline("test")
			r.must(err)
			for name, c := range map[string]struct {
				p    *Pipeline
				says string
			}{
				"other sinks":         {other(time.Second, aggregate.Sum(value), "window"), ""},
				"another window":      {other(2*time.Second, aggregate.Sum(value), "window"), `"tumbling/1 size=1000ms aggregate=sum"`},
				"another aggregate":   {other(time.Second, aggregate.Max(value), "window"), `"tumbling/1 size=1000ms aggregate=sum"`},
				"another operator":    {other(time.Second, aggregate.Sum(value), "other"), `has state of operator "window"`},
				"more key groups":     {other(time.Second, aggregate.Sum(value), "window", KeyGroups(256)), "with 128 key groups"},
				"without a window":    {without, `has state of operator "window"`},
				"no state was stored": {r.build(), "holds no state"},
			} {
				parts := last.Parts
				if name == "no state was stored" {
					parts = nil
				}
				switch err := c.p.Fits(r.ctx, last.RestoreGeneration, last.RestoreN, parts); {
				case c.says == "" && err != nil:
					t.Errorf("%s: %v", name, err)
				case c.says != "" && (!errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), c.says)):
					t.Errorf("%s: got %v, want %q", name, err, c.says)
				}
			}
			r.restart() // nothing was changed by it
		})
	}
}

// knowing is a source that says what it does not read.
type knowing struct{ *processortest.Source }

func (knowing) Knows(split string) error {
	if split == "gone" {
		return errors.New(`"gone" was taken out`)
	}
	return nil
}

// What a source would not go on from is refused before anything was declared.
func TestAPipelineSaysWhetherItsSourceGoesOn(t *testing.T) {
	src := processortest.NewSource("in", "0")
	for _, c := range []struct {
		name, split, says string
		source            Source
	}{
		{"in", "0", "", knowing{src}},
		{"in", "gone", `restore point 7.12 has a position of source "in" that it would not go on from`, knowing{src}},
		{"in", "gone", "", src}, // it does not say
		{"input", "0", `it has positions of source "in", and the source's name is "input" now`, src},
	} {
		p, err := PassThrough(From(c.name, c.source, decodeReading())).To("two", processortest.NewSink("two"), passID).Pipeline("test")
		if err != nil {
			t.Fatal(err)
		}
		err = p.GoesOn(7, 12, []participant.Position{{Resource: "in", Split: c.split}})
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%+v: %v", c, err)
		case c.says != "" && (!errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%+v: got %v", c, err)
		}
	}
}
