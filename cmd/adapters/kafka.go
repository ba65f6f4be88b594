package adapters

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/spec"
)

type kafkaSource struct {
	Brokers        []string      `yaml:"brokers,required" doc:"Addresses of brokers, host:port: a list, or one text with commas."`
	Topics         []string      `yaml:"topics,required" doc:"Topics that are read, with all their partitions."`
	Start          string        `yaml:"start" doc:"Where a partition begins that has no position yet; default earliest." enum:"earliest,latest"`
	Bounded        bool          `yaml:"bounded" doc:"Read up to the ends that the partitions have at the start, and end there."`
	Group          string        `yaml:"group" doc:"Consumer group whose offsets are written for tools that show lag. They are never read back."`
	ClientID       string        `yaml:"client_id" doc:"Name of the client in the brokers' logs; default unisink."`
	MaxPollRecords int           `yaml:"max_poll_records" doc:"Records per fetch round; default 10000."`
	MaxPollBytes   int           `yaml:"max_poll_bytes" doc:"Bytes per fetch from one broker; default 16 MiB."`
	NewPartitions  time.Duration `yaml:"new_partitions" doc:"How often partitions that were added are looked for; default 1m."`
	TLS            *kafkaTLS     `yaml:"tls" doc:"Encrypt connections; {} checks the brokers by the system's authorities. Left out: plain text."`
	SASL           *kafkaSASL    `yaml:"sasl" doc:"Who the client is. Left out: nobody."`
}

type kafkaSink struct {
	Brokers            []string      `yaml:"brokers,required" doc:"Addresses of brokers, host:port: a list, or one text with commas."`
	Topic              string        `yaml:"topic,required" doc:"Topic that is written; it must exist."`
	Partition          string        `yaml:"partition" doc:"Which partition a record goes to: by_key hashes the key as other clients do (default), round_robin ignores it, from_record keeps the partition that the record had in the source." enum:"by_key,round_robin,from_record"`
	Compression        string        `yaml:"compression" doc:"Codec of batches; by default the client's choice." enum:"none,gzip,snappy,lz4,zstd"`
	TransactionTimeout time.Duration `yaml:"transaction_timeout" doc:"When the broker ends a prepared transaction by itself; default the most that it allows."`
	WitnessTopic       string        `yaml:"witness_topic" doc:"Topic whose partitions are the keys of the witness; nothing is written to it."`
	EpochHeader        string        `yaml:"epoch_header" doc:"Header in which each record carries its epoch; default unisink-epoch, '-' leaves it out."`
	MaxBufferedBytes   int           `yaml:"max_buffered_bytes" doc:"Bytes not yet acknowledged by the brokers; by default sized by the epoch."`
	ClientID           string        `yaml:"client_id" doc:"Name of the client in the brokers' logs; default unisink."`
	TLS                *kafkaTLS     `yaml:"tls" doc:"Encrypt connections; {} checks the brokers by the system's authorities. Left out: plain text."`
	SASL               *kafkaSASL    `yaml:"sasl" doc:"Who the client is. Left out: nobody."`
}

type kafkaTLS struct {
	CA         string `yaml:"ca" doc:"PEM file of the authorities that sign the brokers; default the system's."`
	Cert       string `yaml:"cert" doc:"PEM file of the client's own certificate."`
	Key        string `yaml:"key" doc:"PEM file of its key."`
	ServerName string `yaml:"server_name" doc:"Name in the brokers' certificates; default the host that is dialled."`
}

type kafkaSASL struct {
	Mechanism string      `yaml:"mechanism,required" doc:"How the client shows who it is." enum:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"`
	User      string      `yaml:"user" doc:"Name of the user; not with OAUTHBEARER."`
	Password  spec.Secret `yaml:"password" doc:"Its password, by reference; not with OAUTHBEARER."`
	Token     spec.Secret `yaml:"token" doc:"The token, by reference; with OAUTHBEARER alone."`
}

