package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
)

var _ processor.Source = (*Source)(nil)

// broker starts an embedded broker for one test. It asks its clients for no metrics, as a cluster does whose operator has not
// said which: to tell them, compressed, as each client closes would be a third of the tests' work.
func broker(t testing.TB, cfg devkafka.Config) *devkafka.Broker {
	t.Helper()
	b, err := devkafka.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	b.Cluster().ControlKey(int16(kmsg.GetTelemetrySubscriptions), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		resp := req.ResponseKind().(*kmsg.GetTelemetrySubscriptionsResponse)
		resp.PushIntervalMillis = int32((5 * time.Minute).Milliseconds())
		return resp, nil, true
	})
	return b
}

func admin(t testing.TB, b *devkafka.Broker) *Admin {
	t.Helper()
	a, err := NewAdmin(AdminConfig{Brokers: []string{b.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func source(t testing.TB, cfg SourceConfig) *Source {
	t.Helper()
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// numbered makes n records "v0".."v(n-1)" with keys.
func numbered(n int) []stream.Record {
	out := make([]stream.Record, n)
	for i := range out {
		out[i] = stream.Record{Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)}
	}
	return out
}

// drain polls until the source ends, or until n records have come, and returns the values and
// the last position of each split.
func drain(t testing.TB, s *Source, n int) (values []string, at map[string]stream.Position) {
	t.Helper()
	at = make(map[string]stream.Position)
	for n < 0 || len(values) < n {
		b, err := s.Poll(t.Context())
		if errors.Is(err, io.EOF) {
			return values, at
		}
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			continue
		}
		for _, r := range b.Records {
			values = append(values, string(r.Value))
		}
		at[b.Split.ID] = b.Next
	}
	return values, at
}

func TestSourceReadsBoundedTopicsToTheEndAndStops(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"orders": 3}})
	a := admin(t, b)
	if err := a.Produce(t.Context(), "orders", numbered(1000)); err != nil {
		t.Fatal(err)
	}
	s := source(t, SourceConfig{Name: "in", Brokers: []string{b.Addr()}, Topics: []string{"orders"}, Bounded: true, MaxPollRecords: 100})
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	values, at := drain(t, s, -1)
	seen := map[string]bool{}
	for _, v := range values {
		seen[v] = true
	}
	if len(values) != 1000 || len(seen) != 1000 {
		t.Errorf("read %d records, %d different ones, want 1000", len(values), len(seen))
	}
	if len(at) != 3 || len(s.Splits()) != 3 {
		t.Errorf("positions of %d splits, %d splits, want 3", len(at), len(s.Splits()))
	}
	if _, err := s.Poll(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("Poll after the end: %v, want EOF", err)
	}
}

// ending is a context that ends while what waits for it has an answer already.
type ending struct{ context.Context }

func (ending) Err() error { return context.Canceled }

// What the client has ready is handed over once: a poll that is cancelled while it takes it must keep it.
func TestACancelledPollKeepsWhatItHasFetched(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"orders": 1}})
	a := admin(t, b)
	if err := a.Produce(t.Context(), "orders", numbered(500)); err != nil {
		t.Fatal(err)
	}
	s := source(t, SourceConfig{Name: "in", Brokers: []string{b.Addr()}, Topics: []string{"orders"}, Bounded: true, MaxPollRecords: 10})
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	values, _ := drain(t, s, 10)
	for range 5 {
		switch batch, err := s.Poll(ending{t.Context()}); {
		case err == nil && batch != nil:
			for _, r := range batch.Records {
				values = append(values, string(r.Value))
			}
		case !errors.Is(err, context.Canceled):
			t.Fatalf("a cancelled poll: %v, %v", batch, err)
		}
	}
	rest, _ := drain(t, s, -1)
	if got := len(values) + len(rest); got != 500 {
		t.Errorf("%d records of 500", got)
	}
}

