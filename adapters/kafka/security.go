package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Security is how brokers are spoken to. The zero value is plain text without a user.
type Security struct {
	TLS  *TLS  // nil: plain text
	SASL *SASL // nil: no user
}

// TLS encrypts connections, and checks the brokers' names always.
type TLS struct {
	CAFile     string // PEM file of the authorities that sign the brokers; default the system's
	CertFile   string // PEM file of our own certificate, with KeyFile; default none
	KeyFile    string // both are read at each handshake, so they may be renewed
	ServerName string // name in the brokers' certificates; default the host that is dialled
}

// Mechanism of SASL.
type Mechanism string

// The mechanisms. Plain and OAuthBearer show their secret to whoever can read the connection, so
// they want TLS.
const (
	Plain       Mechanism = "PLAIN"
	ScramSHA256 Mechanism = "SCRAM-SHA-256"
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
	OAuthBearer Mechanism = "OAUTHBEARER"
)

// SASL says who we are. Secrets are read at each authentication, so they may be renewed.
type SASL struct {
	Mechanism Mechanism
	User      string // not with OAuthBearer
	Password  Secret // not with OAuthBearer
	Token     Secret // with OAuthBearer alone
}

// Secret says where a secret stands: "env:NAME", a variable of the environment, or "file:PATH",
// whose last line break is not part of it. The secret itself is never kept, logged, or put into an
// error or a handle.
type Secret string

// errNoReference says nothing of what was written: it may be the secret itself.
var errNoReference = errors.New("a secret is named, not written: as env:NAME or file:PATH")

// check finds what is no reference.
func (s Secret) check() error {
	for _, kind := range []string{"env:", "file:"} {
		if name, ok := strings.CutPrefix(string(s), kind); ok && name != "" {
			return nil
		}
	}
	return errNoReference
}

// read fetches the secret.
func (s Secret) read() (string, error) {
	if name, ok := strings.CutPrefix(string(s), "env:"); ok {
		v, set := os.LookupEnv(name)
		if !set || v == "" {
			return "", fmt.Errorf("the environment has no %s, which should hold a secret", name)
		}
		return v, nil
	}
	path, ok := strings.CutPrefix(string(s), "file:")
	if !ok {
		return "", errNoReference
	}
	v, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	v = bytes.TrimSuffix(bytes.TrimSuffix(v, []byte("\n")), []byte("\r"))
	if len(v) == 0 {
		return "", fmt.Errorf("%s, which should hold a secret, is empty", path)
	}
	return string(v), nil
}

// check names every mistake.
func (s Security) check() error {
	var errs []error
	if t := s.TLS; t != nil && (t.CertFile == "") != (t.KeyFile == "") {
		errs = append(errs, errors.New("tls: certificate and key come together: name both files, or neither"))
	}
	if a := s.SASL; a != nil {
		errs = append(errs, a.check())
	}
	return errors.Join(errs...)
}

func (a *SASL) check() error {
	var errs []error
	switch a.Mechanism {
	case Plain, ScramSHA256, ScramSHA512:
		if a.User == "" {
			errs = append(errs, fmt.Errorf("sasl %s: name the user", a.Mechanism))
		}
		if err := a.Password.check(); err != nil {
			errs = append(errs, fmt.Errorf("sasl %s: password: %w", a.Mechanism, err))
		}
		if a.Token != "" {
			errs = append(errs, fmt.Errorf("sasl %s: a token goes with %s alone", a.Mechanism, OAuthBearer))
		}
	case OAuthBearer:
		if err := a.Token.check(); err != nil {
			errs = append(errs, fmt.Errorf("sasl %s: token: %w", a.Mechanism, err))
		}
		if a.User != "" || a.Password != "" {
			errs = append(errs, fmt.Errorf("sasl %s: the token says who we are; leave user and password out", a.Mechanism))
		}
	default:
		errs = append(errs, fmt.Errorf("sasl mechanism %q is none of %s, %s, %s, %s", a.Mechanism, Plain, ScramSHA256, ScramSHA512, OAuthBearer))
	}
	return errors.Join(errs...)
}

// options is what every client is made with.
func (s Security) options() ([]kgo.Opt, error) {
	var opts []kgo.Opt
	if s.TLS != nil {
		conf, err := s.TLS.config()
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		opts = append(opts, kgo.DialTLSConfig(conf))
	}
	if s.SASL != nil {
		opts = append(opts, kgo.SASL(s.SASL.mechanism()))
	}
	return opts, nil
}

func (t *TLS) config() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the authorities: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
			return nil, fmt.Errorf("our certificate: %w", err)
		}
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			own, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("our certificate: %w", err)
			}
			return &own, nil
		}
	}
	return conf, nil
}

// mechanism reads its secrets whenever it authenticates.
func (a *SASL) mechanism() sasl.Mechanism {
	switch a.Mechanism {
	case ScramSHA256:
		return scram.Sha256(a.scram)
	case ScramSHA512:
		return scram.Sha512(a.scram)
	case OAuthBearer:
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := a.Token.read()
			return oauth.Auth{Token: token}, err
		})
	case Plain:
	}
	return plain.Plain(func(context.Context) (plain.Auth, error) {
		pass, err := a.Password.read()
		return plain.Auth{User: a.User, Pass: pass}, err
	})
}

func (a *SASL) scram(context.Context) (scram.Auth, error) {
	pass, err := a.Password.read()
	return scram.Auth{User: a.User, Pass: pass}, err
}
