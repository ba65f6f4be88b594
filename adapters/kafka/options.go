package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/participant"
)

// Kind is what handles and descriptions of this adapter say.
const Kind = "kafka"

// Unbounded is the transaction time-out with which brokers from 4.1 on never end a transaction
// by themselves. The broker's transaction.max.timeout.ms must be 2147483647 too.
const Unbounded = math.MaxInt32 * time.Millisecond

// Partitioning says which partition a record goes to.
type Partitioning uint8

const (
	// ByKey hashes the key as other Kafka clients do; records without a key fill one partition after another.
	ByKey Partitioning = iota
	// RoundRobin ignores the key.
	RoundRobin
	// FromRecord takes the record's own Partition.
	FromRecord
)

// Compression of produced batches.
type Compression string

// The codecs. The zero value leaves the choice to the client library.
const (
	CompressionDefault Compression = ""
	CompressionNone    Compression = "none"
	CompressionGzip    Compression = "gzip"
	CompressionSnappy  Compression = "snappy"
	CompressionLZ4     Compression = "lz4"
	CompressionZstd    Compression = "zstd"
)

// SinkConfig is what a sink needs to know. A process that only finishes other processes'
// branches (a resolver) needs Brokers alone.
type SinkConfig struct {
	Brokers []string // "host:port", at least one
	Topic   string   // where records without a topic go; may be empty if all have one
	// TransactionTimeout is when the broker ends a transaction by itself, counted from its first
	// record. 0: the most that the broker allows. Above that most: Open refuses.
	TransactionTimeout time.Duration
	Partitioning       Partitioning // default ByKey
	Compression        Compression  // default: the client library's choice
	MaxBufferedBytes   int          // records' bytes not yet acknowledged, per branch; 0: sized by the epoch interval, 1 to 32 MiB
	// WitnessTopic names the topic whose partitions are the keys of the witness; nothing is written
	// to it. It must never be deleted. Default: __consumer_offsets where clients can see it, else
	// unisink.witness, which is then created.
	WitnessTopic string
	// EpochHeader names the header in which every record carries its epoch; default EpochHeader,
	// NoEpochHeader leaves it out.
	EpochHeader string
	ClientID    string       // default "unisink"
	Security    Security     // TLS and SASL
	Options     []kgo.Opt    // added to those of every client: a dialer, other mechanisms
	Logger      *slog.Logger // default: discard
}

// Validate names every mistake at once.
func (c SinkConfig) Validate() error {
	errs := []error{checkBrokers(c.Brokers), c.Security.check()}
	if c.TransactionTimeout < 0 || c.TransactionTimeout > Unbounded {
		errs = append(errs, fmt.Errorf("transaction timeout %s: must be between 0 (the most the broker allows) and %s", c.TransactionTimeout, Unbounded))
	}
	if c.TransactionTimeout > 0 && c.TransactionTimeout < time.Second {
		errs = append(errs, fmt.Errorf("transaction timeout %s: at least a second, or no epoch could be decided in time", c.TransactionTimeout))
	}
	if c.Partitioning > FromRecord {
		errs = append(errs, fmt.Errorf("partitioning %d is none of ByKey, RoundRobin, FromRecord", c.Partitioning))
	}
	if _, err := c.Compression.codec(); err != nil {
		errs = append(errs, err)
	}
	if c.MaxBufferedBytes < 0 {
		errs = append(errs, fmt.Errorf("max buffered bytes %d: must not be negative", c.MaxBufferedBytes))
	}
	return misconfigured("kafka sink", errs)
}

// Start is where a source begins a partition that has no position yet.
type Start string

// The starts; the zero value is StartEarliest.
const (
	StartEarliest Start = "earliest"
	StartLatest   Start = "latest"
)

// SourceConfig is what a source needs to know.
type SourceConfig struct {
	Name    string   // the source's name in its pipeline; goes into Split.Resource
	Brokers []string // "host:port", at least one
	Topics  []string // at least one; all their partitions are read
	Start   Start    // default earliest
	// Bounded reads up to the end that each partition has at Open, and ends there.
	Bounded        bool
	MaxPollRecords int           // records per fetch round; default 10000
	MaxPollBytes   int           // bytes per fetch from one broker; default 16 MiB
	PollWait       time.Duration // how long Poll waits before it says that nothing came; default 250ms
	// NewPartitions is how often a source that is not bounded looks for partitions that were added
	// to its topics, and whether they are still the same topics; default 1m.
	NewPartitions time.Duration
	// Group is a consumer group whose offsets are written now and then, for tools that show lag. They
	// say what was handed to the pipeline, are never read back, and the group must not be used
	// otherwise. Empty: none.
	Group    string
	ClientID string       // default "unisink"
	Security Security     // TLS and SASL
	Options  []kgo.Opt    // added to the client's: a dialer, other mechanisms
	Logger   *slog.Logger // default: discard
}

