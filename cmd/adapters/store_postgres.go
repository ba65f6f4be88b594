package adapters

import (
	"context"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/state"
)

type postgresStore struct {
	DSN    spec.Secret `yaml:"dsn,required" doc:"Connection string, by reference: a URL or key=value pairs."`
	Store  string      `yaml:"store" doc:"Name of the set of parts in the table unisink.state; default \"default\"."`
	Pooler bool        `yaml:"pooler" doc:"Connections go through a pooler in transaction mode."`
}

func newPostgresStore(e spec.Env, s spec.Settings) (state.Store, error) {
	var in postgresStore
	if err := s.Decode(&in); err != nil {
		return nil, err
	}
	name := in.Store
	if name == "" {
		name = "default"
	}
	return &lateStore{name: "postgres:" + name, open: func(ctx context.Context) (closingStore, error) {
		return postgres.OpenStateStore(ctx, postgres.StateStoreConfig{DSN: in.DSN.Reveal(), Store: in.Store, Pooler: in.Pooler, Logger: e.Logger})
	}}, nil
}
