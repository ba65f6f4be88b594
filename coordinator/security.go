package coordinator

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/unisink/unisink/coordinator/access"
	"github.com/unisink/unisink/coordinator/server"
	"github.com/unisink/unisink/internal/certs"
)

// ErrCertificates is wrapped when certificates or roles cannot be used.
var ErrCertificates = errors.New("certificates or roles that cannot be used")

// security is what the edge judges callers by; its zero value is plain text, which denies nothing.
type security struct {
	store *certs.Store
	roles *certs.Watched[*access.Roles]
}

// openSecurity reads the files for the first time, so that a mistake in them is told at once.
func openSecurity(c Config) (s security, err error) {
	if c.ClientTLS == nil {
		return s, nil
	}
	s.store, err = certs.Open(c.ClientTLS.Files(), "", c.Logger)
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrCertificates, err)
	}
	if c.RolesFile != "" {
		parse := func(contents [][]byte) (*access.Roles, error) { return access.ParseRoles(contents[0]) }
		if s.roles, err = certs.Watch(c.Logger, "roles", parse, c.RolesFile); err != nil {
			return s, fmt.Errorf("%w: read the roles: %w", ErrCertificates, err)
		}
	}
	return s, nil
}

// into gives the edge what it needs. A caller without a certificate gets as far as the edge, which says
// in one sentence what is missing; one with a foreign certificate gets no connection.
func (s security) into(c server.Config) server.Config {
	if s.store == nil {
		return c
	}
	c.TLS = s.store.Server(tls.VerifyClientCertIfGiven)
	c.ForwardTLS, c.Trusts = s.store.Client, s.store.Trusts
	if s.roles != nil {
		c.Roles = s.roles.Now
	}
	return c
}
