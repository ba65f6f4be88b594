package file_test

import (
	"context"
	"errors"
	"testing"

	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
)

// A process that runs a transaction by hand dies after its decision and begins the same one again.
// The second attempt fails, and what it drops must not be the first one's files (L1).
func TestL1_ASecondAttemptDropsNothingOfTheFirst(t *testing.T) {
	disk := crashfs.NewMem("/d")
	name := participant.BranchName{Namespace: participant.Namespace{Name: "ns", Incarnation: 1}, Txn: "0190a0b0-0000-7000-8000-000000000000", Resource: "out"}
	begin := func(s participant.Resource) participant.Branch {
		if _, err := s.Describe(t.Context()); err != nil {
			t.Fatal(err)
		}
		b, err := s.Begin(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := begin(sink(t, disk, "/d"))
	write(t, first, "kept")
	vote, err := first.Prepare(t.Context())
	if err != nil || vote.Kind != participant.Yes {
		t.Fatalf("prepare: %+v, %v", vote, err)
	}
	for what, drop := range map[string]func(participant.Resource, participant.Branch) error{
		"discard": func(_ participant.Resource, b participant.Branch) error { return b.Discard(context.Background()) },
		"prepare": func(_ participant.Resource, b participant.Branch) error {
			v, err := b.Prepare(context.Background())
			if v.Kind != participant.No {
				t.Errorf("voted %d", v.Kind)
			}
			return err
		},
		"close": func(s participant.Resource, _ participant.Branch) error { return s.Close() },
	} {
		s := sink(t, disk, "/d")
		second := begin(s)
		err := second.(processor.Writer).Write(t.Context(), []stream.Record{{Value: []byte("again")}})
		if !errors.Is(err, participant.ErrBug) {
			t.Errorf("%s: a second attempt writes: %v", what, err)
		}
		if err := drop(s, second); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	proof, err := sink(t, disk, "/d").Commit(t.Context(), vote.Handle)
	if err != nil || proof.Verdict != participant.Committed {
		t.Fatalf("commit of the first: %+v, %v", proof, err)
	}
	if got := published(t, disk, "/d"); len(got) != 1 || got[0] != "kept" {
		t.Errorf("published %q", got)
	}
}
