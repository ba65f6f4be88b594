package resolver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// In a great disaster a report must still be one that a node takes.
func TestAReportIsNeverTooLongToBeTaken(t *testing.T) {
	for name, c := range map[string]struct{ troubles, inDoubt int }{
		"nothing": {0, 0}, "a little": {20, 20}, "much that fails": {9000, 20}, "much in doubt": {20, 9000}, "both": {9000, 9000},
	} {
		l := newLane(nil, Resource{Text: "one"})
		for n := range c.troubles {
			b := &unisinkv1.BranchRef{Txn: time.UnixMilli(int64(n)).String(), Resource: "out"}
			l.chains[chainOf(b)] = &try{err: errors.New(strings.Repeat("x", 500)), branch: b}
		}
		l.tell()
		for range c.inDoubt {
			l.said.inDoubt = append(l.said.inDoubt, &unisinkv1.InDoubtFind{Why: strings.Repeat("y", 500)})
		}
		got := (&Resolver{lanes: []*lane{l}}).said()
		if size := proto.Size(got); size > mostReport {
			t.Errorf("%s: %d bytes", name, size)
		}
		if c.troubles <= 20 && len(got.GetTroubles()) != c.troubles && c.inDoubt <= 20 || c.inDoubt <= 20 && len(got.GetInDoubt()) != c.inDoubt || len(got.GetResources()) != 1 {
			t.Errorf("%s: %d troubles, %d in doubt and %d resources are told", name, len(got.GetTroubles()), len(got.GetInDoubt()), len(got.GetResources()))
		}
		if c.inDoubt > 0 && len(got.GetInDoubt()) == 0 {
			t.Errorf("%s: nothing in doubt is told", name)
		}
	}
}
