package access

import (
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
)

// The library ends a call, and does not send it, when a header holds anything but printable ASCII; only those whose
// names end in -bin take all bytes.
func TestACallIsHandedOnWhateverItsCallersNameIs(t *testing.T) {
	for _, name := range []string{"ada", "Jörg Müller", "ops\n\x01", "操作員", `a "quoted" one`} {
		g := guarded()
		out, _ := metadata.FromOutgoingContext(g.HandOn(by(certified(name, "operator")), "n1"))
		if len(out.Get(callerHeader)) != 1 || len(out.Get(rolesHeader)) != 1 {
			t.Fatalf("%q: handed on with %v", name, out)
		}
		for key, values := range out {
			for _, v := range values {
				if !strings.HasSuffix(key, "-bin") && strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) {
					t.Errorf("%q: the header %s is %q", name, key, v)
				}
			}
		}
		// The leader has to take it for the same caller, who may have come to it before.
		seen := g.identify(by(certified("n1"), hopHeader, "n1", nameHeader, out.Get(nameHeader)[0], rolesHeader, "operator"))
		caller := g.Caller(by(certified("n1"), hopHeader, "n1", callerHeader, out.Get(callerHeader)[0]))
		if seen.name != name || caller != g.Caller(by(certified(name))) {
			t.Errorf("%q: the leader sees %q, called %q", name, seen.name, caller)
		}
	}
}
