package services

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/freeport"
)

// Broker is one broker of a cluster, running or not.
type Broker struct {
	cluster    *KafkaCluster
	id         int32
	addr       string // for clients
	controller string // for brokers; only broker 1 listens there
	log        string

	mu     sync.Mutex // guards the two below; held for memory only
	proc   *child.Process
	paused bool
}

func newBroker(c *KafkaCluster, id int32) (*Broker, error) {
	b := &Broker{cluster: c, id: id, log: c.path(fmt.Sprintf("broker-%d.log", id))}
	var err error
	if b.addr, err = freeport.Loopback(); err != nil {
		return nil, fmt.Errorf("find a port for broker %d: %w", id, err)
	}
	if id > 1 {
		return b, nil
	}
	if b.controller, err = freeport.Loopback(); err != nil {
		return nil, fmt.Errorf("find a port for the controller: %w", err)
	}
	return b, nil
}

// settings returns what the broker is started with; DESIGN.md says why.
func (b *Broker) settings() map[string]string {
	cfg := b.cluster.cfg
	lead := b.cluster.brokers[0].controller
	all := map[string]string{
		"process.roles":                  "broker",
		"node.id":                        strconv.Itoa(int(b.id)),
		"controller.quorum.voters":       "1@" + lead,
		"controller.listener.names":      "CONTROLLER",
		"listeners":                      "PLAINTEXT://" + b.addr,
		"advertised.listeners":           "PLAINTEXT://" + b.addr,
		"inter.broker.listener.name":     "PLAINTEXT",
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                       b.data(),

		"broker.session.timeout.ms":    strconv.FormatInt(cfg.SessionTimeout.Milliseconds(), 10),
		"broker.heartbeat.interval.ms": strconv.FormatInt(cfg.SessionTimeout.Milliseconds()/6, 10),

		"num.partitions":                                              "4",
		"offsets.topic.replication.factor":                            "1",
		"offsets.topic.num.partitions":                                strconv.Itoa(internalPartitions),
		"transaction.state.log.replication.factor":                    "1",
		"transaction.state.log.min.isr":                               "1",
		"transaction.state.log.num.partitions":                        strconv.Itoa(internalPartitions),
		"share.coordinator.state.topic.replication.factor":            "1",
		"share.coordinator.state.topic.min.isr":                       "1",
		"group.initial.rebalance.delay.ms":                            "0",
		"transaction.max.timeout.ms":                                  "2147483647",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
	}
	if b.id == 1 {
		all["process.roles"] = "broker,controller"
		all["listeners"] += ",CONTROLLER://" + lead
	}
	maps.Copy(all, cfg.Config)
	return all
}

func (b *Broker) data() string { return b.cluster.path(fmt.Sprintf("data-%d", b.id)) }

func (b *Broker) properties() string {
	return b.cluster.path(fmt.Sprintf("broker-%d.properties", b.id))
}

func (b *Broker) logging() string { return b.cluster.path("logging.yaml") }

// configure writes the files that the broker reads.
func (b *Broker) configure() error {
	all := b.settings()
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s=%s\n", name, all[name])
	}
	logging := newLogging
	if oldLogging(b.cluster.cfg.Version) {
		logging = log4jProperties
	}
	return errors.Join(
		os.MkdirAll(b.cluster.dir, 0o755),
		os.WriteFile(b.properties(), []byte(text.String()), 0o644),
		os.WriteFile(b.logging(), []byte(logging), 0o644),
	)
}

// What a broker logs is there for the error of a start that fails, and for people: warnings.
const (
	newLogging = `Configuration:
  Appenders:
    Console:
      name: out
      target: SYSTEM_OUT
      PatternLayout:
        pattern: "%d{HH:mm:ss.SSS} %p %c{1}: %m%n"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        - ref: out
`
	log4jProperties = `log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c{1}: %m%n
`
)

