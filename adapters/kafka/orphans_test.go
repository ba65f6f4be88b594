package kafka

import (
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/participant"
)

// Row L8. Processes die one after the other, most of them before they have written anything. Whoever looks for what
// they left lists it: no id is initialised that was not there, and the broker knows no more of them after many crashes.
func TestL8_LookingForOrphansMakesNoIds(t *testing.T) {
	r := newRig(t)
	ids := func() []string {
		t.Helper()
		found, err := r.a.ListTransactions(t.Context(), opening(1).Namespace)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]string, len(found))
		for i, x := range found {
			out[i] = x.Name.String()
		}
		slices.Sort(out)
		return out
	}
	first := r.opened(1)
	decided, dead := r.prepared(first, branchName(1, 1), 3), r.prepared(first, branchName(1, 2), 3)
	known := ids()
	if len(known) < 2 { // and one that is the member's for good
		t.Fatalf("two branches are prepared, and the broker knows %q", known)
	}

	var mu sync.Mutex // guards made
	var made []string
	r.b.Cluster().ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if id := req.(*kmsg.InitProducerIDRequest).TransactionalID; id != nil {
			mu.Lock()
			defer mu.Unlock()
			if n, ours := parseSlotID(*id); !ours || n.Generation > 1 { // that of generation 0 is the member's for good
				made = append(made, *id)
			}
		}
		return nil, nil, false
	})
	for g := uint64(2); g <= 6; g++ {
		s := r.opened(g)
		found, err := s.List(t.Context(), opening(1).Namespace)
		if err != nil {
			t.Fatal(err)
		}
		if g == 2 { // its restore ends both
			if len(found) != 2 {
				t.Fatalf("generation 2 finds %v", found)
			}
			r.commit(s, decided, participant.Committed)
			r.rollback(s, dead, participant.RolledBack)
		} else if len(found) != 0 {
			t.Errorf("generation %d finds %v", g, found)
		}
		for _, h := range []participant.Handle{decided, dead} {
			if _, err := s.Inspect(t.Context(), h); err != nil {
				t.Fatal(err)
			}
		}
	} // and it dies before its first record
	if now := ids(); !slices.Equal(now, known) {
		t.Errorf("after five crashes the broker knows %q, before it was %q", now, known)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(made) > 0 {
		t.Errorf("ids were made by looking: %q", made)
	}
	r.sees(3)
}
