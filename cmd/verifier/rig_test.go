package verifier_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/unisink/unisink/cmd/adapters"
	"github.com/unisink/unisink/cmd/verifier"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a source and sinks in memory, under the adapter "mem", and the coordinator of one scope.
type world struct {
	doc     *spec.Document
	splits  []string
	records map[string][]stream.Record
	batch   int
	source  *processortest.Source
	sinks   map[string]*processortest.Sink
	// held is what readers see; tests damage it.
	held  map[string][]processortest.Committed
	gone  string
	grown bool
	// behind: the source had ended before.
	behind bool
	epoch  *unisinkv1.Epoch
	at     []*unisinkv1.Position
	final  bool
}

var env = spec.Env{Logger: slog.New(slog.DiscardHandler), Lookup: func(string) (string, bool) { return "", false }}

func newWorld(splits ...string) *world {
	return &world{splits: splits, records: map[string][]stream.Record{}, sinks: map[string]*processortest.Sink{}, held: map[string][]processortest.Committed{}, batch: 3}
}

func (w *world) add(split string, r stream.Record) { w.records[split] = append(w.records[split], r) }

func (w *world) adapter() adapters.Adapter {
	return adapters.Adapter{
		Kind: "mem",
		Spec: func(*spec.Document) spec.Adapter {
			return spec.Adapter{
				Kind:   "mem",
				Source: func(spec.Env, string, spec.Settings) (processor.Source, error) { return w.source, nil },
				Sink: func(_ spec.Env, name string, _ spec.Settings) (processor.Sink, error) {
					if w.sinks[name] == nil {
						w.sinks[name] = processortest.NewSink(name)
					}
					return w.sinks[name], nil
				},
			}
		},
		Reading: &adapters.Reading{
			Source: func(context.Context, spec.Env, adapters.Use) (*adapters.SourceReading, error) {
				out := &adapters.SourceReading{
					SourceReader: w, Gone: w.gone, Grown: func([]stream.Position) bool { return w.grown }, Behind: func([]stream.Position) bool { return w.behind }, Ended: func([]stream.Position) []stream.Split { return nil }, Close: func() error { return nil },
				}
				for _, s := range w.splits {
					out.Splits = append(out.Splits, stream.Split{Resource: "mem", ID: s})
				}
				return out, nil
			},
			Sink: func(_ context.Context, _ spec.Env, u adapters.Use, _ bool) (*adapters.SinkReading, error) {
				return &adapters.SinkReading{OutputReader: listed(w.held[u.Name]), Key: true, Headers: true, Time: true, Close: func() error { return nil }}, nil
			},
		},
	}
}

// Read makes the world a verify.SourceReader.
func (w *world) Read(_ context.Context, to []stream.Position, f func(stream.Split, *stream.Record) error) error {
	for _, p := range to {
		for i, r := range w.records[p.Split.ID][:p.Offset] {
			r.Topic, r.Offset = "mem", int64(i)
			r.Partition = int32(slices.Index(w.splits, p.Split.ID))
			if err := f(p.Split, &r); err != nil {
				return err
			}
		}
	}
	return nil
}

type listed []processortest.Committed

func (l listed) Read(_ context.Context, f func(verify.Output) error) error {
	for i, c := range l {
		r := c.Record
		o := verify.Output{Key: r.Key, Value: r.Value, Headers: r.Headers, Time: r.Time, Generation: c.Generation, N: c.N, Place: fmt.Sprint("output ", i)}
		if err := f(o); err != nil {
			return err
		}
	}
	return nil
}

// run runs a specification over the records, killed and started again, and stops or drains it.
func (w *world) run(t testing.TB, text string, lives int, drain bool) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.doc, err = spec.Parse("p.yaml", []byte(text), env)
	must(err)
	w.source = processortest.NewSource("mem", w.splits...)
	w.source.Batch = w.batch
	for _, s := range w.splits {
		w.source.Append(s, w.records[s]...)
	}
	ctx := t.Context()
	var scope *processortest.Scope
	for life := range lives {
		p, err := spec.Build(w.doc, adapters.Specs([]adapters.Adapter{w.adapter()}, w.doc), env)
		must(err)
		if scope == nil {
			resources := map[string]participant.Resource{}
			for name, s := range w.sinks {
				resources[name] = s
			}
			scope = processortest.NewScope(resources)
		}
		task := p.Task(0, nil)
		_, err = scope.Begin(ctx, task)
		must(err)
		last := life == lives-1
		if last || life%2 == 1 {
			synctest.Wait()
		}
		must(task.Barrier(ctx, participant.Barrier{Generation: uint64(life + 1), N: 1, Final: last, Drain: last && drain}))
		if life%2 == 0 || last {
			must(scope.Decide(ctx))
		}
		must(task.Halted(ctx, "killed"))
	}
	must(scope.Close(ctx))
	g, n, c := scope.Last()
	w.epoch, w.final = &unisinkv1.Epoch{Generation: g, N: n}, true
	for _, p := range c.Positions {
		w.at = append(w.at, &unisinkv1.Position{Resource: p.Resource, Split: p.Split, Offset: p.Offset})
	}
	for name, s := range w.sinks {
		w.held[name] = s.Committed()
	}
}

func (w *world) config() verifier.Config {
	return verifier.Config{Document: w.doc, Env: env, Adapters: []adapters.Adapter{w.adapter()}, Ledger: w}
}

func (w *world) verify(t testing.TB) verify.Report {
	t.Helper()
	r, err := verifier.Run(context.Background(), w.config())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) ProvenCut(context.Context, *unisinkv1.ProvenCutRequest, ...grpc.CallOption) (*unisinkv1.ProvenCutResponse, error) {
	return &unisinkv1.ProvenCutResponse{Scopes: []*unisinkv1.ScopeCut{{Scope: &unisinkv1.Scope{Pipeline: "p"}, Epoch: w.epoch, Positions: w.at}}}, nil
}

func (w *world) ListEpochs(context.Context, *unisinkv1.ListEpochsRequest, ...grpc.CallOption) (*unisinkv1.ListEpochsResponse, error) {
	return &unisinkv1.ListEpochsResponse{Epochs: []*unisinkv1.EpochRecord{{Epoch: w.epoch, Final: w.final, Positions: w.at}}}, nil
}

func (w *world) EpochOutcome(context.Context, *unisinkv1.EpochOutcomeRequest, ...grpc.CallOption) (*unisinkv1.EpochOutcomeResponse, error) {
	return &unisinkv1.EpochOutcomeResponse{}, nil
}
