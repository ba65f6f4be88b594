package finding

import (
	"encoding/json"
	"errors"
	"testing"
)

func TestWhatIsWorstComesFirstAndForbids(t *testing.T) {
	starting := Finding{Severity: Wrong, Subject: "topic a", Setting: "leaders", Found: "1", Wanted: "2", Why: "so it is", Passes: true}
	off := Judged(false, Wrong, Finding{Subject: "the server", Setting: "fsync", Found: "off", Wanted: "on", Why: "all may be lost"})
	found := []Finding{
		Judged(true, Wrong, Finding{Subject: "the server", Setting: "version", Found: "17", Wanted: "15", Why: "unsaid"}),
		Unknown("role r", "rights", "enough", errors.New("no answer")),
		{Severity: Warning, Setting: "w"},
		starting, off,
	}
	if f := found[0]; f.Severity != Fine || f.Why != "" {
		t.Errorf("what is as wanted is %+v", f)
	}
	Sort(found)
	for i, want := range []Severity{Wrong, Wrong, Warning, Note, Fine} {
		if found[i].Severity != want {
			t.Errorf("place %d has %+v, want %s", i, found[i], want)
		}
	}
	if f, bad := Forbids(found); !bad || f != off {
		t.Errorf("what forbids is %+v, %v", f, bad)
	}
	if f, bad := Forbids([]Finding{starting}); bad {
		t.Errorf("what passes forbids: %+v", f)
	}
	if n := Unwell(found); n != 3 {
		t.Errorf("%d are unwell, want 3", n)
	}
	if got, want := off.Sentence(), "fsync of the server is off, and should be on: all may be lost"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if text, err := json.Marshal(starting); err != nil || string(text) != `{"severity":"error","subject":"topic a","setting":"leaders","found":"1","wanted":"2","why":"so it is"}` {
		t.Errorf("on the wire %s, %v", text, err)
	}
}
