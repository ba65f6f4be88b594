package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// The last records that are decided were rolled back, and work that is open stands between them and
// their marker: a client that reads committed records comes past them without a word.
func TestReadAllEndsBehindRecordsThatWereRolledBack(t *testing.T) {
	r := newRig(t)
	s := r.opened(1, func(c *SinkConfig) { c.Partitioning = FromRecord })
	prepared := func(n uint64) participant.Handle {
		br, err := s.Begin(t.Context(), r.name(1, n))
		if err != nil {
			t.Fatal(err)
		}
		if err := br.(*Branch).Write(t.Context(), []stream.Record{{Value: []byte{byte('0' + n)}}}); err != nil {
			t.Fatal(err)
		}
		v, err := br.Prepare(t.Context())
		if err != nil || v.Kind != participant.Yes {
			t.Fatalf("prepare: %+v, %v", v, err)
		}
		return v.Handle
	}
	kept, dropped := prepared(1), prepared(2)
	prepared(3) // stays open
	r.commit(s, kept, participant.Committed)
	r.rollback(s, dropped, participant.RolledBack)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []string
	err := r.a.ReadAll(ctx, r.topic, true, nil, nil, func(rec *stream.Record) error {
		got = append(got, string(rec.Value))
		return nil
	})
	if err != nil || len(got) != 1 || got[0] != "1" {
		t.Errorf("readers see %q, %v; want what was committed alone", got, err)
	}
}
