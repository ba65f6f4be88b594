package server

import (
	"testing"

	"github.com/unisink/unisink/coordinator/alloctest"
	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// watched is a node that knows the most bytes that one look at its ledger took, and how many looks there were.
type watched struct {
	standing
	most  *uint64
	looks *int
}

func (w watched) View(read func(*ledger.Machine)) {
	*w.looks++
	*w.most = max(*w.most, alloctest.Bytes(func() { w.standing.View(read) }))
}

// Decisions wait for each look at the ledger. The list of resources counts all that is outstanding, in many short looks.
func TestResourcesAreListedInShortLooks(t *testing.T) {
	looks := 0 // of the last list
	listed := func(m *ledger.Machine) (got *unisinkv1.ListResourcesResponse, most uint64) {
		for range 5 { // others allocate meanwhile
			var one uint64
			looks = 0
			node := watched{standing{applied{shown: shown{m: m}, barriers: new(int)}}, &one, &looks}
			r := &resolution{s: &Server{c: Config{Node: node, Sessions: noSessions{}}}, reports: &reports{}}
			var err error
			if got, err = r.ListResources(t.Context(), &unisinkv1.ListResourcesRequest{}); err != nil {
				t.Fatal(err)
			}
			if most == 0 || one < most {
				most = one
			}
		}
		return got, most
	}
	const byHand, others = 6*handInALook + 1, 8*scopesInALook + 1
	_, few := listed(doubtful(t, 2*handInALook))
	got, many := listed(doubtful(t, byHand))
	if many > 2*few+alloctest.Slack {
		t.Errorf("one look takes %d bytes with %d by hand, %d with %d", few, 2*handInALook, many, byHand)
	}
	total := func() (unfinished, users int) {
		for _, x := range got.GetResources() {
			unfinished, users = unfinished+int(x.GetUnfinished()), users+len(x.GetUsedBy())
		}
		return unfinished, users
	}
	if n, _ := total(); n != byHand+1 {
		t.Errorf("%d are unfinished, want %d by hand and one of an epoch", n, byHand)
	}
	got, _ = listed(pipelined(t, others))
	if looks < others/scopesInALook {
		t.Errorf("%d looks at %d scopes, which is more than %d at one", looks, others+1, scopesInALook)
	}
	if _, n := total(); n != others+1 {
		t.Errorf("%d members use the resources, want %d", n, others+1)
	}
}
