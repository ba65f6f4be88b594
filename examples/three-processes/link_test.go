package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
)

func newInlet(t *testing.T) *inlet {
	t.Helper()
	in, err := listen("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.close)
	return in
}

func newOutlet(t *testing.T, in *inlet, generation uint64) *outlet {
	t.Helper()
	o, err := dial(t.Context(), in.listener.Addr().String(), generation)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.close)
	return o
}

// hungUp reports that the other end closed the connection, without a word.
func hungUp(t *testing.T, conn net.Conn) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(make([]byte, 1))
	var slow net.Error
	return n == 0 && err != nil && (!errors.As(err, &slow) || !slow.Timeout())
}

func TestOnlyOneLinkOfThePresentGenerationIsLetIn(t *testing.T) {
	in := newInlet(t)
	if !hungUp(t, newOutlet(t, in, 1).conn) {
		t.Error("a link was let in before any restore")
	}
	in.open(2)
	for _, generation := range []uint64{1, 3} {
		if !hungUp(t, newOutlet(t, in, generation).conn) {
			t.Errorf("a link of generation %d was let into generation 2", generation)
		}
	}
	newOutlet(t, in, 2)
	if _, err := in.accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !hungUp(t, newOutlet(t, in, 2).conn) {
		t.Error("a second link was let in")
	}
}

func TestWhatDoesNotSpeakTheProtocolIsHungUpOn(t *testing.T) {
	in := newInlet(t)
	in.open(1)
	for _, said := range []string{"GET / HTTP/1.1\n", `{"record":{}}` + "\n", "{}\n", string(bytes.Repeat([]byte("x"), maxLine+1))} {
		conn, err := net.Dial("tcp", in.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		if !hungUp(t, conn) {
			t.Errorf("%.20q was let in", said)
		}
		_ = conn.Close() // done with
	}
}

func TestZ5_ARestoreDropsWhatAnOlderLinkHeld(t *testing.T) {
	in := newInlet(t)
	in.open(1)
	old := newOutlet(t, in, 1)
	if err := errors.Join(old.record("old"), old.flush()); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the link of generation 1 to wait", func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		return in.taken
	})
	in.open(2)
	if !hungUp(t, old.conn) {
		t.Error("the older link stays")
	}
	next := newOutlet(t, in, 2)
	if err := errors.Join(next.record("new"), next.barrier(participant.Barrier{Generation: 2, N: 1, Final: true})); err != nil {
		t.Fatal(err)
	}
	r, err := in.accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f, err := r.read(); err != nil || string(f.Record) != `"new"` {
		t.Errorf("first record %s, error %v", f.Record, err)
	}
	if f, err := r.read(); err != nil || f.Barrier == nil || *f.Barrier != (participant.Barrier{Generation: 2, N: 1, Final: true}) {
		t.Errorf("then %+v, error %v", f.Barrier, err)
	}
}

func TestAReceiverThatDoesNotReadHoldsTheSenderBack(t *testing.T) {
	in := newInlet(t)
	in.open(1)
	o := newOutlet(t, in, 1)
	r, err := in.accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const many = 20_000
	sent := make(chan error, 1)
	go func() {
		for n := range int64(many) {
			if err := o.record(recordAt(n)); err != nil {
				sent <- err
				return
			}
		}
		sent <- o.flush()
	}()
	if within(300*time.Millisecond, func() bool { return len(sent) > 0 }) {
		t.Fatalf("%d records left although nobody reads: %v", many, <-sent)
	}
	for n := range int64(many) {
		f, err := r.read()
		var got record
		if err == nil {
			err = json.Unmarshal(f.Record, &got)
		}
		if err != nil || got != recordAt(n) {
			t.Fatalf("record %d arrived as %+v, error %v", n, got, err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestTheEndOfAGenerationEndsAWriteThatWaits(t *testing.T) {
	in := newInlet(t)
	in.open(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o, err := dial(ctx, in.listener.Addr().String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	ended := make(chan error, 1)
	go func() {
		for {
			if err := o.record(recordAt(0)); err != nil {
				ended <- err
				return
			}
		}
	}()
	cancel()
	eventually(t, patience, "the sender to end", func() bool { return len(ended) > 0 })
}

func FuzzParseFrame(f *testing.F) {
	for _, line := range []string{
		`{"hello":{"generation":7}}`, `{"record":{"n":1,"key":"k0","at":5}}`, `{"record":null}`,
		`{"barrier":{"Generation":7,"N":3,"Final":true,"Drain":false}}`, `{"hello":{},"record":1}`, `{}`, ``, `[`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		first, err := parseFrame(line)
		if err != nil {
			if !errors.Is(err, errFrame) {
				t.Errorf("an error without its class: %v", err)
			}
			return
		}
		text, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		second, err := parseFrame(text)
		if err != nil {
			t.Fatalf("%s was read and written as %s, which can't be read: %v", line, text, err)
		}
		if again, err := json.Marshal(second); err != nil || !bytes.Equal(again, text) {
			t.Errorf("%s, then %s", text, again)
		}
	})
}
