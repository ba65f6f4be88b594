package raftnode

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
)

// Bounds that no setting moves.
const (
	// MaxCommandBytes is the largest encoded command; larger ones are refused with ErrTooLarge.
	MaxCommandBytes = 1 << 20
	// MaxNodeID is the longest node id, in bytes.
	MaxNodeID = 64

	entryBytes      = 64 << 10 // of a shared entry, unless one command alone is larger
	inFlightBytes   = 16 << 20 // of all proposals in flight
	minTrailingLogs = 10240    // below it, raft can be sent back to an older snapshot
	transferLimit   = 10 * time.Second
	exitStorage     = 70 // exit code of the default OnFatal
)

// Config says who the node is and where it keeps what. The zero value of a field with a default
// means that default.
type Config struct {
	// NodeID names the node within its group, for the life of the data directory.
	NodeID string
	// Namespace, when not empty, must be the group's; a node of another one stops.
	Namespace string
	// DataDir holds log, snapshots and identity; made if missing.
	DataDir string
	// RaftBind is the host:port to listen on; RaftAdvertise (default RaftBind) is what others dial.
	RaftBind      string
	RaftAdvertise string
	// TLS is needed unless RaftBind is a loopback address or Insecure is set.
	TLS      *TLSConfig
	Insecure bool

	Logger *slog.Logger // default slog.Default

	// HeartbeatTimeout without a word from the leader lets a follower call for votes; default 500ms.
	HeartbeatTimeout time.Duration
	// ElectionTimeout for one round of votes, not below HeartbeatTimeout; default HeartbeatTimeout.
	ElectionTimeout time.Duration
	// SnapshotThreshold is the number of entries between snapshots, looked at every
	// SnapshotInterval; defaults 8192 and 1m.
	SnapshotThreshold uint64
	SnapshotInterval  time.Duration
	// TrailingLogs are kept behind a snapshot for slow followers; at least and by default 10240.
	TrailingLogs uint64
	// WriteWatchdog is the longest a write to disk may take before the process ends; default 3s.
	WriteWatchdog time.Duration
	// MaxInFlight proposals are on their way at once; more wait. At most and by default 512.
	MaxInFlight int

	// OnFatal is called once, from any goroutine, when the node must not go on. By default it
	// logs and ends the process with code 70. If it returns, the goroutine that failed ends,
	// the node answers ErrUnknown, and Run returns the error.
	OnFatal func(error)
	// Effects hears what each applied entry owes to the outside, on every node, in log order,
	// and must not block. After a snapshot was installed it is called with nil: anything may
	// have changed. Effects are hints; the truth is in View.
	Effects func(effects []ledger.Effect, index uint64)

	// Seams replace disk and network in tests; see MemoryNet.
	Seams Seams
}

// Seams are what tests put in the place of disk and network. Zero fields mean the real thing.
type Seams struct {
	Transport Transport
	Logs      raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	// TrailingLogs, when not 0, goes below the bound of Config.TrailingLogs.
	TrailingLogs uint64
	// TrailingBytes, when not 0, is how much the log may hold, whatever the number of entries.
	TrailingBytes int
	// Skew is how far this node's clock is off; it may step at any time, as a corrected clock does.
	// Leases and watchdogs count on the monotonic clock, which does not step.
	Skew func() time.Duration
	// TrustEmptied lets a node that began with an empty disk vote like any other, which loses what
	// was decided; it shows what the restraint is for.
	TrustEmptied bool
}

func (s Seams) memory() bool { return s.Logs != nil && s.Stable != nil && s.Snapshots != nil }