// Validate names every mistake at once.
func (c SourceConfig) Validate() error {
	errs := []error{checkBrokers(c.Brokers), c.Security.check()}
	if len(c.Topics) == 0 {
		errs = append(errs, errors.New("topics: name at least one"))
	}
	switch c.Start {
	case "", StartEarliest, StartLatest:
	default:
		errs = append(errs, fmt.Errorf("start %q: must be earliest or latest", c.Start))
	}
	if c.MaxPollRecords < 0 || c.MaxPollBytes < 0 || c.PollWait < 0 || c.NewPartitions < 0 || c.MaxPollBytes > math.MaxInt32 {
		errs = append(errs, errors.New("max poll records, max poll bytes, poll wait and new partitions must not be negative, nor bytes above 2 GiB"))
	}
	return misconfigured("kafka source", errs)
}

// withDefaults fills what was left out.
func (c SourceConfig) withDefaults() SourceConfig {
	if c.Start == "" {
		c.Start = StartEarliest
	}
	if c.MaxPollRecords == 0 {
		c.MaxPollRecords = 10_000
	}
	if c.MaxPollBytes == 0 {
		c.MaxPollBytes = 16 << 20
	}
	if c.PollWait == 0 {
		c.PollWait = 250 * time.Millisecond
	}
	if c.NewPartitions == 0 {
		c.NewPartitions = time.Minute
	}
	return c
}

func checkBrokers(brokers []string) error {
	if len(brokers) == 0 {
		return errors.New("brokers: name at least one, as host:port")
	}
	for _, b := range brokers {
		if b == "" {
			return errors.New("brokers: an empty address; write host:port")
		}
	}
	return nil
}

// misconfigured joins the mistakes under the name of what they were found in; nil if there are none.
func misconfigured(what string, errs []error) error {
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w: %w", what, participant.ErrMisconfigured, err)
	}
	return nil
}

// codec is the library's word for the compression; no codecs for the default.
func (c Compression) codec() ([]kgo.CompressionCodec, error) {
	switch c {
	case CompressionDefault:
		return nil, nil
	case CompressionNone:
		return []kgo.CompressionCodec{kgo.NoCompression()}, nil
	case CompressionGzip:
		return []kgo.CompressionCodec{kgo.GzipCompression(), kgo.NoCompression()}, nil
	case CompressionSnappy:
		return []kgo.CompressionCodec{kgo.SnappyCompression(), kgo.NoCompression()}, nil
	case CompressionLZ4:
		return []kgo.CompressionCodec{kgo.Lz4Compression(), kgo.NoCompression()}, nil
	case CompressionZstd:
		return []kgo.CompressionCodec{kgo.ZstdCompression(), kgo.NoCompression()}, nil
	}
	return nil, fmt.Errorf("compression %q is none of none, gzip, snappy, lz4, zstd", c)
}

// producing is what every producing client of the sink is made with.
func (c SinkConfig) producing() ([]kgo.Opt, error) {
	var opts []kgo.Opt
	switch c.Partitioning {
	case ByKey:
		opts = append(opts, kgo.RecordPartitioner(kgo.UniformBytesPartitioner(64<<10, true, true, nil)))
	case RoundRobin:
		opts = append(opts, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	case FromRecord:
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	codec, err := c.Compression.codec()
	if err != nil {
		return nil, err
	}
	if codec != nil {
		opts = append(opts, kgo.ProducerBatchCompression(codec...))
	}
	return opts, nil
}

// bufferedBytes is how much a branch may hold unacknowledged: what can be flushed in a fraction
// of the epoch, so that a short epoch is not followed by a long flush.
func (c SinkConfig) bufferedBytes(interval time.Duration) int {
	const least, most = 1 << 20, 32 << 20
	if c.MaxBufferedBytes > 0 {
		return c.MaxBufferedBytes
	}
	if interval <= 0 {
		return most
	}
	return min(max(int(int64(most)*int64(interval)/int64(time.Second)), least), most)
}
