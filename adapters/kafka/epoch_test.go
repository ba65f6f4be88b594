package kafka

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

func TestRecordsCarryTheirEpochOnce(t *testing.T) {
	stale := stream.Header{Key: EpochHeader, Value: []byte("3.4")} // brought along from another sink's topic
	own := stream.Header{Key: "trace", Value: []byte("t")}
	for name, c := range map[string]struct {
		header string
		byHand bool
		want   map[string]string // value of the record -> its headers
	}{
		"by default":     {want: map[string]string{"bare": "unisink-epoch=7.1 ", "rich": "trace=t unisink-epoch=7.1 "}},
		"by another key": {header: "epoch", want: map[string]string{"bare": "epoch=7.1 ", "rich": "unisink-epoch=3.4 trace=t epoch=7.1 "}},
		"not at all":     {header: NoEpochHeader, want: map[string]string{"bare": "", "rich": "unisink-epoch=3.4 trace=t "}},
		"by hand":        {byHand: true, want: map[string]string{"bare": "", "rich": "unisink-epoch=3.4 trace=t "}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := r.opened(7, func(cfg *SinkConfig) { cfg.EpochHeader = c.header })
			epoch := r.name(7, 1)
			if c.byHand {
				epoch = participant.BranchName{Namespace: r.opening(7).Namespace, Txn: "0199a1b2", Resource: "totals"}
			}
			b, err := s.Begin(t.Context(), epoch)
			if err != nil {
				t.Fatal(err)
			}
			records := []stream.Record{{Value: []byte("bare")}, {Value: []byte("rich"), Headers: []stream.Header{stale, own}}}
			if err := b.(*Branch).Write(t.Context(), records); err != nil {
				t.Fatal(err)
			}
			v, err := b.Prepare(t.Context())
			if err != nil || v.Kind != participant.Yes {
				t.Fatalf("prepare: %+v, %v", v, err)
			}
			r.commit(s, v.Handle, participant.Committed)
			got := map[string]string{}
			err = r.a.ReadAll(t.Context(), r.topic, true, nil, nil, func(rec *stream.Record) error {
				headers := ""
				for _, h := range rec.Headers {
					headers += fmt.Sprintf("%s=%s ", h.Key, h.Value)
				}
				got[string(rec.Value)] = headers
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("headers (-want +got):\n%s", d)
			}
		})
	}
}

// Who wrote before another sink is not the epoch that the record was committed in.
func TestOfSeveralEpochsTheSinksOwnCounts(t *testing.T) {
	r := &stream.Record{Headers: []stream.Header{
		{Key: EpochHeader, Value: []byte("3.4")}, {Key: EpochHeader, Value: []byte("7.12")}, {Key: "trace", Value: []byte("t")},
	}}
	if g, n, ok := EpochOf(r); !ok || g != 7 || n != 12 {
		t.Errorf("got %d.%d, %v", g, n, ok)
	}
}

func ExampleEpochOf() {
	r := &stream.Record{Headers: []stream.Header{{Key: EpochHeader, Value: []byte("7.12")}}}
	generation, n, ok := EpochOf(r)
	fmt.Println(generation, n, ok)
	_, _, ok = EpochOf(&stream.Record{})
	fmt.Println(ok)
	// Output:
	// 7 12 true
	// false
}

// Headers are others' bytes: what is read as an epoch is written as one.
func FuzzEpochOf(f *testing.F) {
	for _, seed := range []string{"7.12", "0.0", "18446744073709551615.1", "7", "7.", ".1", "+1.2", "7.12.3", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		g, n, ok := EpochOf(&stream.Record{Headers: []stream.Header{{Key: EpochHeader, Value: value}}})
		if !ok {
			return
		}
		stamp := stampOf("", participant.BranchName{Generation: g, N: n})
		g2, n2, ok := EpochOf(&stream.Record{Headers: []stream.Header{{Key: stamp[0].Key, Value: stamp[0].Value}}})
		if !ok || g2 != g || n2 != n {
			t.Errorf("%q is %d.%d, which is written as %q", value, g, n, stamp[0].Value)
		}
	})
}
