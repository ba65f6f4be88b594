package participant

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/google/uuid"

	"github.com/unisink/unisink/participant/route"
)

// Version of this SDK, told to the coordinator.
const Version = "0.1.0"

// MemberConfig is how a process takes part in a scope.
type MemberConfig struct {
	// Coordinators are the client addresses of the coordinator nodes, host:port. One is enough to
	// begin with; more are learnt.
	Coordinators []string
	Pipeline     string
	Shard        uint32
	// Member is the name that the pipeline declares for this part of it.
	Member string
	// Instance names this process, new at every start; default a random UUID.
	Instance string
	// Resources by the names that the pipeline declares. They stay the caller's: Run opens them for
	// each generation and never closes them.
	Resources map[string]Resource
	// Inputs are what the member reads (sources): told to the coordinator, never committed to.
	Inputs map[string]Description
	// Fingerprint of the pipeline's specification.
	Fingerprint string

	// NoWait: return ErrMemberAlive instead of waiting for a living process of the same name.
	NoWait bool
	// FromScratch: start with empty state although the pipeline has history.
	FromScratch bool
	// AllowChangedSpecification: a changed Fingerprint is accepted.
	AllowChangedSpecification bool
	// AllowChangedResources: a resource or input may be another one (directory, database, cluster)
	// than the scope knows under its name. The scope waits until all that was decided in the old
	// one is proven; an input is read on at the old one's positions.
	AllowChangedResources bool
	// TLS of connections to coordinators; nil means plain text.
	TLS *tls.Config
	// TLSFrom, when not nil, is asked for each new connection in the place of TLS; see TLSFiles.
	TLSFrom func() *tls.Config
	// Logger; default discards.
	Logger *slog.Logger
	// SDKVersion told to the coordinator; default Version.
	SDKVersion string
	// Patience: how long Run looks for a first coordinator before it returns ErrUnreachable;
	// default 15s, negative means for ever. Once attached, a member never gives up.
	Patience time.Duration
	// Dial replaces the network, for tests.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Validate reports every mistake at once.
func (c *MemberConfig) Validate() error {
	bad := []error{route.CheckAddresses(c.Coordinators)}
	name := func(what, s string) {
		if err := checkName(what, s); err != nil {
			bad = append(bad, err)
		}
	}
	name("pipeline", c.Pipeline)
	name("member", c.Member)
	for alias, r := range c.Resources {
		name("resource", alias)
		if r == nil {
			bad = append(bad, fmt.Errorf("resource %q is nil", alias))
		}
	}
	for alias := range c.Inputs {
		name("input", alias)
		if _, both := c.Resources[alias]; both {
			bad = append(bad, fmt.Errorf("%q names a resource and an input; give them two names", alias))
		}
	}
	return errors.Join(bad...)
}

// checkName reports whether s may stand in a branch name: letters, digits, '-' and '_', first a
// letter or digit, so that compound names are parsed and never matched by prefix (L9).
func checkName(what, s string) error {
	if s == "" {
		return fmt.Errorf("the %s name is empty", what)
	}
	for i := range len(s) {
		c := s[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !plain && (i == 0 || c != '-' && c != '_') {
			return fmt.Errorf("the %s name %q has %q at byte %d; letters, digits, '-' and '_' are allowed, first a letter or digit", what, s, c, i)
		}
	}
	return nil
}

// filled is the configuration with its defaults.
func (c MemberConfig) filled() MemberConfig {
	if c.Instance == "" {
		c.Instance = uuid.NewString()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.SDKVersion == "" {
		c.SDKVersion = Version
	}
	if c.Patience == 0 {
		c.Patience = 15 * time.Second
	}
	return c
}

func (c *MemberConfig) router() (*route.Router, error) {
	return route.NewRouter(c.Coordinators, route.WithTLS(c.TLS), route.WithTLSFrom(c.TLSFrom), route.WithDial(c.Dial))
}
