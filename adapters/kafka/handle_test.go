package kafka

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unisink/unisink/participant"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sample is a handle with everything in it.
func sample() *body {
	offsets := int32(17)
	return &body{
		Cluster: "qY3pT0mvQvG3tZ0c9mJpUA", TxnID: "prod.orders.0.all.totals.7.1", PID: 4023, Epoch: 12, Class: classNew,
		Branch:  "prod.orders.0.all.totals.7.42",
		Witness: &witness{Group: "unisink.prod.orders.0.all.totals", Topic: "__consumer_offsets", Partition: 9},
		Offsets: &offsets,
		Topics: []span{
			{Topic: "late", ID: make([]byte, 16), Parts: [][]int64{{0, 5, 0, 1}}},
			{Topic: "totals", ID: []byte("0123456789abcdef"), Parts: [][]int64{{0, 100, 49, 50}, {2, 7, 9, 10}}},
		},
	}
}

// sampleByHand is one of a transaction by hand.
func sampleByHand() *body {
	b := sample()
	b.TxnID = "prod._hand.0.teller.totals.1764500000000.1"
	b.Branch = "prod.0199a1b2-0000-7000-8000-000000000001.totals"
	return b
}

func TestStoredHandleGoesOnDecoding(t *testing.T) {
	for file, sample := range map[string]func() *body{"handle.v1.json": sample, "handle.v2.json": sampleByHand} {
		t.Run(file, func(t *testing.T) { goesOnDecoding(t, file, sample) })
	}
}

func goesOnDecoding(t *testing.T, file string, sample func() *body) {
	h, err := sample().encode("totals")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(struct {
		participant.Handle
		Body string
	}{h, string(h.Body)}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)+"\n"); d != "" {
		t.Errorf("the stored form changed (-want +got); handles in ledgers have the old one:\n%s", d)
	}
	b, err := decode(h)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample(), b); d != "" {
		t.Errorf("decoded (-want +got):\n%s", d)
	}
}

// What was prepared by hand before its name told of which transaction is finished like any other.
func TestAHandleByHandOfBeforeGoesOnDecoding(t *testing.T) {
	old := participant.Handle{
		Kind: Kind, Version: 1, Identity: "c", Alias: "totals", Name: "prod._hand.0.teller.totals.1764500000000.1|4023|12",
		Body: []byte(`{"cluster":"c","txn":"prod._hand.0.teller.totals.1764500000000.1","pid":4023,"epoch":12,"class":5,` +
			`"branch":"prod.0199a1b2-0000-7000-8000-000000000001.totals","topics":[{"t":"totals","p":[[0,100,49,50]]}]}`),
	}
	b, err := decode(old)
	if err != nil {
		t.Fatal(err)
	}
	if b.name() != old.Name {
		t.Errorf("it is %s in the cluster, and was named %s", b.name(), old.Name)
	}
}

// A handle by hand names one transaction, in its name and in its body alike.
func TestAHandleByHandIsOfOneTransaction(t *testing.T) {
	h, err := sampleByHand().encode("totals")
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := sample().encode("totals")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(h *participant.Handle){
		"the name of another transaction": func(h *participant.Handle) {
			h.Name = strings.Replace(h.Name, "000000000001.totals|", "000000000002.totals|", 1)
		},
		"the body of another transaction": func(h *participant.Handle) {
			h.Body = bytes.Replace(h.Body, []byte("000000000001.totals"), []byte("000000000002.totals"), 1)
		},
		"another producer":               func(h *participant.Handle) { h.Name += "0" },
		"no transaction":                 func(h *participant.Handle) { _, h.Name, _ = strings.Cut(h.Name, "|") },
		"as the older version has it":    func(h *participant.Handle) { h.Version = handleVersion },
		"an epoch's body":                func(h *participant.Handle) { h.Body = epoch.Body },
		"an epoch's, said to be by hand": func(h *participant.Handle) { h.Name, h.Body = epoch.Name+"|", epoch.Body },
	} {
		other := h
		change(&other)
		if _, err := decode(other); !errors.Is(err, participant.ErrBug) {
			t.Errorf("%s: %v, want a bug", name, err)
		}
	}
}

func TestHandleOfManyPartitionsIsRefusedWithTheReason(t *testing.T) {
	b := sample()
	for i := range int64(5000) {
		b.Topics[0].Parts = append(b.Topics[0].Parts, []int64{i, i * 1e6, 1e4, 1e4})
	}
	if _, err := b.encode("totals"); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("encode: %v, want misconfigured", err)
	}
	b.Topics[0].Parts = b.Topics[0].Parts[:300]
	if h, err := b.encode("totals"); err != nil || len(h.Body) > participant.MaxHandle {
		t.Errorf("300 partitions: %d bytes, %v", len(h.Body), err)
	}
}

func TestHandlesOfOthersAreLeftAlone(t *testing.T) {
	h, err := sample().encode("totals")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*participant.Handle){
		"another kind":    func(h *participant.Handle) { h.Kind = "file" },
		"a newer version": func(h *participant.Handle) { h.Version = handleByHand + 1 },
	} {
		other := h
		change(&other)
		if _, err := decode(other); !errors.Is(err, participant.ErrUnknownHandle) {
			t.Errorf("%s: %v, want unknown handle", name, err)
		}
	}
	other := h
	other.Name += "0"
	if _, err := decode(other); !errors.Is(err, participant.ErrBug) {
		t.Errorf("a name that is not the body's: %v, want a bug", err)
	}
}

func FuzzDecode(f *testing.F) {
	h, err := sample().encode("totals")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(h.Body)
	f.Add([]byte(`{"topics":[{"t":"x","p":[[1,2]]}]}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decode(participant.Handle{Kind: Kind, Version: handleVersion, Identity: "c", Name: h.Name, Body: data})
		if err != nil {
			return
		}
		b.partitions(func(string, int32) {})
		if _, err := b.encode("a"); err != nil && !errors.Is(err, participant.ErrMisconfigured) {
			t.Errorf("decoded, and cannot be encoded: %v", err)
		}
	})
}
