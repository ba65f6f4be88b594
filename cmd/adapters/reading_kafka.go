package adapters

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/internal/plural"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
)

func kafkaReading() *Reading {
	return &Reading{Source: readKafkaSource, Sink: readKafkaSink}
}

// topics reads source topics again.
type topics struct {
	admin *kafka.Admin
	names []string
}

func readKafkaSource(ctx context.Context, e spec.Env, u Use) (*SourceReading, error) {
	var in kafkaSource
	if err := u.Settings.Decode(&in); err != nil {
		return nil, err
	}
	admin, err := kafka.NewAdmin(kafka.AdminConfig{Brokers: in.Brokers, ClientID: in.ClientID, Security: security(in.TLS, in.SASL), Logger: e.Logger})
	if err != nil {
		return nil, told(u.Settings, err)
	}
	t := &topics{admin, in.Topics}
	out := &SourceReading{
		SourceReader: t, Bounded: in.Bounded, Ended: func([]stream.Position) []stream.Split { return nil },
		Grown: grown, Behind: func(at []stream.Position) bool { return slices.ContainsFunc(at, kafka.Behind) },
		Close: func() error { admin.Close(); return nil },
	}
	if in.Start == string(kafka.StartLatest) {
		out.Gone = "the source began where its topics ended then, which is not known any more"
	}
	for _, name := range t.names {
		first, err := beginnings(ctx, admin, u, "topics", name)
		if err != nil {
			admin.Close()
			return nil, err
		}
		for _, p := range slices.Sorted(maps.Keys(first)) {
			out.Splits = append(out.Splits, stream.Split{Resource: u.Name, ID: fmt.Sprintf("%s/%d", name, p)})
			if first[p] > 0 && out.Gone == "" {
				out.Gone = fmt.Sprintf("partition %d of the source topic %q has lost its first %s", p, name, plural.Of(first[p], "record"))
			}
		}
	}
	return out, nil
}

// grown reports whether a partition was added when others had been read: its position says so, or it has none
// yet, where the first epoch gives one to all.
func grown(at []stream.Position) bool {
	read := func(p stream.Position) bool { return len(p.Opaque) > 0 }
	return slices.ContainsFunc(at, kafka.Added) || slices.ContainsFunc(at, read) && slices.ContainsFunc(at, func(p stream.Position) bool { return !read(p) })
}

// beginnings are the first offsets of a topic's partitions. Setting names the topic in the file.
func beginnings(ctx context.Context, admin *kafka.Admin, u Use, setting, topic string) (map[int32]int64, error) {
	if err := admin.Reach(ctx); err != nil {
		return nil, &marked{ErrUnreachable, err}
	}
	if _, found, err := admin.TopicExists(ctx, topic); err != nil {
		return nil, err
	} else if !found {
		return nil, &marked{ErrNotFound, u.Settings.Mistake(setting, "the brokers have no topic %q; create it, or name another", topic)}
	}
	return admin.StartOffsets(ctx, topic)
}

func (t *topics) Read(ctx context.Context, to []stream.Position, f func(stream.Split, *stream.Record) error) error {
	ends := map[string]map[int32]int64{}
	splits := map[string]stream.Split{}
	for _, p := range to {
		topic, partition, err := t.partition(p.Split.ID)
		if err != nil {
			return err
		}
		if ends[topic] == nil {
			ends[topic] = map[int32]int64{}
		}
		ends[topic][partition], splits[p.Split.ID] = p.Offset, p.Split
	}
	for _, topic := range slices.Sorted(maps.Keys(ends)) {
		err := t.admin.ReadAll(ctx, topic, true, nil, ends[topic], func(r *stream.Record) error {
			split, known := splits[fmt.Sprintf("%s/%d", r.Topic, r.Partition)]
			if !known {
				return nil // added since the positions were taken
			}
			return f(split, r)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// partition reads "topic/3".
func (t *topics) partition(split string) (topic string, partition int32, err error) {
	at := strings.LastIndexByte(split, '/')
	if at >= 0 {
		topic = split[:at]
	}
	n, err := strconv.ParseInt(split[at+1:], 10, 32)
	if err != nil || !slices.Contains(t.names, topic) {
		return "", 0, fmt.Errorf("the pipeline's position names %q, which is no partition of the topics %s; is this the specification that runs?", split, strings.Join(t.names, ", "))
	}
	return topic, int32(n), nil
}

// topicReading reads what readers of committed records see, up to where that went.
type topicReading struct {
	admin  *kafka.Admin
	topic  string
	ends   map[int32]int64
	header string
}

func readKafkaSink(ctx context.Context, e spec.Env, u Use, _ bool) (*SinkReading, error) {
	in, cfg, err := sinkConfig(e, u.Settings)
	if err != nil {
		return nil, err
	}
	admin, err := kafka.NewAdmin(kafka.AdminConfig{Brokers: cfg.Brokers, ClientID: cfg.ClientID, Security: cfg.Security, Logger: e.Logger})
	if err != nil {
		return nil, told(u.Settings, err)
	}
	t := &topicReading{admin: admin, topic: in.Topic, header: in.EpochHeader}
	if t.header == "" {
		t.header = kafka.EpochHeader
	}
	out := &SinkReading{OutputReader: t, Key: true, Headers: true, Time: true, Stamps: true, Close: func() error { admin.Close(); return nil }}
	first, err := beginnings(ctx, admin, u, "topic", in.Topic)
	if err == nil {
		t.ends, err = admin.EndOffsets(ctx, in.Topic, true)
	}
	if err != nil {
		admin.Close()
		return nil, err
	}
	for p, n := range first {
		if n > 0 {
			out.Gone = fmt.Sprintf("partition %d of the topic %q has lost its first %s", p, in.Topic, plural.Of(n, "record"))
		}
	}
	return out, nil
}

func (t *topicReading) Read(ctx context.Context, f func(verify.Output) error) error {
	return t.admin.ReadAll(ctx, t.topic, true, nil, t.ends, func(r *stream.Record) error {
		generation, n := epochOf(r.Headers, t.header)
		headers := r.Headers
		if t.header != kafka.EpochHeader && n > 0 { // it is ours, by another name
			headers = slices.DeleteFunc(slices.Clone(headers), func(h stream.Header) bool { return h.Key == t.header })
		}
		return f(verify.Output{
			Key: r.Key, Value: r.Value, Headers: headers, Time: r.Time, Generation: generation, N: n,
			Part: strconv.Itoa(int(r.Partition)), Place: fmt.Sprintf("%s/%d offset %d", r.Topic, r.Partition, r.Offset),
		})
	})
}
