package services

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/internal/child"
)

const (
	// KafkaVariable names the environment variable with the addresses of a user's own broker.
	KafkaVariable = "UNISINK_TEST_KAFKA"
	// KafkaCurrent is the newest supported version, KafkaOlder that of the older line.
	KafkaCurrent = "4.4.0"
	KafkaOlder   = "3.9.1"
)

// KafkaConfig says what Kafka starts. The zero value is one broker of the newest version.
type KafkaConfig struct {
	Version string // KafkaCurrent (the default) or KafkaOlder
	Brokers int    // 1 or 2; default 1
	// Config has settings of the brokers, in addition to those in DESIGN.md and over them.
	Config map[string]string
	// Dir keeps data and logs, also after the end, and must hold no data before; default a
	// temporary directory that goes with the cluster.
	Dir string
	// SessionTimeout is how long a broker counts as alive after its last heartbeat. A killed
	// one comes back, and its partitions are without a leader, that much later at the
	// latest. Default 3s, where Kafka's own is 9s.
	SessionTimeout time.Duration
	// LongRunning has the brokers translate for speed and collect garbage with short pauses, as they do
	// by default. For benchmarks: a start then costs twice the processor time.
	LongRunning bool
}

// Validate reports every mistake at once.
func (c KafkaConfig) Validate() error {
	var errs []error
	if c.Version != KafkaCurrent && c.Version != KafkaOlder {
		errs = append(errs, fmt.Errorf("version %q of Kafka is not known here: say %s or %s", c.Version, KafkaCurrent, KafkaOlder))
	}
	if c.Brokers != 1 && c.Brokers != 2 {
		errs = append(errs, fmt.Errorf("a cluster has 1 or 2 brokers, not %d", c.Brokers))
	}
	if c.SessionTimeout < time.Second {
		errs = append(errs, fmt.Errorf("a session timeout of %s is too short for a busy machine: say at least 1s", c.SessionTimeout))
	}
	return errors.Join(errs...)
}

func (c KafkaConfig) defaults() KafkaConfig {
	if c.Version == "" {
		c.Version = KafkaCurrent
	}
	if c.Brokers == 0 {
		c.Brokers = 1
	}
	if c.SessionTimeout == 0 {
		c.SessionTimeout = 3 * time.Second
	}
	return c
}

// KafkaCluster is one or two running brokers. Broker 1 is the controller too. In a cluster of
// two it alone holds the state of transactions and of groups, so that the second can be lost
// while both can be asked. Methods may be called from anywhere at any time.
type KafkaCluster struct {
	cfg     KafkaConfig
	dir     string
	remove  func() error // of dir; nil if it stays
	lib     string
	crew    *child.Crew
	brokers []*Broker
}

// Kafka starts a cluster and returns when each broker answers and knows of all others. When it
// fails nothing is left of it. Stop or Close ends it.
func Kafka(ctx context.Context, cfg KafkaConfig) (*KafkaCluster, error) {
	cfg = cfg.defaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("java"); err != nil {
		return nil, missing("java", "Apache Kafka "+cfg.Version+" needs Java 17 or newer", "default-jre-headless", "openjdk", KafkaVariable)
	}
	lib, err := fetchKafka(ctx, cfg.Version)
	if err != nil {
		return nil, err
	}
	var c *KafkaCluster
	err = onFreePorts(func() error {
		c, err = newCluster(cfg, lib)
		if err != nil {
			return err
		}
		if err := c.start(ctx); err != nil {
			err = errors.Join(fmt.Errorf("start Apache Kafka %s: %w", cfg.Version, err), c.Close())
			if errors.Is(err, errPortTaken) { // and tried again, on empty disks
				err = errors.Join(err, c.wipe())
			}
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// newCluster lays out the directories and settings of a cluster that does not run yet.
func newCluster(cfg KafkaConfig, lib string) (*KafkaCluster, error) {
	c := &KafkaCluster{cfg: cfg, dir: cfg.Dir, lib: lib, crew: child.New()}
	if c.dir == "" {
		dir, remove, err := tempDir("unisink-kafka-")
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make a directory for Kafka: %w", err), c.crew.End())
		}
		c.dir, c.remove = dir, remove
	}
	for id := range cfg.Brokers {
		b, err := newBroker(c, int32(id+1))
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.brokers = append(c.brokers, b)
	}
	for _, b := range c.brokers {
		if err := b.configure(); err != nil {
			return nil, errors.Join(fmt.Errorf("write the settings of broker %d: %w", b.id, err), c.Close())
		}
	}
	return c, nil
}

// start formats the disks and starts the brokers, all at once, and waits for them.
func (c *KafkaCluster) start(ctx context.Context) error {
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return fmt.Errorf("draw a cluster id: %w", err)
	}
	id := base64.RawURLEncoding.EncodeToString(raw[:])
	if id[0] == '-' { // the tool would take it for an option
		id = "A" + id[1:]
	}
	all, each := errgroup.WithContext(ctx)
	for _, b := range c.brokers {
		all.Go(func() error {
			if err := b.format(each, id); err != nil {
				return err
			}
			return b.start(each, len(c.brokers))
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	if len(c.brokers) == 1 {
		return nil // Kafka makes its own topics on first use
	}
	return c.pinInternalTopics(ctx)
}

// Addrs returns the addresses of all brokers, running or not.
func (c *KafkaCluster) Addrs() []string {
	var addrs []string
	for _, b := range c.brokers {
		addrs = append(addrs, b.addr)
	}
	return addrs
}

// Broker returns a broker by its id in Kafka: 1, or 2.
func (c *KafkaCluster) Broker(id int32) *Broker { return c.brokers[id-1] }

// Dir returns the directory of data and logs.
func (c *KafkaCluster) Dir() string { return c.dir }

// Stop asks the brokers to end, the controller last, and then does what Close does. A broker
// that cannot end by itself, because its controller is gone or in 40 s, is killed.
func (c *KafkaCluster) Stop(ctx context.Context) error {
	var errs []error
	for i := len(c.brokers) - 1; i >= 0 && c.brokers[0].Alive(); i-- {
		errs = append(errs, c.brokers[i].Stop(ctx))
	}
	return errors.Join(append(errs, c.Close())...)
}

// Close kills what runs and removes what is temporary. A second call does nothing.
func (c *KafkaCluster) Close() error {
	err := c.crew.End()
	if c.remove != nil {
		err = errors.Join(err, c.remove())
	}
	return err
}

// wipe removes what was formatted for this cluster.
func (c *KafkaCluster) wipe() error {
	var errs []error
	for _, b := range c.brokers {
		errs = append(errs, os.RemoveAll(b.data()), os.RemoveAll(b.log))
	}
	return errors.Join(errs...)
}

func (c *KafkaCluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}
