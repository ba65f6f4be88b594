package show_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/tests/jepsen-style/blackbox/show"
)

func TestAPageHasEverythingAndNeedsNothing(t *testing.T) {
	var page bytes.Buffer
	err := show.Write(&page, show.Page{
		Title: "a run", Line: "VERDICT <passed>", Length: time.Hour,
		Rows:  []show.Row{{Name: "money", State: "kept", Text: "adds up"}, {Name: "C2", State: "broken", Bad: true}},
		Lanes: []show.Lane{{Name: "n1", Spans: []show.Span{{From: time.Minute, To: 2 * time.Minute, Class: show.Kill, Text: "kill a node & more"}}}},
		Bars:  []show.Bars{{Name: "calls", Counts: []show.Count{{Class: show.Good, Text: "committed", Number: map[int]int{3: 5}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, want := range []string{"VERDICT &lt;passed&gt;", "kill a node &amp; more", "3 s: 5 committed", `class="kill"`, "1h0m0s", "adds up"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), "http") {
		t.Error("the page wants something from outside")
	}
	// The picture is well-formed.
	svg := text[strings.Index(text, "<svg"):strings.Index(text, "</div>")]
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the picture: %v", err)
		}
	}
}
