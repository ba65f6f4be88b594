package verify_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
)

// copied is a pipeline that copies records "0", "1", ..., into sinks that hold what is written "VALUE@GENERATION.N";
// "VALUE@" tells no epoch.
func copied(records int, proven verify.Epoch, held string, rewinds ...verify.Rewound) *verify.Job {
	values := make([]string, records)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	at := []stream.Position{{Offset: int64(records)}}
	var out listed
	for i, x := range strings.Fields(held) {
		value, epoch, _ := strings.Cut(x, "@")
		o := verify.Output{Value: []byte(value), Place: fmt.Sprint("output ", i)}
		_, _ = fmt.Sscanf(epoch, "%d.%d", &o.Generation, &o.N) // none: it does not tell
		out = append(out, o)
	}
	return &verify.Job{
		Plan: verify.Plan{OnBad: verify.BadFails, Window: verify.Window{Kind: verify.NoWindow}, Read: func(*stream.Record) (verify.Seen, error) {
			return verify.Seen{Keep: true}, nil
		}},
		Source: untimedSource(values), Passed: []verify.Copies{{Name: "out", Reader: out}},
		Cut: verify.Cut{Positions: at, Newest: at, Final: true, Proven: proven, Decided: proven, Rewinds: rewinds},
	}
}

// What a rewind put aside is in the sinks and is left out; what counts is judged as ever.
func TestWhatARewindPutAsideIsLeftOut(t *testing.T) {
	type epoch = verify.Epoch
	back := verify.Rewound{To: epoch{1, 1}, Newest: epoch{2, 3}}
	for name, c := range map[string]struct {
		job          *verify.Job
		want         verify.Verdict
		left, epochs int
	}{
		"no rewind":               {copied(3, epoch{2, 3}, "0@1.1 1@2.1 2@2.3"), verify.Clean, 0, 0},
		"rewound, nothing since":  {copied(3, epoch{2, 3}, "0@1.1 1@2.1 2@2.3", back), verify.Clean, 0, 0},
		"written again":           {copied(3, epoch{3, 1}, "0@1.1 1@2.1 2@2.3 1@3.1 2@3.1", back), verify.Clean, 2, 2},
		"written once":            {copied(3, epoch{3, 1}, "0@1.1 1@2.1 2@2.3 1@3.1", back), verify.Broken, 2, 2},
		"written twice":           {copied(3, epoch{3, 1}, "0@1.1 1@2.1 1@3.1 2@3.1 2@3.1", back), verify.Broken, 1, 1},
		"not known to be rewound": {copied(3, epoch{3, 1}, "0@1.1 1@2.1 2@2.3 1@3.1 2@3.1"), verify.Broken, 0, 0},
		"from scratch":            {copied(2, epoch{2, 1}, "0@1.1 1@1.1 0@2.1 1@2.1", verify.Rewound{Newest: epoch{1, 1}}), verify.Clean, 2, 1},
		"rewound twice": {copied(2, epoch{3, 1}, "0@1.1 1@1.2 1@2.1 1@3.1", verify.Rewound{To: epoch{1, 1}, Newest: epoch{1, 2}},
			verify.Rewound{To: epoch{1, 1}, Newest: epoch{2, 1}}), verify.Clean, 2, 2},
		"back to what was put aside": {copied(3, epoch{3, 1}, "0@1.1 1@1.2 1@2.1 2@3.1", verify.Rewound{To: epoch{1, 1}, Newest: epoch{1, 2}},
			verify.Rewound{To: epoch{1, 2}, Newest: epoch{2, 1}}), verify.Clean, 1, 1},
		"no epochs told": {copied(2, epoch{2, 1}, "0@ 1@ 1@", verify.Rewound{To: epoch{1, 1}, Newest: epoch{1, 2}}), verify.Undeterminable, 0, 0},
		"several scopes": {copied(2, epoch{}, "0@1.1 1@1.2 1@2.1", verify.Rewound{To: epoch{1, 1}, Newest: epoch{1, 2}}), verify.Undeterminable, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := c.job.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict != c.want || r.Superseded != c.left || r.SupersededEpochs != c.epochs {
				t.Errorf("%s, %d records of %d epochs left out, want %s, %d of %d\n%+v", r.Verdict, r.Superseded, r.SupersededEpochs, c.want, c.left, c.epochs, r)
			}
			if c.want == verify.Undeterminable && !strings.Contains(r.Undeterminable[0].Why, "the pipeline was rewound") {
				t.Error(r.Undeterminable)
			}
		})
	}
	forgotten := copied(2, epoch{3, 1}, "0@1.1 1@1.2 1@3.1", verify.Rewound{To: epoch{2, 1}, Newest: epoch{2, 2}})
	forgotten.Cut.Forgotten = true
	if r, err := forgotten.Run(t.Context()); err != nil || r.Verdict != verify.Undeterminable {
		t.Errorf("older rewinds are forgotten: %v %+v", err, r)
	}
}