// What the client tells of a partition it tells once, too, and reads on where the log was cut off. A poll that is cancelled
// while it takes that must tell it, or nobody ever learns that records which were read are gone.
func TestACancelledPollTellsThatTheLogWasCutOff(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"orders": 1}})
	a := admin(t, b)
	if err := a.Produce(t.Context(), "orders", numbered(10)); err != nil {
		t.Fatal(err)
	}
	s := source(t, SourceConfig{
		Name: "in", Brokers: []string{b.Addr()}, Topics: []string{"orders"}, Options: []kgo.Opt{kgo.DisableFetchSessions()},
	})
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	drain(t, s, 10)
	b.Cluster().ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		asked, resp := req.(*kmsg.OffsetForLeaderEpochRequest), req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = "orders"
		p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		p.LeaderEpoch, p.EndOffset = asked.Topics[0].Partitions[0].LeaderEpoch, 5
		topic.Partitions = append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	b.Cluster().ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { // another one leads
		asked, resp := req.(*kmsg.FetchRequest), req.ResponseKind().(*kmsg.FetchResponse)
		for _, x := range asked.Topics {
			topic := kmsg.NewFetchResponseTopic()
			topic.Topic, topic.TopicID = x.Topic, x.TopicID
			p := kmsg.NewFetchResponseTopicPartition()
			p.ErrorCode = kerr.FencedLeaderEpoch.Code
			topic.Partitions = append(topic.Partitions, p)
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		switch batch, err := s.Poll(ending{t.Context()}); {
		case errors.Is(err, participant.ErrMisconfigured) && strings.Contains(err.Error(), "cut off at 5"):
			return
		case !errors.Is(err, context.Canceled):
			t.Fatalf("a cancelled poll: %v, %v", batch, err)
		}
	}
	t.Error("it was never told")
}

func TestSourceEndsWithoutARecordWhenItsTopicIsEmpty(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"orders": 2}})
	s := source(t, SourceConfig{Name: "in", Brokers: []string{b.Addr()}, Topics: []string{"orders"}, Bounded: true})
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if values, at := drain(t, s, -1); len(values) != 0 || len(at) != 2 {
		t.Errorf("read %v, positions of %d splits; want none, 2", values, len(at))
	}
}

func TestZ5_OpenDropsWhatWasFetchedAndStartsAtThePositions(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"orders": 1}})
	a := admin(t, b)
	if err := a.Produce(t.Context(), "orders", numbered(100)); err != nil {
		t.Fatal(err)
	}
	s := source(t, SourceConfig{Name: "in", Brokers: []string{b.Addr()}, Topics: []string{"orders"}, MaxPollRecords: 10})
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	_, at := drain(t, s, 10)
	drain(t, s, 20) // read further, with more in the buffers
	if err := s.Open(t.Context(), []stream.Position{at["orders/0"]}); err != nil {
		t.Fatal(err)
	}
	values, _ := drain(t, s, 1)
	if values[0] != "v10" {
		t.Errorf("first record after Open is %s, want v10", values[0])
	}
}

func TestSourceRefusesAPositionThatTheTopicNoLongerHas(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"orders": 1}})
	a := admin(t, b)
	if err := a.Produce(t.Context(), "orders", numbered(100)); err != nil {
		t.Fatal(err)
	}
	if err := b.Cluster().DeleteRecords("orders", 0, 50); err != nil {
		t.Fatal(err)
	}
	s := source(t, SourceConfig{Name: "in", Brokers: []string{b.Addr()}, Topics: []string{"orders"}})
	split := stream.Split{Resource: "in", ID: "orders/0"}
	for name, from := range map[string]stream.Position{
		"deleted unread":  {Split: split, Offset: 10, LeaderEpoch: -1},
		"past the end":    {Split: split, Offset: 101, LeaderEpoch: -1},
		"another topic":   {Split: split, Offset: 60, LeaderEpoch: -1, Opaque: make([]byte, 16)},
		"unknown split":   {Split: stream.Split{Resource: "in", ID: "orders/7"}},
		"unknown topic's": {Split: stream.Split{Resource: "in", ID: "gone/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.Open(t.Context(), []stream.Position{from})
			if !errors.Is(err, participant.ErrMisconfigured) {
				t.Errorf("Open: %v, want misconfigured", err)
			}
		})
	}
}

func TestSourceSaysWhichTopicIsMissing(t *testing.T) {
	b := broker(t, devkafka.Config{})
	s := source(t, SourceConfig{Name: "in", Brokers: []string{b.Addr()}, Topics: []string{"orders"}})
	err := s.Open(t.Context(), nil)
	want := fmt.Sprintf("misconfigured: topic \"orders\" does not exist at %s; create it, or correct the name", b.Addr())
	if err == nil || !errors.Is(err, participant.ErrMisconfigured) || cmp.Diff(want, err.Error()) != "" {
		t.Errorf("Open: %v\nwant %s", err, want)
	}
}

