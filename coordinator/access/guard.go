package access

import (
	"crypto/x509"
	"time"
)

// Config of a guard.
type Config struct {
	// Certificates: callers show them, so roles count. Without, nothing is denied.
	Certificates bool
	// Nodes are the ids of the group's nodes; none before there is a group.
	Nodes func() []string
	// Trusts says why a certificate does not count any more; nil: it does until its connection ends.
	Trusts func(chains [][]*x509.Certificate, now time.Time) error
	// Roles are those of a file, as it is now; nil: certificates name their roles.
	Roles func() *Roles
}

// Guard stands before every call. It is safe for concurrent use.
type Guard struct{ c Config }

// New makes a guard.
func New(c Config) *Guard { return &Guard{c: c} }
