package eventlog

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/unisink/unisink/coordinator/ledger"
)

func TestWatchersGetWhatIsRememberedThenWhatComes(t *testing.T) {
	l := New(4, slog.New(slog.DiscardHandler))
	for i := range 6 {
		l.Add(Event{Kind: Vote, Text: fmt.Sprint(i)})
	}
	got, changed := l.After(0)
	if len(got) != 4 || got[0].Text != "2" || got[0].Seq != 3 || got[3].Text != "5" {
		t.Fatalf("after 6 events in a ring of 4: %+v", got)
	}
	select {
	case <-changed:
		t.Fatal("told of a change that did not come")
	default:
	}
	l.Add(Event{Kind: Decided, Text: "6"})
	<-changed
	got, _ = l.After(got[3].Seq)
	if len(got) != 1 || got[0].Text != "6" {
		t.Fatalf("what came after: %+v", got)
	}
}

func TestAWatcherHoldsABoundedPartOfWhatIsRemembered(t *testing.T) {
	const many, few = 10_000, 200
	l := New(many, slog.New(slog.DiscardHandler))
	for range many {
		l.Add(Event{Kind: Vote})
	}
	var seen uint64
	for seen < many {
		got, changed := l.After(seen)
		if len(got) == 0 || len(got) > few {
			t.Fatalf("%d events at once behind %d, want 1 to %d", len(got), seen, few)
		}
		for _, e := range got {
			if e.Seq != seen+1 {
				t.Fatalf("event %d follows %d", e.Seq, seen)
			}
			seen = e.Seq
		}
		select {
		case <-changed:
			if seen == many {
				t.Fatal("told of more when there is none")
			}
		default:
			if seen < many {
				t.Fatalf("not told that there is more behind %d", seen)
			}
		}
	}
}

func TestEventsGoToTheLogAtTheLevelOfWhoMustAct(t *testing.T) {
	var out bytes.Buffer
	l := New(4, slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
	l.Add(Event{Kind: Vote, Member: "quiet"})
	l.Add(Event{
		Kind: Halted, Scope: ledger.ScopeID{Pipeline: "orders"}, Epoch: ledger.Epoch{Generation: 7, N: 12}, Text: "why",
	})
	s := out.String()
	if strings.Contains(s, "quiet") || !strings.Contains(s, "level=ERROR") || !strings.Contains(s, "orders/0") || !strings.Contains(s, "7.12") {
		t.Fatalf("log:\n%s", s)
	}
}

func TestEveryKindHasAName(t *testing.T) {
	for k := Leader; k <= Swept; k++ {
		if k.String() == "" {
			t.Errorf("kind %d has no name", k)
		}
	}
}

func TestWhatTheLogHeldAtTheStartIsNoNews(t *testing.T) {
	var out bytes.Buffer
	l := New(4, slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
	l.Add(Event{Kind: Halted, Text: "long ago", Again: true})
	if out.Len() != 0 {
		t.Fatalf("told again at every restart:\n%s", out.String())
	}
	if got, _ := l.After(0); len(got) != 1 {
		t.Fatalf("watchers see %d of 1", len(got))
	}
}
