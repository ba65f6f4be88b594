package kafka

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/unisink/unisink/internal/secrets"
	"github.com/unisink/unisink/participant"
)

// secretFile writes what a file:PATH names.
func secretFile(t *testing.T, content string) Secret {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return Secret("file:" + path)
}

// secured starts an embedded broker and makes a topic with the settings under test.
func secured(t *testing.T, sec Security, opts ...kfake.Opt) error {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a, err := NewAdmin(AdminConfig{Brokers: c.ListenAddrs(), Security: sec, Logger: log})
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		a.Close()
		secrets.Absent(t, "the log", logged.String())
	})
	ctx := t.Context()
	if err := a.Reach(ctx); err != nil {
		return err
	}
	if err := a.CreateTopic(ctx, "totals", 1, nil); err != nil {
		return err
	}
	s, err := NewSink(SinkConfig{Brokers: c.ListenAddrs(), Topic: "totals", Security: sec, Logger: log})
	if err != nil {
		return err
	}
	r := &rig{TB: t, a: a, addrs: c.ListenAddrs(), ns: "test", topic: "totals"}
	if err := s.Open(ctx, r.opening(1)); err != nil {
		return errors.Join(err, s.Close())
	}
	h := r.prepared(s, r.name(1, 1), 5)
	secrets.Absent(t, "the handle", fmt.Sprintf("%s %+v", h.Body, h))
	r.commit(s, h, participant.Committed)
	r.sees(5)
	return s.Close()
}

func TestSASLWithSecretsByReference(t *testing.T) {
	byEnv, byFile := secrets.Plant(t, "kafka-env"), secrets.Plant(t, "kafka-file")
	t.Setenv("UNISINK_TEST_SECRET", byEnv)
	for _, m := range []Mechanism{Plain, ScramSHA256, ScramSHA512} {
		for kind, c := range map[string]struct {
			secret Secret
			is     string
		}{"env": {"env:UNISINK_TEST_SECRET", byEnv}, "file": {secretFile(t, byFile+"\n"), byFile}} {
			t.Run(string(m)+"/"+kind, func(t *testing.T) {
				users, secret := []kfake.Opt{kfake.EnableSASL(), kfake.Superuser(string(m), "ana", c.is)}, c.secret
				if err := secured(t, Security{SASL: &SASL{Mechanism: m, User: "ana", Password: secret}}, users...); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for _, m := range []Mechanism{Plain, ScramSHA256, ScramSHA512} {
		t.Run("a wrong password is an error that holds no password/"+string(m), func(t *testing.T) {
			sec := Security{SASL: &SASL{Mechanism: m, User: "ana", Password: secretFile(t, byFile+"-wrong")}}
			err := secured(t, sec, kfake.EnableSASL(), kfake.Superuser(string(m), "ana", byEnv))
			if err == nil || !strings.Contains(err.Error(), "user, secret") {
				t.Errorf("got %v; want to be told where to look", err)
			}
			t.Log(err)
			secrets.Absent(t, "the error", fmt.Sprintf("%v %+v %+v", err, err, sec))
		})
	}
}

// The embedded broker takes no tokens, and neither the error nor the log says which one was sent.
func TestATokenThatIsRefusedIsNotShown(t *testing.T) {
	sec := Security{SASL: &SASL{Mechanism: OAuthBearer, Token: secretFile(t, secrets.Plant(t, "kafka-token"))}}
	err := secured(t, sec, kfake.EnableSASL(), kfake.Superuser("PLAIN", "ana", "x"))
	if err == nil {
		t.Fatal("the token was taken")
	}
	t.Log(err)
	secrets.Absent(t, "the error", fmt.Sprintf("%v %+v", err, err))
}

func TestOAuthBearerSendsTheTokenOfNow(t *testing.T) {
	secret := secretFile(t, "first")
	m := (&SASL{Mechanism: OAuthBearer, Token: secret}).mechanism()
	for _, token := range []string{"first", "second"} {
		if err := os.WriteFile(strings.TrimPrefix(string(secret), "file:"), []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, said, err := m.Authenticate(t.Context(), "broker:9092")
		if err != nil || m.Name() != string(OAuthBearer) || !strings.Contains(string(said), "auth=Bearer "+token+"\x01") {
			t.Errorf("%s said %q, %v; want the token %q", m.Name(), said, err, token)
		}
	}
}

func TestSecuritySettingsNameEveryMistakeAndNoSecret(t *testing.T) {
	written := Secret(secrets.Plant(t, "kafka-written"))
	for name, sec := range map[string]Security{
		"a secret that is written out": {SASL: &SASL{Mechanism: Plain, User: "ana", Password: written}},
		"no user":                      {SASL: &SASL{Mechanism: ScramSHA256, Password: "env:X"}},
		"no mechanism":                 {SASL: &SASL{User: "ana", Password: "env:X"}},
		"a user beside a token":        {SASL: &SASL{Mechanism: OAuthBearer, User: "ana", Token: "env:X"}},
		"a token that is written out":  {SASL: &SASL{Mechanism: OAuthBearer, Token: written}},
		"half a certificate":           {TLS: &TLS{CertFile: "cert.pem"}},
		"authorities that are nowhere": {TLS: &TLS{CAFile: filepath.Join(t.TempDir(), "ca.pem")}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err1 := NewSink(SinkConfig{Brokers: []string{"localhost:9092"}, Security: sec})
			_, err2 := NewSource(SourceConfig{Name: "in", Topics: []string{"t"}, Brokers: []string{"localhost:9092"}, Security: sec})
			_, err3 := NewAdmin(AdminConfig{Brokers: []string{"localhost:9092"}, Security: sec})
			for _, err := range []error{err1, err2, err3} {
				if !errors.Is(err, participant.ErrMisconfigured) {
					t.Errorf("got %v; want misconfigured", err)
				}
				t.Log(err)
				secrets.Absent(t, "the error", fmt.Sprintf("%v %+v", err, err))
			}
		})
	}
}

// certificates writes an authority, and a certificate for localhost signed by it.
func certificates(t *testing.T) (ca, cert, key string, pair tls.Certificate) {
	t.Helper()
	made := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if signer == nil {
			signer = own
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &own.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		return der, own
	}
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, caKey := made(authority, authority, nil)
	leafDER, leafKey := made(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "broker"}, NotBefore: from, NotAfter: to,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, authority, caKey)
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, cert, key = write("ca.pem", "CERTIFICATE", caDER), write("cert.pem", "CERTIFICATE", leafDER), write("key.pem", "PRIVATE KEY", keyDER)
	if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return ca, cert, key, pair
}

func TestTLSWithAuthorityAndOwnCertificate(t *testing.T) {
	ca, cert, key, pair := certificates(t)
	pool := x509.NewCertPool()
	pemCA, err := os.ReadFile(ca)
	if err != nil || !pool.AppendCertsFromPEM(pemCA) {
		t.Fatal(err)
	}
	server := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	if err := secured(t, Security{TLS: &TLS{CAFile: ca, CertFile: cert, KeyFile: key}}, kfake.TLS(server)); err != nil {
		t.Errorf("with authority and certificate: %v", err)
	}
	other, _, _, _ := certificates(t)
	server.ClientAuth = tls.NoClientCert
	var unknown *tls.CertificateVerificationError
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.TLS(server))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	a, err := NewAdmin(AdminConfig{Brokers: c.ListenAddrs(), Security: Security{TLS: &TLS{CAFile: other}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	if err := a.Reach(t.Context()); !errors.As(err, &unknown) {
		t.Errorf("reach a broker of another authority: %v; want its certificate refused", err)
	}
}
