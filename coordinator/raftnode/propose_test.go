package raftnode

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
)

// fakeLog takes entries and answers them when told, each command with its place in the log.
type fakeLog struct {
	entries [][]byte
	answer  chan error // one for each entry
	total   uint64
}

type fakeFuture struct {
	raft.ApplyFuture
	log     *fakeLog
	results []ledger.Result
}

func (f *fakeFuture) Error() error  { return <-f.log.answer }
func (f *fakeFuture) Response() any { return f.results }

func (l *fakeLog) apply(entry []byte) raft.ApplyFuture {
	l.entries = append(l.entries, entry)
	commands, err := decodeEntry(entry)
	if err != nil {
		panic(err)
	}
	future := &fakeFuture{log: l}
	for range commands {
		l.total++
		future.results = append(future.results, ledger.Result{Index: l.total})
	}
	return future
}

// proposing runs f with a proposer that may have one entry on its way.
func proposing(t *testing.T, inFlight int, f func(*testing.T, *proposer, *fakeLog)) {
	t.Helper()
	proposingBeside(t, inFlight, 1, f)
}

// proposingBeside runs f with a proposer that may have so many entries on their way.
func proposingBeside(t *testing.T, inFlight, window int, f func(*testing.T, *proposer, *fakeLog)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{answer: make(chan error)}
		p := newProposer(inFlight, window, newFailStop(func(error) {}), log.apply)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); p.run(ctx) }()
		f(t, p, log)
		cancel()
		<-ended
		close(log.answer)
		p.awaits.Wait()
		p.close()
	})
}

func someCommand(t *testing.T, why string) encoded {
	t.Helper()
	c, err := encodeCommand(ledger.Command{Request: "r", Body: ledger.PresumeAbort{Txn: "t", Why: why}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type answer struct {
	result ledger.Result
	err    error
}

func ask(ctx context.Context, p *proposer, c encoded, barrier bool) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		r, err := p.submit(ctx, c, barrier)
		out <- answer{r, err}
	}()
	synctest.Wait()
	return out
}

func TestWhatArrivesWhileAnEntryIsOnItsWaySharesTheNext(t *testing.T) {
	proposing(t, 10, func(t *testing.T, p *proposer, log *fakeLog) {
		first := ask(t.Context(), p, someCommand(t, "first"), false)
		second := ask(t.Context(), p, someCommand(t, "second"), false)
		barrier := ask(t.Context(), p, encoded{}, true)
		third := ask(t.Context(), p, someCommand(t, "third"), false)
		if len(log.entries) != 1 {
			t.Fatalf("%d entries while the first is on its way", len(log.entries))
		}
		log.answer <- nil
		if got := <-first; got.err != nil || got.result.Index != 1 {
			t.Errorf("the first got %+v", got)
		}
		synctest.Wait()
		if len(log.entries) != 2 {
			t.Fatalf("%d entries", len(log.entries))
		}
		log.answer <- nil
		for want, ch := range map[uint64]<-chan answer{2: second, 0: barrier, 3: third} {
			if got := <-ch; got.err != nil || got.result.Index != want {
				t.Errorf("got %+v, want place %d", got, want)
			}
		}
	})
}

func TestASecondEntryLeavesBesideTheFirstOnlyWithACrowd(t *testing.T) {
	proposingBeside(t, 200, 2, func(t *testing.T, p *proposer, log *fakeLog) {
		asked := []<-chan answer{ask(t.Context(), p, someCommand(t, "alone"), false)}
		for range crowd {
			asked = append(asked, ask(t.Context(), p, someCommand(t, "few"), false))
		}
		if len(log.entries) != 1 {
			t.Fatalf("%d entries while the first is on its way and %d wait", len(log.entries), crowd)
		}
		asked = append(asked, ask(t.Context(), p, someCommand(t, "many"), false)) // one is in hand already
		if len(log.entries) != 2 {
			t.Fatalf("%d entries while the first is on its way and %d wait", len(log.entries), crowd+1)
		}
		for range 3 * crowd { // two are on their way, and no third
			asked = append(asked, ask(t.Context(), p, someCommand(t, "more"), false))
		}
		if len(log.entries) != 2 {
			t.Fatalf("%d entries", len(log.entries))
		}
		log.answer <- nil
		log.answer <- nil
		synctest.Wait()
		if len(log.entries) != 3 {
			t.Fatalf("%d entries after two came back", len(log.entries))
		}
		log.answer <- nil
		for i, a := range asked {
			if got := <-a; got.err != nil {
				t.Errorf("caller %d: %+v", i, got)
			}
		}
	})
}

// While one entry is on its way a few wait, and leave together when it has come back, with an error too.
func TestAFewLeaveTogetherWhenTheEntryHasComeBack(t *testing.T) {
	proposingBeside(t, 10, 2, func(t *testing.T, p *proposer, log *fakeLog) {
		first := ask(t.Context(), p, someCommand(t, "first"), false)
		second := ask(t.Context(), p, someCommand(t, "second"), false)
		third := ask(t.Context(), p, someCommand(t, "third"), false)
		if len(log.entries) != 1 {
			t.Fatalf("%d entries", len(log.entries))
		}
		log.answer <- raft.ErrLeadershipLost
		if got := <-first; !errors.Is(got.err, ErrUnknown) {
			t.Errorf("the first got %+v", got)
		}
		synctest.Wait()
		if len(log.entries) != 2 {
			t.Fatalf("%d entries", len(log.entries))
		}
		log.answer <- nil
		for _, a := range []<-chan answer{second, third} {
			if got := <-a; got.err != nil {
				t.Errorf("got %+v", got)
			}
		}
	})
}

func TestACallerWhoseTimeIsUpBeforeItsCommandLeftWasNeverProposed(t *testing.T) {
	proposing(t, 10, func(t *testing.T, p *proposer, log *fakeLog) {
		sent, cancelSent := context.WithCancel(t.Context())
		first := ask(sent, p, someCommand(t, "first"), false)
		waiting, cancelWaiting := context.WithCancel(t.Context())
		second := ask(waiting, p, someCommand(t, "never-sent"), false)
		cancelWaiting()
		if got := <-second; !errors.Is(got.err, ErrOverloaded) || errors.Is(got.err, ErrUnknown) {
			t.Errorf("the one in the queue got %v", got.err)
		}
		cancelSent()
		if got := <-first; !errors.Is(got.err, ErrUnknown) {
			t.Errorf("the one on its way got %v", got.err)
		}
		log.answer <- nil
		third := ask(t.Context(), p, someCommand(t, "third"), false)
		log.answer <- nil
		if got := <-third; got.err != nil {
			t.Error(got.err)
		}
		if bytes.Contains(bytes.Join(log.entries, nil), []byte("never-sent")) {
			t.Error("the abandoned command was proposed")
		}
	})
}

func TestPlacesInFlightAreFreeAgainOnlyWhenTheEntrysFateIsKnown(t *testing.T) {
	proposing(t, 1, func(t *testing.T, p *proposer, log *fakeLog) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := ask(ctx, p, someCommand(t, "first"), false)
		if got := <-first; !errors.Is(got.err, ErrUnknown) {
			t.Fatalf("the first got %v", got.err)
		}
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		if got := <-ask(short, p, someCommand(t, "second"), false); !errors.Is(got.err, ErrOverloaded) {
			t.Errorf("the second got %v, though the first is still on its way", got.err)
		}
		log.answer <- raft.ErrLeadershipLost
		synctest.Wait()
		third := ask(t.Context(), p, someCommand(t, "third"), false)
		log.answer <- raft.ErrNotLeader
		if got := <-third; !errors.Is(got.err, ErrNotLeader) {
			t.Errorf("the third got %v", got.err)
		}
	})
}

