package adapters

import (
	"context"
	"fmt"
	"sync"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/state"
)

type kafkaStore struct {
	Brokers  []string   `yaml:"brokers,required" doc:"Addresses of brokers, host:port: a list, or one text with commas."`
	Topic    string     `yaml:"topic,required" doc:"Compacted topic of its own, with two partitions or more; made if it is not there."`
	ClientID string     `yaml:"client_id" doc:"Name of the client in the brokers' logs; default unisink."`
	TLS      *kafkaTLS  `yaml:"tls" doc:"Encrypt connections; {} checks the brokers by the system's authorities. Left out: plain text."`
	SASL     *kafkaSASL `yaml:"sasl" doc:"Who the client is. Left out: nobody."`
}

func newKafkaStore(e spec.Env, s spec.Settings) (state.Store, error) {
	var in kafkaStore
	if err := s.Decode(&in); err != nil {
		return nil, err
	}
	cfg := kafka.StateStoreConfig{Brokers: in.Brokers, Topic: in.Topic, ClientID: in.ClientID, Security: security(in.TLS, in.SASL), Logger: e.Logger}
	return &lateStore{name: fmt.Sprintf("kafka:%s", in.Topic), open: func(ctx context.Context) (closingStore, error) {
		return kafka.OpenStateStore(ctx, cfg)
	}}, nil
}

type closingStore interface {
	state.Store
	Close() error
}

// lateStore opens a store with the first call, and again with the next while it cannot be opened.
type lateStore struct {
	name string
	open func(ctx context.Context) (closingStore, error)

	mu    sync.Mutex // guards store; held while it is opened, so that it is opened once
	store closingStore
}

func (l *lateStore) opened(ctx context.Context) (closingStore, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store == nil {
		s, err := l.open(ctx)
		if err != nil {
			return nil, err
		}
		l.store = s
	}
	return l.store, nil
}

// Name says which store it is; addresses are left out, since they may change while the store stays.
func (l *lateStore) Name() string { return l.name }

// Put writes a part.
func (l *lateStore) Put(ctx context.Context, id string, body []byte) error {
	s, err := l.opened(ctx)
	if err != nil {
		return err
	}
	return s.Put(ctx, id, body)
}

// Get reads a part.
func (l *lateStore) Get(ctx context.Context, id string) ([]byte, error) {
	s, err := l.opened(ctx)
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, id)
}

// Delete removes a part.
func (l *lateStore) Delete(ctx context.Context, id string) error {
	s, err := l.opened(ctx)
	if err != nil {
		return err
	}
	return s.Delete(ctx, id)
}

// List returns the ids with a prefix.
func (l *lateStore) List(ctx context.Context, prefix string) ([]string, error) {
	s, err := l.opened(ctx)
	if err != nil {
		return nil, err
	}
	return s.List(ctx, prefix)
}

// Close closes what was opened. A later call opens it again.
func (l *lateStore) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.store
	l.store = nil
	if s == nil {
		return nil
	}
	return s.Close()
}