// Validate reports every mistake in c at once, each in one sentence. Unset fields count as their
// defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if err := ledger.CheckName("node", c.NodeID, MaxNodeID); err != nil {
		errs = append(errs, err)
	}
	if c.Namespace != "" {
		if err := ledger.CheckName("namespace", c.Namespace, ledger.MaxNamespace); err != nil {
			errs = append(errs, err)
		}
	}
	if c.DataDir == "" && !c.Seams.memory() {
		bad("the data directory is not set")
	}
	if c.Seams.Transport == nil {
		errs = append(errs, c.validateNetwork()...)
	}
	if c.HeartbeatTimeout < 10*time.Millisecond {
		bad("the heartbeat timeout %s is too short; at least 10ms, 500ms is usual", c.HeartbeatTimeout)
	}
	if c.ElectionTimeout < c.HeartbeatTimeout {
		bad("the election timeout %s is below the heartbeat timeout %s", c.ElectionTimeout, c.HeartbeatTimeout)
	}
	if c.TrailingLogs < minTrailingLogs && !mutant.On("raft/trailing-logs") {
		bad("trailing logs %d are too few; keep at least %d", c.TrailingLogs, minTrailingLogs)
	}
	if c.SnapshotInterval < 5*time.Millisecond {
		bad("the snapshot interval %s is too short", c.SnapshotInterval)
	}
	if c.WriteWatchdog <= 0 {
		bad("the write watchdog %s must be positive", c.WriteWatchdog)
	}
	if c.MaxInFlight < 1 || c.MaxInFlight > 512 {
		bad("%d proposals in flight are not possible; 1 to 512 are", c.MaxInFlight)
	}
	return errors.Join(errs...)
}

func (c Config) validateNetwork() []error {
	var errs []error
	host, _, err := net.SplitHostPort(c.RaftBind)
	if err != nil {
		errs = append(errs, fmt.Errorf("the raft address %q is not host:port", c.RaftBind))
	}
	advertised, _, errAdvertise := net.SplitHostPort(c.RaftAdvertise)
	ip := net.ParseIP(advertised)
	switch {
	case errAdvertise != nil && err == nil:
		errs = append(errs, fmt.Errorf("the advertised raft address %q is not host:port", c.RaftAdvertise))
	case errAdvertise == nil && (advertised == "" || ip != nil && ip.IsUnspecified()):
		errs = append(errs, fmt.Errorf("the advertised raft address %q names no host that others can dial", c.RaftAdvertise))
	}
	if c.TLS != nil {
		errs = append(errs, c.TLS.validate()...)
	} else if err == nil && !c.Insecure && !loopback(host) {
		errs = append(errs, fmt.Errorf("the raft address %q is reachable from outside and has no TLS; give certificates, or ask for plain text explicitly", c.RaftBind))
	}
	return errs
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// withDefaults returns c with every unset field filled.
func (c Config) withDefaults() Config {
	if c.RaftAdvertise == "" {
		c.RaftAdvertise = c.RaftBind
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = c.Logger.With(obs.Node(c.NodeID))
	setDefault(&c.HeartbeatTimeout, 500*time.Millisecond)
	setDefault(&c.ElectionTimeout, c.HeartbeatTimeout)
	setDefault(&c.SnapshotThreshold, 8192)
	setDefault(&c.SnapshotInterval, time.Minute)
	setDefault(&c.TrailingLogs, minTrailingLogs)
	setDefault(&c.WriteWatchdog, 3*time.Second)
	setDefault(&c.MaxInFlight, 512)
	if c.OnFatal == nil {
		c.OnFatal = exit(c.Logger)
	}
	if c.Effects == nil {
		c.Effects = func([]ledger.Effect, uint64) {}
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// exit is the default OnFatal. The log may lie on the very disk that hangs, so it is given a
// second and no more.
func exit(log *slog.Logger) func(error) {
	return func(err error) {
		logged := make(chan struct{})
		go func() {
			log.Error("node stops, restart it once the cause is gone", obs.Err(err))
			close(logged)
		}()
		select {
		case <-logged:
		case <-time.After(time.Second):
		}
		os.Exit(exitStorage)
	}
}

// raftConfig is what the library gets; the reasons stand in DESIGN.md.
func (c Config) raftConfig() *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(c.NodeID)
	rc.HeartbeatTimeout = c.HeartbeatTimeout
	rc.ElectionTimeout = c.ElectionTimeout
	rc.LeaderLeaseTimeout = c.HeartbeatTimeout
	rc.SnapshotThreshold = c.SnapshotThreshold
	rc.SnapshotInterval = c.SnapshotInterval
	rc.TrailingLogs = c.TrailingLogs
	if c.Seams.TrailingLogs != 0 {
		rc.TrailingLogs = c.Seams.TrailingLogs
	}
	rc.PreVoteDisabled = mutant.On("raft/pre-vote")
	rc.NoLegacyTelemetry = true
	rc.Logger = raftLogger(c.Logger)
	return rc
}
