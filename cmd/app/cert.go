package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/coordinator"
	"github.com/unisink/unisink/coordinator/raftnode"
)

// loadTLS reads the node's certificate for both ports: nodes prove themselves to each other, and
// the node proves itself to clients.
func loadTLS(c *cli.Context, cfg *coordinator.Config) error {
	cert, key, ca := c.String("tls-cert"), c.String("tls-key"), c.String("tls-ca")
	if cert == "" && key == "" && ca == "" {
		return nil
	}
	if cert == "" || key == "" || ca == "" {
		return usagef("--tls-cert, --tls-key and --tls-ca are given together; `unisink cert dev` makes some for trying")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return withCode(CodeUsage, fmt.Errorf("read the certificate %s and its key %s: %w", cert, key, err))
	}
	pool, err := readCA(ca)
	if err != nil {
		return withCode(CodeUsage, err)
	}
	cfg.RaftTLS = &raftnode.TLSConfig{CertFile: cert, KeyFile: key, CAFile: ca}
	cfg.ClientTLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	cfg.ForwardTLS = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	return nil
}

func readCA(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("the authority " + file + " holds no certificate in PEM form")
	}
	return pool, nil
}
