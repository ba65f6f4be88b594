package adapters

import (
	"context"
	"errors"
	"io/fs"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/spec"
)

// What entries of a resolver's file say: how a resource is reached, and nothing about what is written to it.

type kafkaReach struct {
	Brokers      []string   `yaml:"brokers,required" doc:"Addresses of brokers, host:port: a list, or one text with commas."`
	ClientID     string     `yaml:"client_id" doc:"Name of the client in the brokers' logs; default unisink."`
	TLS          *kafkaTLS  `yaml:"tls" doc:"Encrypt connections; {} checks the brokers by the system's authorities. Left out: plain text."`
	SASL         *kafkaSASL `yaml:"sasl" doc:"Who the client is. Left out: nobody."`
	WitnessTopic string     `yaml:"witness_topic" doc:"As the sinks have it, where they name one."`
}

func finishKafka(_ context.Context, e spec.Env, s spec.Settings) (participant.Finisher, error) {
	var in kafkaReach
	if err := s.Decode(&in); err != nil {
		return nil, err
	}
	out, err := kafka.NewSink(kafka.SinkConfig{
		Brokers: in.Brokers, ClientID: in.ClientID, Security: security(in.TLS, in.SASL), WitnessTopic: in.WitnessTopic, Logger: e.Logger,
	})
	if err != nil {
		return nil, told(s, err)
	}
	return out, nil
}

type postgresReach struct {
	DSN    spec.Secret `yaml:"dsn,required" doc:"Connection string, by reference: a URL or key=value pairs."`
	Pooler bool        `yaml:"pooler" doc:"The connection goes through a pooler in transaction mode, such as pgbouncer."`
}

func finishPostgres(_ context.Context, e spec.Env, s spec.Settings) (participant.Finisher, error) {
	var in postgresReach
	if err := s.Decode(&in); err != nil {
		return nil, err
	}
	out, err := postgres.New(postgres.Options{DSN: in.DSN.Reveal(), Pooler: in.Pooler, Logger: e.Logger})
	if err != nil {
		return nil, told(s, err)
	}
	return out, nil
}

type fileReach struct {
	Dir string `yaml:"dir,required" doc:"Directory that file sinks write to. It must be there: a resolver makes none."`
}

func finishFile(_ context.Context, e spec.Env, s spec.Settings) (participant.Finisher, error) {
	var in fileReach
	if err := s.Decode(&in); err != nil {
		return nil, err
	}
	out, err := file.NewSink(file.SinkConfig{Dir: in.Dir, Logger: e.Logger})
	if err != nil {
		return nil, told(s, err)
	}
	return &thereOnly{Finisher: out, dir: in.Dir}, nil
}

// thereOnly keeps a resolver from making a directory, and an identity in it, where a disk is not mounted.
type thereOnly struct {
	participant.Finisher
	dir string
}

// Describe waits for the directory to be there.
func (t *thereOnly) Describe(ctx context.Context) (participant.Description, error) {
	switch found, err := file.HasIdentity(t.dir); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !found:
		return participant.Description{Text: "directory " + t.dir}, &marked{ErrNotFound, errNotYet(t.dir)}
	case err != nil:
		return participant.Description{}, err
	}
	return t.Finisher.Describe(ctx)
}

func errNotYet(dir string) error {
	return errors.New("no file sink has written to the directory " + dir + " yet, or it is not mounted")
}
