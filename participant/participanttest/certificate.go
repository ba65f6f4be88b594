package participanttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/unisink/unisink/participant"
)

// Certificate tells what a run of the kit has shown of an adapter, and what it has not.
type Certificate struct {
	Adapter string // the test's name
	// Of says what was checked: "source" or "sink", from processortest; empty for a resource.
	Of string
	// Claims are what the adapter says of itself. What it does not claim is not asked of it.
	Claims participant.Description
	Passed []string // names of checks
	Failed []string
	// Gaps are what nobody has looked at, though the contract asks for it.
	Gaps []Gap
	// Figures are what was measured, by check.
	Figures map[string]string

	left int // checks that -run left out
}

// Gap is something that is not certified.
type Gap struct{ Check, Why string }

// Require fails the test for each gap of a check that is not among the exceptions, so that what is
// certified today does not get lost unseen. Checks that -run left out are not looked at.
func (c Certificate) Require(t testing.TB, except ...string) {
	t.Helper()
	for _, g := range c.Gaps {
		if !slices.Contains(except, g.Check) {
			t.Errorf("%q is not certified: %s", g.Check, g.Why)
		}
	}
}

// Certifies reports whether a check ran, passed, and looked at all that it should.
func (c Certificate) Certifies(check string) bool {
	for _, g := range c.Gaps {
		if g.Check == check {
			return false
		}
	}
	return slices.Contains(c.Passed, check)
}

func (c *Certificate) add(check string, ran, ok bool, said *remarks) {
	switch {
	case !ran: // -run has left it out
		c.left++
	case !ok:
		c.Failed = append(c.Failed, check)
	case len(said.gaps) == 0:
		c.Passed = append(c.Passed, check)
	}
	for _, why := range said.gaps {
		c.Gaps = append(c.Gaps, Gap{check, why})
	}
	if said.figure != "" {
		if c.Figures == nil {
			c.Figures = map[string]string{}
		}
		c.Figures[check] = said.figure
	}
}

// String is the certificate for people: first the claims, then what is certified, then what is not.
func (c Certificate) String() string {
	var s strings.Builder
	if c.Of != "" {
		fmt.Fprintf(&s, "certificate of %s, a %s\n", c.Adapter, c.Of)
	} else {
		c.writeClaims(&s)
	}
	for _, name := range c.Passed {
		fmt.Fprintf(&s, "  certified      %s", name)
		if f := c.Figures[name]; f != "" {
			fmt.Fprintf(&s, " (%s)", f)
		}
		s.WriteByte('\n')
	}
	for _, g := range c.Gaps {
		fmt.Fprintf(&s, "  NOT CERTIFIED  %s: %s\n", g.Check, g.Why)
	}
	for _, name := range c.Failed {
		fmt.Fprintf(&s, "  FAILED         %s\n", name)
	}
	fmt.Fprintf(&s, "%d certified, %d not certified, %d failed", len(c.Passed), len(c.Gaps), len(c.Failed))
	if c.left > 0 {
		fmt.Fprintf(&s, ", %d did not run", c.left)
	}
	return s.String()
}

func (c Certificate) writeClaims(s *strings.Builder) {
	yes := map[bool]string{true: "yes", false: "no"}
	fmt.Fprintf(s, "certificate of %s: %s (%s)\n", c.Adapter, c.Claims.Kind, c.Claims.Text)
	proofs := "read from the resource"
	if c.Claims.Asserted {
		proofs = "asserted: a call's success"
	}
	fmt.Fprintf(s, "claims: lists what is prepared: %s; drops prepared work by itself: %s; proofs are %s\n",
		yes[c.Claims.CanList], yes[c.Claims.Bounded], proofs)
}
