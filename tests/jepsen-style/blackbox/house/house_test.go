package house_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/tests/jepsen-style/blackbox/house"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

func open(t *testing.T) (book *house.Book, h *house.House, history, socket string) {
	t.Helper()
	dir := t.TempDir()
	history, socket = filepath.Join(dir, "h"), filepath.Join(dir, "s")
	book, err := house.NewBook(history)
	if err != nil {
		t.Fatal(err)
	}
	if h, err = house.Open(book, socket); err != nil {
		t.Fatal(err)
	}
	return book, h, history, socket
}

func visit(t *testing.T, socket, who string) *house.Guest {
	t.Helper()
	g, err := house.Visit(socket, who)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestATransferIsPreparedAndCommittedFromAnotherProcess(t *testing.T) {
	book, h, history, socket := open(t)
	g := visit(t, socket, "t1")
	name := participant.BranchName{Namespace: participant.Namespace{Name: "ns", Incarnation: 1}, Txn: "01", Resource: house.Accounts}
	b, err := g.Begin(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	entry := house.Entry{Account: "a1", Cents: -7}
	b.(*house.Branch).Write(entry.String())
	vote, err := b.Prepare(t.Context())
	if err != nil || vote.Kind != participant.Yes {
		t.Fatalf("prepare: %v, %v", vote, err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	other := visit(t, socket, "t2")
	listed, err := other.List(t.Context(), name.Namespace)
	if err != nil || len(listed) != 1 || len(h.Prepared()) != 1 {
		t.Fatalf("listed %v, %v", listed, err)
	}
	proof, err := other.Commit(t.Context(), listed[0].Handle)
	if err != nil || proof.Verdict != participant.Committed {
		t.Fatalf("commit: %v, %v", proof, err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	events := end(t, book, h, history)
	i := slices.IndexFunc(events, func(e check.Event) bool { return e.Kind == check.Committed })
	if i < 1 || events[i-1].Kind != check.Prepared || events[i].Branch.Txn != "01" || !slices.Equal(events[i].Records, []string{entry.String()}) {
		t.Errorf("the book has %v", events)
	}
}

func end(t *testing.T, book *house.Book, h *house.House, history string) []check.Event {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := book.Close(); err != nil {
		t.Fatal(err)
	}
	events, err := house.Load(history)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func TestACallOfADeadCallerIsAnsweredUnknown(t *testing.T) {
	book, h, history, socket := open(t)
	g := visit(t, socket, "t1")
	asked := check.Event{Kind: check.Invoke, Op: house.OpCommit, Branch: check.Branch{Txn: "x"}}
	call, err := g.Note(asked)
	if err != nil {
		t.Fatal(err)
	}
	if txn, err := g.Recent(); err != nil || txn != "x" {
		t.Errorf("recent is %q, %v", txn, err)
	}
	if err := g.Close(); err != nil { // as its death does
		t.Fatal(err)
	}
	events := end(t, book, h, history)
	if n := len(events); n != 2 || events[1].Kind != check.Return || events[1].Call != call || events[1].Answer != check.AnswerUnknown || events[1].Who != "t1" {
		t.Errorf("the book has %v", events)
	}
	if c := book.Count(); c.Calls != 1 || c.Unknown != 1 {
		t.Errorf("counted %+v", c)
	}
}

func TestEntriesAreReadAsTheyAreWritten(t *testing.T) {
	for _, text := range []string{house.Entry{Account: "a3", Cents: -40}.String(), `{"account":"a3","cents":-40}`} {
		if e, err := house.ParseEntry(text); err != nil || e != (house.Entry{Account: "a3", Cents: -40}) {
			t.Errorf("%q is read as %+v, %v", text, e, err)
		}
	}
	for _, text := range []string{"gone: f", "{", ""} {
		if e, err := house.ParseEntry(text); err == nil {
			t.Errorf("%q is read as %+v", text, e)
		}
	}
}
