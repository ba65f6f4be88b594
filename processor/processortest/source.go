package processortest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// Source delivers records that a test has appended, from the positions it is opened at. The zero
// value is not usable; see NewSource.
type Source struct {
	// Batch is the most records that one Poll returns; default 10. Set before use.
	Batch int
	// Wait is how long Poll waits before it says that nothing came; default 10 ms. Set before use.
	Wait time.Duration
	// Next picks the split of the next batch out of those that have records, by index; default in turn.
	Next func(ready []string) int

	name string

	mu     sync.Mutex // guards what follows; never held while waiting
	logs   map[string][]stream.Record
	order  []string
	at     map[string]int64
	told   map[string]bool // its end was delivered
	turn   int
	ended  bool
	opened int
	fail   error
	more   chan struct{} // closed and renewed when records come
	batch  stream.Batch
}

// NewSource makes a source with empty splits, under the resource name that its pipeline uses.
func NewSource(name string, splits ...string) *Source {
	s := &Source{
		Batch: 10, Wait: 10 * time.Millisecond, name: name, order: splits,
		logs: map[string][]stream.Record{}, more: make(chan struct{}),
	}
	for _, id := range splits {
		s.logs[id] = nil
	}
	return s
}

// Append puts records at the end of a split. Topic, partition and offset are filled in.
func (s *Source) Append(split string, records ...stream.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := slices.Index(s.order, split)
	if part < 0 {
		panic(fmt.Sprintf("processortest: source %q has no split %q", s.name, split))
	}
	for _, r := range records {
		r.Topic, r.Partition, r.Offset = s.name, int32(part), int64(len(s.logs[split])) // few splits
		s.logs[split] = append(s.logs[split], r)
	}
	s.wake()
}

// End says that nothing more will be appended: after the last record the splits end, then the source.
func (s *Source) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.wake()
}

// Fail makes the next Poll return an error.
func (s *Source) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
	s.wake()
}

// Opened counts the calls of Open.
func (s *Source) Opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// Describe says what it is.
func (s *Source) Describe(context.Context) (participant.Description, error) {
	return participant.Description{Kind: "script", Identity: s.name, Text: "script " + s.name}, nil
}

// Open starts at the positions.
func (s *Source) Open(_ context.Context, from []stream.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	s.at, s.told, s.turn = map[string]int64{}, map[string]bool{}, 0
	for _, p := range from {
		if p.Split.Resource != s.name || p.Offset > int64(len(s.logs[p.Split.ID])) {
			return fmt.Errorf("%w: source %q has no position %d of split %q", participant.ErrMisconfigured, s.name, p.Offset, p.Split.ID)
		}
		s.at[p.Split.ID] = p.Offset
	}
	return nil
}

// Poll returns the next batch. Its records are copies that the next Poll overwrites, so that a
// pipeline which keeps them is found out.
func (s *Source) Poll(ctx context.Context) (*stream.Batch, error) {
	timer := time.NewTimer(s.Wait)
	defer timer.Stop()
	for {
		b, more, err := s.poll()
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-timer.C:
			return nil, nil // the contract: nothing came
		case <-more:
		}
	}
}

func (s *Source) poll() (*stream.Batch, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail; err != nil {
		s.fail = nil
		return nil, nil, err
	}
	for i := range s.batch.Records { // spoil what the last batch held
		r := &s.batch.Records[i]
		clear(r.Key)
		clear(r.Value)
		for _, h := range r.Headers {
			clear(h.Value)
		}
		*r = stream.Record{Topic: "spoilt"}
	}
	var ready []string
	for _, id := range s.order {
		if s.at[id] < int64(len(s.logs[id])) || s.ended && !s.told[id] {
			ready = append(ready, id)
		}
	}
	if len(ready) == 0 {
		if s.ended {
			return nil, nil, io.EOF
		}
		return nil, s.more, nil
	}
	pick := s.turn % len(ready)
	s.turn++
	if s.Next != nil {
		pick = s.Next(ready)
	}
	return s.take(ready[pick]), nil, nil
}

func (s *Source) take(id string) *stream.Batch {
	log, at := s.logs[id], s.at[id]
	to := min(at+int64(s.Batch), int64(len(log)))
	split := stream.Split{Resource: s.name, ID: id}
	s.batch = stream.Batch{
		Split: split, HighWater: int64(len(log)),
		Next: stream.Position{Split: split, Offset: to, LeaderEpoch: -1},
	}
	for _, r := range log[at:to] {
		r.Key, r.Value, r.Headers = slices.Clone(r.Key), slices.Clone(r.Value), cloneHeaders(r.Headers)
		s.batch.Records = append(s.batch.Records, r)
	}
	s.at[id] = to
	if s.ended && to == int64(len(log)) {
		s.batch.Ended, s.told[id] = true, true
	}
	return &s.batch
}

// Splits lists them in the order given to NewSource.
func (s *Source) Splits() []stream.Split {
	out := make([]stream.Split, 0, len(s.order))
	for _, id := range s.order {
		out = append(out, stream.Split{Resource: s.name, ID: id})
	}
	return out
}

// Close does nothing.
func (s *Source) Close() error { return nil }

func (s *Source) wake() {
	close(s.more)
	s.more = make(chan struct{})
}

func cloneHeaders(in []stream.Header) []stream.Header {
	out := slices.Clone(in)
	for i := range out {
		out[i].Value = slices.Clone(out[i].Value)
	}
	return out
}
