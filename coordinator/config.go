package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/unisink/unisink/coordinator/raftnode"
)

// Config is every setting of a coordinator node.
type Config struct {
	// NodeID names the node within its group for the life of its data directory.
	NodeID string
	// DataDir holds log, snapshots and identity; made if missing.
	DataDir string

	// RaftBind is where other nodes reach this one; RaftAdvertise (default RaftBind) is what they dial.
	RaftBind, RaftAdvertise string
	// ClientBind serves gRPC; ClientAdvertise (default ClientBind) is what members and tools dial.
	ClientBind, ClientAdvertise string
	// HTTPBind serves /livez, /readyz and /metrics; empty: not served.
	HTTPBind string

	// RaftTLS secures the port between nodes. Nil is allowed on loopback, or with Insecure.
	RaftTLS *raftnode.TLSConfig
	// ClientTLS secures the gRPC and the HTTP port, and calls from here to other nodes' gRPC port. With
	// it callers need certificates, and roles. Nil, which denies nothing, is allowed as above. The files
	// of both are read again when they have changed.
	ClientTLS *raftnode.TLSConfig
	// RolesFile gives names in certificates their roles, and is read again when it has changed. Empty: the
	// certificates name the roles themselves.
	RolesFile string
	// HTTPOpen are the paths of the HTTP port that need no certificate; default /livez and /readyz.
	HTTPOpen []string
	// Insecure allows plain text on addresses that are reachable from outside.
	Insecure bool
	// Reflection lets tools list the gRPC services.
	Reflection bool

	Logger *slog.Logger // default slog.Default

	// HeartbeatTimeout without a word from the leader lets a follower call for votes; default 500ms.
	HeartbeatTimeout time.Duration
	// SnapshotThreshold is the number of log entries between snapshots; default 8192.
	SnapshotThreshold uint64
	// RetireEvery is how often resolved history is looked at, or sooner where much of it came; KeepFor is how long it
	// stays; defaults 5s and 1h.
	RetireEvery, KeepFor time.Duration
	// HandTimeout is the deadline of an announced transaction that names none; default 1m.
	HandTimeout time.Duration
	// EventMemory is how many events a node remembers for watchers; default 4096.
	EventMemory int

	// Leading runs beside the node's own duties for as long as the node leads, and again when it leads again. It
	// returns soon after its context has ended; an error before that ends the node. Nil: nothing.
	Leading func(ctx context.Context) error

	// Seams replace disk and network in tests; see package coordinatortest.
	Seams Seams
}

// Seams are what tests put in the place of disk and network. Zero fields mean the real thing.
type Seams struct {
	Raft raftnode.Seams
	// Clients is where clients are served, and Dial how other nodes are reached.
	Clients net.Listener
	Dial    func(ctx context.Context, addr string) (net.Conn, error)
	// OnFatal replaces the end of the process.
	OnFatal func(error)
	// Opened is told the node's log before anything is served: what goes into it there was judged by no edge.
	Opened func(*raftnode.Node)
}

func (c Config) withDefaults() Config {
	if c.RaftAdvertise == "" {
		c.RaftAdvertise = c.RaftBind
	}
	if c.ClientAdvertise == "" {
		c.ClientAdvertise = c.ClientBind
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.HTTPOpen == nil {
		c.HTTPOpen = []string{"/livez", "/readyz"}
	}
	if c.EventMemory <= 0 {
		c.EventMemory = 4096
	}
	return c
}

// Validate reports every mistake at once, each in one sentence.
func (c Config) Validate() error {
	errs := []error{c.raft().Validate()}
	for _, a := range []struct {
		what, addr string
		secure     bool
	}{
		{"client address", c.ClientBind, c.ClientTLS != nil || c.Seams.Clients != nil},
		{"HTTP address", c.HTTPBind, c.ClientTLS != nil},
	} {
		if a.addr == "" && a.what == "HTTP address" {
			continue
		}
		host, _, err := net.SplitHostPort(a.addr)
		if err != nil {
			errs = append(errs, fmt.Errorf("the %s %q is not host:port", a.what, a.addr))
			continue
		}
		if !a.secure && !c.Insecure && !loopback(host) {
			errs = append(errs, fmt.Errorf("the %s %q is reachable from outside without TLS; bind it to 127.0.0.1, configure certificates, or say --insecure", a.what, a.addr))
		}
	}
	for _, d := range []struct {
		what  string
		value time.Duration
	}{
		{"time between two looks at what may be retired", c.RetireEvery},
		{"time that resolved history is kept", c.KeepFor},
		{"time that a transaction by hand may take", c.HandTimeout},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("the %s is %s, and cannot be negative", d.what, d.value))
		}
	}
	if c.RolesFile != "" && c.ClientTLS == nil {
		errs = append(errs, fmt.Errorf("the roles in %s have no effect without certificates; configure TLS", c.RolesFile))
	}
	return errors.Join(errs...)
}

func (c Config) raft() raftnode.Config {
	return raftnode.Config{
		NodeID: c.NodeID, DataDir: c.DataDir, RaftBind: c.RaftBind, RaftAdvertise: c.RaftAdvertise,
		TLS: c.RaftTLS, Insecure: c.Insecure, Logger: c.Logger,
		HeartbeatTimeout: c.HeartbeatTimeout, SnapshotThreshold: c.SnapshotThreshold,
		Seams: c.Seams.Raft, OnFatal: c.Seams.OnFatal,
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