func TestAnEntryStaysSmallUnlessOneCommandIsLarge(t *testing.T) {
	proposing(t, 100, func(t *testing.T, p *proposer, log *fakeLog) {
		var asked []<-chan answer
		asked = append(asked, ask(t.Context(), p, someCommand(t, "first"), false))
		for range 20 {
			asked = append(asked, ask(t.Context(), p, someCommand(t, strings.Repeat("x", 10_000)), false))
		}
		asked = append(asked, ask(t.Context(), p, someCommand(t, strings.Repeat("y", 200_000)), false))
		go func() {
			for range asked {
				log.answer <- nil // more than there are entries
			}
		}()
		for _, ch := range asked {
			if got := <-ch; got.err != nil {
				t.Fatal(got.err)
			}
		}
		large := 0
		for _, e := range log.entries {
			if len(e) > entryBytes {
				large++
				if commands, err := decodeEntry(e); err != nil || len(commands) != 1 {
					t.Errorf("%d commands share an entry of %d bytes, %v", len(commands), len(e), err)
				}
			}
		}
		if large != 1 || len(log.entries) > 8 {
			t.Errorf("%d large ones of %d entries", large, len(log.entries))
		}
		for range len(asked) - len(log.entries) {
			if err := <-log.answer; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestProposalsInFlightAreBoundedInNumberAndBytes: nobody answers, so whatever is admitted stays.
func TestProposalsInFlightAreBoundedInNumberAndBytes(t *testing.T) {
	for name, c := range map[string]struct {
		inFlight, bytes, want int
	}{
		"number": {inFlight: 7, bytes: 10, want: 7},
		"bytes":  {inFlight: 512, bytes: MaxCommandBytes - 100, want: 16},
	} {
		t.Run(name, func(t *testing.T) {
			proposing(t, c.inFlight, func(t *testing.T, p *proposer, log *fakeLog) {
				ctx, cancel := context.WithCancel(t.Context())
				command := someCommand(t, strings.Repeat("x", c.bytes))
				for range c.want {
					ask(ctx, p, command, false)
				}
				if n := p.waiting.Load(); n != 0 {
					t.Errorf("%d of %d wait for a place", n, c.want)
				}
				ask(ctx, p, command, false)
				if n := p.waiting.Load(); n != 1 {
					t.Errorf("one more than %d was let in flight", c.want)
				}
				cancel()
			})
		})
	}
}

func TestACommandThatIsTooLargeOrNotTextIsNeverProposed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		huge := ledger.Command{Body: ledger.PresumeAbort{Txn: "t", Why: strings.Repeat("x", MaxCommandBytes)}}
		if _, err := l.Propose(t.Context(), huge); !errors.Is(err, ErrTooLarge) {
			t.Errorf("a huge command: %v", err)
		}
		for _, bad := range []ledger.Command{{}, {Request: "\xff", Body: ledger.Retire{}}} {
			if _, err := l.Propose(t.Context(), bad); err == nil || errors.Is(err, ErrUnknown) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
	})
}