// Kafka is the adapter of topics.
func Kafka() Adapter {
	return Adapter{Kind: kafka.Kind, Check: checkKafka, Finisher: finishKafka, Reading: kafkaReading(), Spec: func(doc *spec.Document) spec.Adapter {
		return spec.Adapter{
			Kind: kafka.Kind, SourceSchema: spec.SchemaOf(kafkaSource{}), SinkSchema: spec.SchemaOf(kafkaSink{}), Places: kafkaPlaces,
			Source: newKafkaSource, Store: newKafkaStore, StoreSchema: spec.SchemaOf(kafkaStore{}),
			Sink: func(e spec.Env, name string, s spec.Settings) (processor.Sink, error) {
				return newKafkaSink(e, s, takes(doc, name) == spec.UseResults && doc.Window != nil)
			},
		}
	}}
}

func newKafkaSource(e spec.Env, name string, s spec.Settings) (processor.Source, error) {
	var in kafkaSource
	if err := s.Decode(&in); err != nil {
		return nil, err
	}
	out, err := kafka.NewSource(kafka.SourceConfig{
		Name: name, Brokers: in.Brokers, Topics: in.Topics, Start: kafka.Start(in.Start), Bounded: in.Bounded, Group: in.Group, ClientID: in.ClientID,
		MaxPollRecords: in.MaxPollRecords, MaxPollBytes: in.MaxPollBytes, NewPartitions: in.NewPartitions,
		Security: security(in.TLS, in.SASL), Logger: e.Logger,
	})
	if err != nil {
		return nil, told(s, err)
	}
	return out, nil
}

func newKafkaSink(e spec.Env, s spec.Settings, windows bool) (processor.Sink, error) {
	in, cfg, err := sinkConfig(e, s)
	if err != nil {
		return nil, err
	}
	if windows && cfg.Partitioning == kafka.FromRecord {
		return nil, s.Mistake("partition", "the result of a window comes from no partition of the source; use by_key or round_robin")
	}
	cfg.Topic = in.Topic
	out, err := kafka.NewSink(cfg)
	if err != nil {
		return nil, told(s, err)
	}
	return out, nil
}

func sinkConfig(e spec.Env, s spec.Settings) (kafkaSink, kafka.SinkConfig, error) {
	var in kafkaSink
	if err := s.Decode(&in); err != nil {
		return in, kafka.SinkConfig{}, err
	}
	partitioning := map[string]kafka.Partitioning{"": kafka.ByKey, "by_key": kafka.ByKey, "round_robin": kafka.RoundRobin, "from_record": kafka.FromRecord}
	return in, kafka.SinkConfig{
		Brokers: in.Brokers, Partitioning: partitioning[in.Partition], Compression: kafka.Compression(in.Compression),
		TransactionTimeout: in.TransactionTimeout, WitnessTopic: in.WitnessTopic, EpochHeader: in.EpochHeader, MaxBufferedBytes: in.MaxBufferedBytes,
		ClientID: in.ClientID, Security: security(in.TLS, in.SASL), Logger: e.Logger,
	}, nil
}

// security hands secrets on as references: the client reads them at each authentication.
func security(t *kafkaTLS, s *kafkaSASL) kafka.Security {
	var out kafka.Security
	if t != nil {
		out.TLS = &kafka.TLS{CAFile: t.CA, CertFile: t.Cert, KeyFile: t.Key, ServerName: t.ServerName}
	}
	if s != nil {
		out.SASL = &kafka.SASL{
			Mechanism: kafka.Mechanism(s.Mechanism), User: s.User, Password: kafka.Secret(s.Password.Reference()), Token: kafka.Secret(s.Token.Reference()),
		}
	}
	return out
}

// kafkaPlaces are topics by each broker that is named: two lists with one broker in common are one cluster.
func kafkaPlaces(_ spec.Env, source bool, s spec.Settings) []string {
	var brokers, topics []string
	var err error // told where the settings are used
	if source {
		var in kafkaSource
		err = s.Decode(&in)
		brokers, topics = in.Brokers, in.Topics
	} else {
		var in kafkaSink
		err = s.Decode(&in)
		brokers, topics = in.Brokers, []string{in.Topic}
	}
	if err != nil {
		return nil
	}
	var out []string
	for _, b := range brokers {
		for _, t := range topics {
			out = append(out, fmt.Sprintf("topic %s at %s", t, b))
		}
	}
	return out
}

