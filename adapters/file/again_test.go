package file_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// Row F1. What is staged is garbage when the ledger says so, and by nothing else: newer generations that open, write,
// commit and sweep leave what is decided and not finished where it is, and it is published when its turn comes.
func TestF1_WhatIsDecidedIsNobodysToClean(t *testing.T) {
	ctx := t.Context()
	mem, first, decided := one(t)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for g := uint64(2); g <= 4; g++ {
		s := sink(t, mem, dir)
		if err := s.Open(ctx, opening(g)); err != nil {
			t.Fatal(err)
		}
		for n, abort := range []bool{false, true} {
			b, err := s.Begin(ctx, branchName(g, uint64(n+1)))
			if err != nil {
				t.Fatal(err)
			}
			write(t, b, fmt.Sprintf(`"%d.%d"`, g, n))
			v, err := b.Prepare(ctx)
			if err != nil || v.Kind != participant.Yes {
				t.Fatalf("prepare: %+v, %v", v, err)
			}
			end := s.Commit
			if abort {
				end = s.Rollback
			}
			if _, err := end(ctx, v.Handle); err != nil {
				t.Fatal(err)
			}
		}
		found, err := s.List(ctx, ns)
		if err != nil || len(found) != 1 || found[0].Handle.Name != decided.Name {
			t.Fatalf("generation %d lists %v, %v; want what is decided", g, found, err)
		}
		if st, err := s.Inspect(ctx, decided); err != nil || st != participant.Undecided {
			t.Fatalf("generation %d finds state %d, %v", g, st, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	mem.Reboot() // and the power fails
	if p, err := sink(t, mem, dir).Commit(ctx, decided); err != nil || p.Verdict != participant.Committed {
		t.Fatalf("commit: %+v, %v", p, err)
	}
	if got, want := slices.Sorted(slices.Values(published(t, mem, dir))), []string{`"2.0"`, `"3.0"`, `"4.0"`, `"a"`}; !slices.Equal(got, want) {
		t.Errorf("readers see %q, want %q", got, want)
	}
}
