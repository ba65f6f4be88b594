package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Files name what a process shows itself with and judges others by, all PEM.
type Files struct {
	Cert string // the process's certificate, and what leads from it to the authority; may be empty for a client
	Key  string // its key; given with Cert
	CA   string // the authorities that others are judged by
}

// pair is what the files hold.
type pair struct {
	cert  *tls.Certificate // nil: none
	roots *x509.CertPool
	known map[string]bool // the authorities' certificates, by their bytes
}

// Store has the present certificates of one process. It is safe for concurrent use.
type Store struct {
	files *Watched[pair]
	named string // the DNS name that the certificate must carry; "": any
}

// Open reads the files; an error says which of them cannot be used. Name, when not empty, is a DNS
// name that the process's own certificate must carry, now and later.
func Open(f Files, name string, log *slog.Logger) (*Store, error) {
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("a certificate and its key are given together")
	}
	s := &Store{named: name}
	paths := []string{f.CA}
	if f.Cert != "" {
		paths = append(paths, f.Cert, f.Key)
	}
	var err error
	s.files, err = Watch(log, "certificates", func(contents [][]byte) (pair, error) { return s.parse(f, contents) }, paths...)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	return s, nil
}

func (s *Store) parse(f Files, contents [][]byte) (pair, error) {
	p := pair{roots: x509.NewCertPool(), known: map[string]bool{}}
	authorities, err := certificates(contents[0])
	switch {
	case err != nil:
		return p, fmt.Errorf("the authority %s: %w", f.CA, err)
	case len(authorities) == 0:
		return p, fmt.Errorf("the authority %s holds no certificate in PEM form", f.CA)
	}
	for _, c := range authorities {
		p.roots.AddCert(c)
		p.known[string(c.Raw)] = true
	}
	if f.Cert == "" {
		return p, nil
	}
	cert, err := tls.X509KeyPair(contents[1], contents[2])
	if err != nil { // says what does not fit, and nothing of the key
		return p, fmt.Errorf("the certificate %s and its key %s: %w", f.Cert, f.Key, err)
	}
	if s.named != "" && !slices.Contains(cert.Leaf.DNSNames, s.named) {
		return p, fmt.Errorf("the certificate %s names %v, and this node is %q; make one that names it", f.Cert, cert.Leaf.DNSNames, s.named)
	}
	p.cert = &cert
	return p, nil
}

// Cert is the process's own certificate; nil if it has none.
func (s *Store) Cert() *tls.Certificate { return s.files.Now().cert }

// Roots are the authorities.
func (s *Store) Roots() *x509.CertPool { return s.files.Now().roots }

// Server is how to serve: with the present certificate, and asking clients for one as auth says. No
// session is resumed, since one would outlive the authority that it was begun under.
func (s *Store) Server(auth tls.ClientAuthType) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: auth, SessionTicketsDisabled: true,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			p := s.files.Now()
			if p.cert == nil {
				return nil, errors.New("there is no certificate to serve with")
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS13, ClientAuth: auth, SessionTicketsDisabled: true,
				Certificates: []tls.Certificate{*p.cert}, ClientCAs: p.roots,
			}, nil
		},
	}
}

// Client is how to dial, now: it is asked for again for each connection.
func (s *Store) Client() *tls.Config {
	p := s.files.Now()
	c := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: p.roots}
	if p.cert != nil {
		// Shown whatever authorities a node names: left out, it would say that it was shown none, not that
		// it does not know this one's.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.cert, nil }
	}
	return c
}

// Trusts says why a peer that was verified when its connection began is trusted no longer; nil while
// it is: a connection outlives certificates and authorities otherwise.
func (s *Store) Trusts(chains [][]*x509.Certificate, now time.Time) error {
	if len(chains) == 0 {
		return errors.New("it shows no certificate")
	}
	known := s.files.Now().known
	why := errors.New("its authority is not trusted any more")
	for _, chain := range chains {
		if !known[string(chain[len(chain)-1].Raw)] {
			continue
		}
		i := slices.IndexFunc(chain, func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
		if i < 0 {
			return nil
		}
		why = fmt.Errorf("its certificate ended at %s", chain[i].NotAfter.UTC().Format(time.RFC3339))
	}
	return why
}