// cluster is what a pipeline uses of one Kafka cluster, as one client.
type cluster struct {
	brokers  []string
	security kafka.Security
	sink     kafka.SinkConfig
	topics   []topicUse
	from, to []string
}

type topicUse struct {
	name string
	use  Use
	at   string // the setting that names it
}

// checkKafka looks for brokers that do not answer, topics that are not there, and settings of the
// brokers with which nothing can work; those that are risky are logged.
func checkKafka(ctx context.Context, e spec.Env, uses []Use) error {
	clusters, err := clustersOf(e, uses)
	if err != nil {
		return err
	}
	for _, c := range clusters {
		if err := c.topicsExist(ctx); err != nil {
			return err
		}
		cfg := kafka.DoctorConfig{Sink: c.sink, From: c.from, To: c.to}
		cfg.Sink.Brokers, cfg.Sink.Security = c.brokers, c.security
		if err := Examine(ctx, e.Logger, cfg); err != nil {
			return err
		}
	}
	return nil
}

// clustersOf gathers what is used by client: the same brokers with the same user are looked at once.
func clustersOf(e spec.Env, uses []Use) ([]*cluster, error) {
	var out []*cluster
	byKey := map[string]*cluster{}
	find := func(brokers []string, t *kafkaTLS, s *kafkaSASL) *cluster {
		key := fmt.Sprintf("%q %+v %+v", brokers, deref(t), deref(s))
		if byKey[key] == nil {
			byKey[key] = &cluster{brokers: brokers, security: security(t, s)}
			out = append(out, byKey[key])
		}
		return byKey[key]
	}
	for _, u := range uses {
		if u.Source {
			var in kafkaSource
			if err := u.Settings.Decode(&in); err != nil {
				return nil, err
			}
			c := find(in.Brokers, in.TLS, in.SASL)
			for _, t := range in.Topics {
				c.topics, c.from = append(c.topics, topicUse{t, u, "topics"}), append(c.from, t)
			}
			continue
		}
		in, cfg, err := sinkConfig(e, u.Settings)
		if err != nil {
			return nil, err
		}
		c := find(in.Brokers, in.TLS, in.SASL)
		c.topics, c.to, c.sink = append(c.topics, topicUse{in.Topic, u, "topic"}), append(c.to, in.Topic), cfg
	}
	return out, nil
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func (c *cluster) topicsExist(ctx context.Context) error {
	admin, err := kafka.NewAdmin(kafka.AdminConfig{Brokers: c.brokers, Security: c.security})
	if err != nil {
		return told(c.topics[0].use.Settings, err)
	}
	defer admin.Close()
	if err := admin.Reach(ctx); err != nil {
		return &marked{ErrUnreachable, err}
	}
	for _, t := range c.topics {
		if _, found, err := admin.TopicExists(ctx, t.name); err != nil {
			return err
		} else if !found {
			return &marked{ErrNotFound, t.use.Settings.Mistake(t.at, "the brokers at %s have no topic %q; create it, or name another", strings.Join(c.brokers, ", "), t.name)}
		}
	}
	return nil
}

// examineWait bounds the look at the brokers with which a pipeline starts.
const examineWait = 5 * time.Second

// Examine looks at the brokers before a pipeline starts: it logs what may fail one day, and refuses what
// cannot work. That the look itself failed is only logged: the pipeline will find out.
func Examine(ctx context.Context, log *slog.Logger, cfg kafka.DoctorConfig) error {
	ctx, cancel := context.WithTimeout(ctx, examineWait)
	defer cancel()
	found, err := kafka.Examine(ctx, cfg)
	if err != nil {
		log.WarnContext(ctx, "brokers could not be examined", slog.String("error", err.Error()))
		return nil
	}
	for _, f := range found {
		if f.Severity == kafka.Warning {
			log.WarnContext(ctx, "a setting of the brokers is risky", slog.String("subject", f.Subject), slog.String("setting", f.Setting),
				slog.String("found", f.Found), slog.String("wanted", f.Wanted), slog.String("why", f.Why))
		}
	}
	if err := kafka.Refuse(found); err != nil {
		return fmt.Errorf("refused to start: %w", err)
	}
	return nil
}
