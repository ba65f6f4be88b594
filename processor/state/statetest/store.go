// Package statetest checks implementations of state.Store against its contract.
package statetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/unisink/unisink/processor/state"
)

// Kit says how to reach the store under test.
type Kit struct {
	// Open opens the store as a process does. Each call is another process over the same data; what is open is
	// closed by the test's cleanup. Every check uses ids of its own.
	Open func(t testing.TB) state.Store
	// Large is the size of the largest part that is tried, bytes; default 9 MiB, which is above the largest part
	// that snapshots are cut into.
	Large int
}

// Check is one rule of the contract.
type Check struct {
	Name string
	Run  func(t testing.TB, k Kit)
}

// Run checks a store. Each check is a subtest, named after its rule.
func Run(t *testing.T, k Kit) {
	t.Helper()
	if k.Large == 0 {
		k.Large = 9 << 20
	}
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, k) })
	}
}

// Checks lists the rules.
func Checks() []Check {
	return []Check{
		{"what was put is read, by another process too", checkPut},
		{"a repeat replaces", checkRepeat},
		{"P9/a part that is not there is no part", checkMissing},
		{"a deleted part is gone, for every process", checkDelete},
		{"a list is of a prefix, sorted, and of whole parts", checkList},
		{"an id that could leave the store is refused", checkIDs},
		{"parts of every size come back as they were", checkSizes},
		{"many at once do not mix", checkTogether},
		{"a cancelled call ends", checkCancelled},
	}
}

func put(t testing.TB, s state.Store, id string, body []byte) {
	t.Helper()
	if err := s.Put(t.Context(), id, body); err != nil {
		t.Fatalf("put %s: %v", id, err)
	}
}

func holds(t testing.TB, s state.Store, id string, want []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), id)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s holds %d bytes (%v), want %d", id, len(got), err, len(want))
	}
}

func holdsNot(t testing.TB, s state.Store, id string) {
	t.Helper()
	if got, err := s.Get(t.Context(), id); !errors.Is(err, state.ErrNoPart) {
		t.Errorf("%s: %d bytes, %v; want ErrNoPart", id, len(got), err)
	}
}

func lists(t testing.TB, s state.Store, prefix string, want ...string) {
	t.Helper()
	got, err := s.List(t.Context(), prefix)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("list %q: %q, %v; want %q", prefix, got, err, want)
	}
}

func checkPut(t testing.TB, k Kit) {
	one, two := k.Open(t), k.Open(t)
	if one.Name() == "" || one.Name() != two.Name() {
		t.Errorf("two processes name the store %q and %q", one.Name(), two.Name())
	}
	body := []byte("counts of keys 0 to 31")
	put(t, one, "put-a", body)
	body[0] = 'X' // the caller's again
	holds(t, one, "put-a", []byte("counts of keys 0 to 31"))
	holds(t, two, "put-a", []byte("counts of keys 0 to 31"))
	holds(t, k.Open(t), "put-a", []byte("counts of keys 0 to 31"))
}

func checkRepeat(t testing.TB, k Kit) {
	one, two := k.Open(t), k.Open(t)
	large := noise(3 << 20)
	put(t, one, "repeat-a", large)
	holds(t, two, "repeat-a", large)
	put(t, one, "repeat-a", large)
	put(t, two, "repeat-a", large)
	holds(t, one, "repeat-a", large)
	lists(t, two, "repeat-", "repeat-a")
}

func checkMissing(t testing.TB, k Kit) {
	s := k.Open(t)
	holdsNot(t, s, "missing-a")
	put(t, s, "missing-ab", []byte("another"))
	holdsNot(t, s, "missing-a")
	if err := s.Delete(t.Context(), "missing-a"); err != nil {
		t.Errorf("delete what is not there: %v", err)
	}
}

func checkDelete(t testing.TB, k Kit) {
	one, two := k.Open(t), k.Open(t)
	put(t, one, "delete-a", noise(2<<20))
	put(t, one, "delete-b", []byte("b"))
	holds(t, two, "delete-b", []byte("b"))
	for range 2 {
		if err := two.Delete(t.Context(), "delete-a"); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []state.Store{one, two, k.Open(t)} {
		holdsNot(t, s, "delete-a")
		lists(t, s, "delete-", "delete-b")
	}
	put(t, one, "delete-a", []byte("again"))
	holds(t, two, "delete-a", []byte("again"))
}

func checkList(t testing.TB, k Kit) {
	s := k.Open(t)
	for _, id := range []string{"list.b", "list.a", "list.a.1", "list.c~2_X-9", "other.a"} {
		put(t, s, id, []byte(id))
	}
	lists(t, s, "list.", "list.a", "list.a.1", "list.b", "list.c~2_X-9")
	lists(t, k.Open(t), "list.a", "list.a", "list.a.1")
	lists(t, s, "list.z")
}

func checkIDs(t testing.TB, k Kit) {
	s := k.Open(t)
	for _, id := range []string{"", "../up", "a/b", "a b", ".hidden", "a\x00b", "ä"} {
		if err := s.Put(t.Context(), id, []byte("x")); err == nil {
			t.Errorf("id %q was taken", id)
		}
	}
}

func checkSizes(t testing.TB, k Kit) {
	s := k.Open(t)
	for _, n := range []int{0, 1, 511 << 10, 512 << 10, 512<<10 + 1, 1 << 20, k.Large} {
		id, body := fmt.Sprintf("size-%d", n), noise(n)
		put(t, s, id, body)
		holds(t, s, id, body)
	}
	holds(t, k.Open(t), fmt.Sprintf("size-%d", k.Large), noise(k.Large))
}

func checkTogether(t testing.TB, k Kit) {
	s, other := k.Open(t), k.Open(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 4 {
				id := fmt.Sprintf("together-%d-%d", i, j)
				body := bytes.Repeat([]byte(id), 20_000)
				if err := s.Put(t.Context(), id, body); err != nil {
					t.Errorf("put %s: %v", id, err)
					return
				}
				if got, err := other.Get(t.Context(), id); err != nil || !bytes.Equal(got, body) {
					t.Errorf("%s holds %d bytes (%v), want %d", id, len(got), err, len(body))
				}
				if j > 0 {
					if err := other.Delete(t.Context(), id); err != nil {
						t.Errorf("delete %s: %v", id, err)
					}
				}
			}
		})
	}
	group.Wait()
	var want []string
	for i := range 8 {
		want = append(want, fmt.Sprintf("together-%d-0", i))
	}
	lists(t, s, "together-", want...)
}

func checkCancelled(t testing.TB, k Kit) {
	s := k.Open(t)
	put(t, s, "cancelled-a", []byte("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, getErr := s.Get(ctx, "cancelled-a")
	_, listErr := s.List(ctx, "cancelled-")
	for what, err := range map[string]error{
		"put": s.Put(ctx, "cancelled-b", []byte("b")), "get": getErr, "delete": s.Delete(ctx, "cancelled-a"), "list": listErr,
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a context that had ended: %v", what, err)
		}
	}
	holds(t, s, "cancelled-a", []byte("a"))
}

// noise is n bytes that do not compress, the same for each n.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 7)) //nolint:gosec // test data
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}