func TestSourceAtTheEndWaitsAndSaysThatNothingCame(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"orders": 1}})
	a := admin(t, b)
	if err := a.Produce(t.Context(), "orders", numbered(5)); err != nil {
		t.Fatal(err)
	}
	s := source(t, SourceConfig{Name: "in", Brokers: []string{b.Addr()}, Topics: []string{"orders"}, Start: StartLatest, PollWait: 1e6})
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	// The place where it starts goes into the first epoch, or a restart would skip what came meanwhile.
	if batch, err := s.Poll(t.Context()); err != nil || batch == nil || len(batch.Records) != 0 || batch.Next.Offset != 5 {
		t.Errorf("first Poll: %v, %v; want the position and no record", batch, err)
	}
	if batch, err := s.Poll(t.Context()); batch != nil || err != nil {
		t.Errorf("Poll at the end: %v, %v; want nothing", batch, err)
	}
	if err := a.Produce(t.Context(), "orders", []stream.Record{{Value: []byte("new")}}); err != nil {
		t.Fatal(err)
	}
	if values, _ := drain(t, s, 1); values[0] != "new" {
		t.Errorf("read %v, want the record that came later", values)
	}
}

func TestSourceSaysThatNoBrokerAnswers(t *testing.T) {
	s := source(t, SourceConfig{Name: "in", Brokers: []string{"127.0.0.1:1"}, Topics: []string{"orders"}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := s.Open(ctx, nil); err == nil {
		t.Error("Open found a broker where none is")
	} else {
		t.Log(err)
	}
}

func TestAdminReadsTopicsOnceWhole(t *testing.T) {
	b := broker(t, devkafka.Config{})
	a := admin(t, b)
	ctx := t.Context()
	if _, found, err := a.TopicExists(ctx, "orders"); found || err != nil {
		t.Fatalf("TopicExists before: %v, %v", found, err)
	}
	for range 2 { // a repeat changes nothing
		if err := a.CreateTopic(ctx, "orders", 3, map[string]string{"retention.ms": "-1"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.CreateTopic(ctx, "orders", 4, nil); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("CreateTopic with another number of partitions: %v", err)
	}
	p := a.Producer("orders")
	if err := p.Write(ctx, numbered(500)); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	err := a.ReadAll(ctx, "orders", true, nil, nil, func(r *stream.Record) error {
		seen[string(r.Value)]++
		return nil
	})
	if err != nil || len(seen) != 500 {
		t.Errorf("ReadAll: %d records, %v; want 500", len(seen), err)
	}
	for range 2 {
		if err := a.DeleteTopic(ctx, "orders"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSourceRefusesALogThatWasCutOffBelowItsPosition(t *testing.T) {
	b := broker(t, devkafka.Config{Topics: map[string]int{"orders": 1}})
	a := admin(t, b)
	if err := a.Produce(t.Context(), "orders", numbered(100)); err != nil {
		t.Fatal(err)
	}
	s := source(t, SourceConfig{Name: "in", Brokers: []string{b.Addr()}, Topics: []string{"orders"}})
	at := stream.Position{Split: stream.Split{Resource: "in", ID: "orders/0"}, Offset: 60, LeaderEpoch: 3}
	answer := func(end int64) {
		b.Cluster().ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
			topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
			topic.Topic = "orders"
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.LeaderEpoch, p.EndOffset = 3, end
			topic.Partitions = append(topic.Partitions, p)
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, true
		})
	}
	answer(50) // another leader's records stand from 50 on
	if err := s.Open(t.Context(), []stream.Position{at}); !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "cut off at 50") {
		t.Errorf("open: %v, want misconfigured", err)
	}
	answer(60)
	if err := s.Open(t.Context(), []stream.Position{at}); err != nil {
		t.Errorf("open where nothing was cut off: %v", err)
	}
}

func TestASourceKnowsItsTopicsWithoutAsking(t *testing.T) {
	s := source(t, SourceConfig{Name: "in", Brokers: []string{"127.0.0.1:1"}, Topics: []string{"a", "a/b"}})
	for split, known := range map[string]bool{"a/0": true, "a/b/12": true, "b/0": false, "a": false, "": false} {
		if err := s.Knows(split); (err == nil) != known {
			t.Errorf("%q: %v", split, err)
		}
	}
}
