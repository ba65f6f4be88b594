package fault

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPlanNamesPointHitAndAction(t *testing.T) {
	got, err := parse("file/before-rename=crash, kafka/vote@3=pause:1500ms ,file/rename@1=error,")
	if err != nil {
		t.Fatal(err)
	}
	want := []rule{
		{name: "file/before-rename", action: crash},
		{name: "kafka/vote", hit: 3, action: pause, pause: 1500 * time.Millisecond},
		{name: "file/rename", hit: 1, action: fail},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(rule{})); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestPlanThatCannotBeReadIsRefused(t *testing.T) {
	for _, plan := range []string{
		"file/rename",             // no action
		"file/rename=",            // no action either
		"file/rename=explode",     // unknown action
		"file/rename@0=crash",     // hits count from 1
		"file/rename@x=crash",     // not a number
		"file/rename=pause:",      // no duration
		"file/rename=pause:soon",  // not a duration
		"file/rename=pause:-1s",   // would not pause
		"=crash",                  // no name
		"File Rename=crash",       // not a point's name
		"a/b=crash,file/rename=x", // second of two
	} {
		if rules, err := parse(plan); err == nil {
			t.Errorf("plan %q was read as %v", plan, rules)
		} else if !strings.Contains(err.Error(), "want name[@n]=") {
			t.Errorf("plan %q: %q does not say what an entry looks like", plan, err)
		}
	}
}

func FuzzPlanNeverPanics(f *testing.F) {
	f.Add("file/before-rename@2=crash,kafka/vote=pause:1s")
	f.Add("a=error")
	f.Add("@=:,,=")
	f.Fuzz(func(t *testing.T, plan string) {
		rules, err := parse(plan)
		if err != nil {
			return
		}
		for _, r := range rules {
			if r.action == actionUnset || !validName(r.name) || (r.action == pause) != (r.pause > 0) {
				t.Errorf("plan %q: accepted the rule %+v", plan, r)
			}
		}
	})
}
