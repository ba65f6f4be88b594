package processortest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheScriptedSourceIsASource(t *testing.T) {
	src := processortest.NewSource("in", "0", "1", "2")
	processortest.RunSource(t, processortest.SourceKit{
		New: func(testing.TB) processortest.Reader { return src },
		Fill: func(_ testing.TB, n int) {
			for i := range n {
				src.Append(fmt.Sprint(i%3), stream.Record{Value: fmt.Appendf(nil, "record %d", i)})
			}
		},
	})
}

func TestTheRecordingSinkKeepsTheContractOfResources(t *testing.T) {
	participanttest.Run(t, participanttest.Kit{New: func(testing.TB) participanttest.Target {
		sink := processortest.NewSink("kit")
		return participanttest.Target{
			Process: func(testing.TB) participant.Resource { return sink },
			Write: func(t testing.TB, b participant.Branch, value string) {
				if err := b.(processor.Writer).Write(t.Context(), []stream.Record{{Value: []byte(value)}}); err != nil {
					t.Fatal(err)
				}
			},
			Read: func(testing.TB) (values []string) {
				for _, c := range sink.Committed() {
					values = append(values, string(c.Record.Value))
				}
				return values
			},
		}
	}})
}

func TestTheFileSourceIsASource(t *testing.T) {
	dir := t.TempDir()
	processortest.RunSource(t, processortest.SourceKit{
		New: func(t testing.TB) processortest.Reader {
			src, err := file.NewSource(file.SourceConfig{Dir: dir, BatchRecords: 7})
			if err != nil {
				t.Fatal(err)
			}
			return src
		},
		Fill: func(t testing.TB, n int) {
			var lines [3][]byte
			for i := range n {
				lines[i%3] = fmt.Appendf(lines[i%3], "record %d\n", i)
			}
			for i := range lines {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.jsonl", i)), lines[i], 0o600); err != nil {
					t.Fatal(err)
				}
			}
		},
		Lose: func(t testing.TB) {
			for i := range 3 {
				if err := os.Remove(filepath.Join(dir, fmt.Sprintf("%d.jsonl", i))); err != nil {
					t.Fatal(err)
				}
			}
		},
	})
}

// begin writes one record into the epoch that is being written.
func begin(t *testing.T, run *processortest.Run, value string) {
	t.Helper()
	b, err := run.Branch(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.(processor.Writer).Write(t.Context(), []stream.Record{{Value: []byte(value)}}); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyWhatWasDecidedSurvives(t *testing.T) {
	ctx := t.Context()
	sink := processortest.NewSink("one")
	scope := processortest.NewScope(map[string]participant.Resource{"one": sink})
	restore, run, err := scope.Open(ctx)
	if err != nil || !restore.Fresh || restore.Generation != 1 {
		t.Fatalf("%+v, %v", restore, err)
	}
	vote := func(n uint64) {
		t.Helper()
		c := participant.Contribution{Parts: []participant.StatePart{{ID: fmt.Sprint(n)}}}
		if err := run.Vote(ctx, participant.Barrier{Generation: 1, N: n}, c); err != nil {
			t.Fatal(err)
		}
	}
	begin(t, run, "a")
	vote(1)
	vote(1) // a repeat is no error
	begin(t, run, "b")
	vote(2)
	if err := run.Vote(ctx, participant.Barrier{Generation: 1, N: 4}, participant.Contribution{}); !errors.Is(err, participant.ErrBug) {
		t.Errorf("an epoch was skipped: %v", err)
	}
	if err := scope.Decide(ctx); err != nil {
		t.Fatal(err)
	}
	restore, _, err = scope.Open(ctx)
	if err != nil || restore.Fresh || restore.RestoreN != 1 || restore.Parts[0].ID != "1" {
		t.Fatalf("%+v, %v", restore, err)
	}
	if got := sink.Committed(); len(got) != 1 || string(got[0].Record.Value) != "a" || sink.Prepared() != 0 {
		t.Errorf("%+v is committed, %d prepared", got, sink.Prepared())
	}
	if _, err := run.Branch(ctx, "one"); !errors.Is(err, participant.ErrClosed) {
		t.Errorf("a branch of a closed generation: %v", err)
	}
}

func TestBranchesWaitWhileTooMuchIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		scope := processortest.NewScope(map[string]participant.Resource{"one": processortest.NewSink("one")})
		_, run, err := scope.Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint64(2) {
			if err := run.Vote(ctx, participant.Barrier{Generation: 1, N: n + 1}, participant.Contribution{}); err != nil {
				t.Fatal(err)
			}
		}
		got := make(chan error)
		go func() {
			_, err := run.Branch(context.WithoutCancel(ctx), "one")
			got <- err
		}()
		synctest.Wait()
		select {
		case err := <-got:
			t.Fatalf("not held back: %v", err)
		default:
		}
		if err := errors.Join(scope.Decide(ctx), scope.Finish(ctx)); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

func TestANoIsTold(t *testing.T) {
	ctx := t.Context()
	sink := processortest.NewSink("one")
	scope := processortest.NewScope(map[string]participant.Resource{"one": sink})
	_, run, err := scope.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk is full")
	sink.FailPrepare(full)
	begin(t, run, "a")
	if err := run.Vote(ctx, participant.Barrier{Generation: 1, N: 1}, participant.Contribution{}); err != nil {
		t.Fatal(err)
	}
	if err := scope.Decide(ctx); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	if err := scope.Close(ctx); err != nil || len(sink.Committed()) != 0 {
		t.Errorf("%v, %v", err, sink.Committed())
	}
}

// A record's slices are the caller's again when Write returns; headers too.
func TestTheRecordingSinkKeepsNothingOfItsCaller(t *testing.T) {
	sink := processortest.NewSink("one")
	scope := processortest.NewScope(map[string]participant.Resource{"one": sink})
	_, run, err := scope.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := run.Branch(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	r := stream.Record{Key: []byte("k"), Value: []byte("v"), Headers: []stream.Header{{Key: "h", Value: []byte("x")}}}
	if err := b.(processor.Writer).Write(t.Context(), []stream.Record{r}); err != nil {
		t.Fatal(err)
	}
	r.Key[0], r.Value[0], r.Headers[0].Value[0] = '-', '-', '-'
	if err := run.Vote(t.Context(), participant.Barrier{Generation: 1, N: 1}, participant.Contribution{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(scope.Decide(t.Context()), scope.Finish(t.Context())); err != nil {
		t.Fatal(err)
	}
	got := sink.Committed()[0].Record
	if string(got.Key) != "k" || string(got.Value) != "v" || string(got.Headers[0].Value) != "x" {
		t.Errorf("committed %+v", got)
	}
}

// Nobody takes what is retired: the decision that cannot be told any more ends with its context.
func TestADecisionWaitsForNobodyWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := processortest.NewScope(map[string]participant.Resource{})
		s.Keep = 1
		_, run, err := s.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for n := uint64(1); err == nil && n <= 100; n++ {
			c := participant.Contribution{Parts: []participant.StatePart{{ID: fmt.Sprint("part", n)}}}
			if err := run.Vote(ctx, participant.Barrier{Generation: 1, N: n}, c); err != nil {
				t.Fatal(err)
			}
			err = s.Decide(ctx)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("decided: %v, want that the time was over", err)
		}
	})
}
