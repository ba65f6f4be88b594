package worker

import (
	"os"
	"path/filepath"
	"testing"
)

func TestATraceIsReadUpToItsLastWholeLine(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace")
	tr, err := openTrace(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []Event{
		{What: Opened, Places: []Place{{"in/0", 7}}},
		{What: Ordered, Generation: 3, N: 9},
		{What: Put, Part: "p.0.main.window.3.9.1", Bytes: 100, Entries: 5, Encoded: 6},
	} {
		if err := tr.tell(e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tr.file.WriteString(`{"what":"pu`); err != nil {
		t.Fatal(err)
	}
	if err := tr.file.Close(); err != nil {
		t.Fatal(err)
	}
	events, err := ReadTrace(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 3 || events[0].Places[0] != (Place{"in/0", 7}) || events[1].N != 9 || events[2].Encoded != 6 || events[2].AtUS == 0 {
		t.Errorf("read %+v", events)
	}
	if err := os.WriteFile(name, []byte("{\"what\":\"opened\"}\nx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTrace(name); err == nil {
		t.Error("a damaged line was taken for good")
	}
}
