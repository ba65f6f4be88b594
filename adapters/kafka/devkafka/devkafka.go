// Package devkafka runs an embedded Kafka broker for trying things out and for tests.
//
// It is not a broker for data that matters. With a data directory it keeps its topics over a
// graceful stop; killed, it aborts every open transaction and forgets how the last ones ended,
// which no real broker does. So it belongs into a process of its own that is stopped with
// Close, and what is killed in experiments is everything else.
package devkafka

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kfake"
)

// Setting is one that the broker shows among its own, by which it is told from a real one.
const Setting = "unisink.embedded"

// Config is what the broker needs to know.
type Config struct {
	// Addr to listen on, "host:port"; port 0 or an empty address picks a free one on loopback.
	Addr string
	// DataDir keeps topics and transactions over a graceful stop; empty: memory only. Two brokers
	// must not share one.
	DataDir string
	// Topics are created when they are not there: name -> number of partitions.
	Topics map[string]int
	// BrokerConfigs are set on the broker, as Kafka names them.
	BrokerConfigs map[string]string
	// Options are handed to the embedded broker last.
	Options []kfake.Opt
}

// Broker is a running embedded broker.
type Broker struct {
	cluster *kfake.Cluster
	id      string
}

// Start runs a broker until Close.
func Start(cfg Config) (*Broker, error) {
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.DefaultNumPartitions(1)}
	if cfg.Addr != "" {
		opts = append(opts, kfake.ListenFn(func(network, _ string) (net.Listener, error) {
			var listen net.ListenConfig
			return listen.Listen(context.Background(), network, cfg.Addr)
		}))
		if _, port, err := net.SplitHostPort(cfg.Addr); err != nil {
			return nil, fmt.Errorf("embedded kafka: address %q: write host:port: %w", cfg.Addr, err)
		} else if n, err := strconv.Atoi(port); err == nil && n > 0 {
			opts = append(opts, kfake.Ports(n))
		}
	}
	id := uuid.New()
	if cfg.DataDir != "" {
		var err error
		if id, err = keptID(cfg.DataDir); err != nil {
			return nil, err
		}
		opts = append(opts, kfake.DataDir(filepath.Join(cfg.DataDir, "kafka")))
	}
	name := base64.RawURLEncoding.EncodeToString(id[:])
	opts = append(opts, kfake.ClusterID(name))
	opts = append(opts, kfake.BrokerConfigs(map[string]string{Setting: "true"}), kfake.BrokerConfigs(cfg.BrokerConfigs))
	c, err := kfake.NewCluster(append(opts, cfg.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("embedded kafka at %q: %w", cfg.Addr, err)
	}
	for topic, partitions := range cfg.Topics {
		if c.TopicInfo(topic) != nil {
			continue
		}
		if err := c.CreateTopic(topic, int32(partitions), nil); err != nil {
			c.Close()
			return nil, fmt.Errorf("embedded kafka: create topic %q: %w", topic, err)
		}
	}
	return &Broker{cluster: c, id: name}, nil
}

// keptID reads the cluster's id from the data directory, or writes a new one there.
func keptID(dir string) (uuid.UUID, error) {
	file := filepath.Join(dir, "cluster-id")
	data, err := os.ReadFile(file)
	switch {
	case err == nil:
		id, err := uuid.Parse(strings.TrimSpace(string(data)))
		if err != nil {
			return uuid.UUID{}, fmt.Errorf("embedded kafka: %s holds no cluster id; is %s the data directory of something else? %w", file, dir, err)
		}
		return id, nil
	case !errors.Is(err, fs.ErrNotExist):
		return uuid.UUID{}, fmt.Errorf("embedded kafka: read %s: %w", file, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return uuid.UUID{}, fmt.Errorf("embedded kafka: make the data directory: %w", err)
	}
	id := uuid.New()
	if err := renameio.WriteFile(file, []byte(id.String()+"\n"), 0o644); err != nil {
		return uuid.UUID{}, fmt.Errorf("embedded kafka: write %s: %w", file, err)
	}
	return id, nil
}

// Addr is where clients find the broker, "host:port".
func (b *Broker) Addr() string { return b.cluster.ListenAddrs()[0] }

// ClusterID is the broker's own name for itself.
func (b *Broker) ClusterID() string { return b.id }

// Cluster is the embedded cluster itself, for tests that inject faults.
func (b *Broker) Cluster() *kfake.Cluster { return b.cluster }

// Close stops the broker gracefully: what it holds is written down, open transactions stay open.
func (b *Broker) Close() { b.cluster.Close() }
