package participant

import (
	"fmt"
	"testing"
	"time"
)

// Whether an id need not be asked about, by what has happened to the client and to its clock since another was taken.
func TestAnIDIsAskedAboutUnlessItIsSurelyUnknown(t *testing.T) {
	at := func(wall, on time.Duration) moment {
		return moment{wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(wall), on: on}
	}
	s := time.Second
	for what, x := range map[string]struct {
		run  func(i *ids)
		now  moment
		want bool
	}{
		"drawn and used at once":             {func(i *ids) { i.draw("x", at(s, s)) }, at(s, s), true},
		"drawn a while ago":                  {func(i *ids) { i.draw("x", at(s, s)) }, at(5*s, 5*s), true},
		"drawn elsewhere":                    {func(*ids) {}, at(s, s), false},
		"used before":                        {func(i *ids) { i.draw("x", at(s, s)); i.use("x", at(s, s)) }, at(s, s), false},
		"drawn too long ago":                 {func(i *ids) { i.draw("x", at(s, s)); i.took(at(7*s, 7*s)) }, at(8*s, 8*s), false},
		"no other was taken lately":          {func(i *ids) { i.draw("x", at(6*s, 6*s)) }, at(6*s, 6*s), false},
		"the coordinator was silent":         {func(i *ids) { i.draw("x", at(s, s)); i.doubt() }, at(s, s), false},
		"it has answered since":              {func(i *ids) { i.draw("x", at(s, s)); i.doubt(); i.took(at(s, s)) }, at(s, s), true},
		"the clock was set forward":          {func(i *ids) { i.draw("x", at(3*s, s)) }, at(3*s, s), false},
		"the clock was set back":             {func(i *ids) { i.draw("x", at(-time.Hour, s)) }, at(-time.Hour, s), false},
		"set right again after it was drawn": {func(i *ids) { i.draw("x", at(time.Hour, s)) }, at(s, s), false},
		"an older one was taken meanwhile":   {func(i *ids) { i.draw("x", at(5*s, 5*s)); i.took(at(5*s, 5*s)); i.took(at(0, 0)) }, at(9*s, 9*s), true},
	} {
		i := newIDs()
		i.took(at(0, 0))
		x.run(i)
		if _, got := i.use("x", x.now); got != x.want {
			t.Errorf("%s: it need not be asked about: %v, want %v", what, got, x.want)
		}
	}
	if i := newIDs(); i.taken.zero() {
		i.draw("x", at(0, 0))
		if _, unknown := i.use("x", at(0, 0)); unknown {
			t.Error("the first id of a client is not asked about")
		}
	}
}

func TestIDsThatNobodyUsesAreForgotten(t *testing.T) {
	i, now := newIDs(), moment{wall: time.Now(), on: time.Second}
	for n := range manyDrawn + 10 {
		i.draw(fmt.Sprint(n), now)
	}
	if len(i.drawn) != manyDrawn {
		t.Errorf("%d ids are remembered", len(i.drawn))
	}
	i.draw("later", moment{wall: now.wall, on: now.on + trusted + 1})
	if len(i.drawn) != 1 {
		t.Errorf("%d ids are remembered", len(i.drawn))
	}
}