// java returns how a class of Kafka is run.
func (b *Broker) java(name, log string, args ...string) child.Spec {
	where := "-Dlog4j2.configurationFile=" + b.logging()
	if oldLogging(b.cluster.cfg.Version) {
		where = "-Dlog4j.configuration=file:" + b.logging()
	}
	// Native libraries that the broker unpacks go with its directory.
	jvm := []string{where, "-Djava.io.tmpdir=" + b.cluster.dir, "-cp", b.cluster.lib + "/*"}
	if b.cluster.cfg.LongRunning { // as Kafka's own script does; without it pauses of the serial collector are measured
		jvm = append(jvm, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
	} else {
		jvm = append(jvm, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
	}
	return child.Spec{Name: name, Path: "java", Dir: b.cluster.dir, Log: log, Args: append(jvm, args...)}
}

// format prepares an empty disk.
func (b *Broker) format(ctx context.Context, clusterID string) error {
	log := b.cluster.path(fmt.Sprintf("format-%d.log", b.id))
	return once(ctx, b.cluster.crew, b.java(fmt.Sprintf("the format of broker %d", b.id), log,
		"-Xmx256m", "kafka.tools.StorageTool", "format", "-t", clusterID, "-c", b.properties()))
}

// start starts the process and returns when it answers and knows of so many brokers, itself
// among them.
func (b *Broker) start(ctx context.Context, brokers int) error {
	name := fmt.Sprintf("broker %d", b.id)
	p, err := b.cluster.crew.Start(b.java(name, b.log, "-Xms256m", "-Xmx1g", "kafka.Kafka", b.properties()))
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.proc, b.paused = p, false
	b.mu.Unlock()
	look, err := newLookout(b.addr)
	if err != nil {
		return err
	}
	defer look.close()
	return await(ctx, name, b.log, p, func(ctx context.Context) error { return look.sees(ctx, b.id, brokers) })
}

// ID returns the broker's id in Kafka.
func (b *Broker) ID() int32 { return b.id }

// Addr returns the address for clients, which stays the same over restarts.
func (b *Broker) Addr() string { return b.addr }

// Port returns the port of Addr.
func (b *Broker) Port() int {
	_, port, _ := net.SplitHostPort(b.addr) // we put it together
	n, _ := strconv.Atoi(port)
	return n
}

// PID returns the process id of its last start.
func (b *Broker) PID() int { return b.process().PID() }

// Alive reports whether its process runs, paused or not.
func (b *Broker) Alive() bool {
	p := b.process()
	return p != nil && p.Alive()
}

// Tail returns the last lines of its log.
func (b *Broker) Tail() string { return tail(b.log) }

func (b *Broker) process() *child.Process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.proc
}

// answers reports whether a question would be answered: it runs and is not paused.
func (b *Broker) answers() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.proc != nil && b.proc.Alive() && !b.paused
}

// Kill ends the process with -9 and returns when it has ended.
func (b *Broker) Kill() error { return b.process().Kill() }

// Pause stops the process where it is and returns when it stands; its connections stay.
func (b *Broker) Pause() error { return halt(b.hold(true)) }

// Continue lets a paused process go on. Paused for longer than the session timeout, its
// partitions may be without a leader for a moment after it.
func (b *Broker) Continue() error { return b.hold(false).Signal(syscall.SIGCONT) }

// hold notes whether the process is paused and returns it.
func (b *Broker) hold(paused bool) *child.Process {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = paused
	return b.proc
}

// Stop asks the process to end and returns when it has. It is killed, and that is an error,
// when ctx ends first or after 40 s. One that has ended already is no error.
func (b *Broker) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return b.process().Stop(ctx, syscall.SIGTERM)
}

// Restart starts it again on the same data and port, after a Stop if it runs, and returns when
// it answers and counts itself as alive: then its partitions have their leader again.
func (b *Broker) Restart(ctx context.Context) error {
	if b.Alive() {
		if err := b.Stop(ctx); err != nil {
			return err
		}
	}
	if err := b.start(ctx, 1); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	return nil
}
