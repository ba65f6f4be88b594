package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/coordinator"
	"github.com/unisink/unisink/coordinator/raftnode"
	"github.com/unisink/unisink/coordinator/raftnode/devcert"
)

func (a *app) cert() *cli.Command {
	return group("cert", "certificates of nodes",
		&cli.Command{
			Name: "dev", Usage: "make an authority and a certificate for each node, for trying",
			Description: "An authority that DIR holds already signs further nodes. No file is ever overwritten. Certificates\n" +
				"name the node's id, localhost and the loopback addresses, and end after 90 days.",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "dir", Usage: "`DIR` for the files, readable by their owner alone"},
				&cli.StringSliceFlag{Name: "node", Usage: "`ID` of each node"},
				&cli.StringSliceFlag{Name: "host", Usage: "further `HOST` names or addresses of the nodes"},
			},
			Action: a.certDev,
		},
	)
}

func (a *app) certDev(c *cli.Context) error {
	if err := errors.Join(noArgs(c), need(c, "dir", "node")); err != nil {
		return err
	}
	dir, nodes := c.String("dir"), c.StringSlice("node")
	for _, n := range nodes {
		for _, file := range []string{devcert.CertFile(dir, n), devcert.KeyFile(dir, n)} {
			if _, err := os.Lstat(file); err == nil {
				return failf(CodeRefused, "%s exists already; remove it, or choose another directory", file)
			}
		}
	}
	if err := devcert.Make(devcert.Options{Dir: dir, Nodes: nodes, Hosts: c.StringSlice("host")}); err != nil {
		return withCode(CodeUsage, err)
	}
	type files struct {
		Node string `json:"node"`
		Cert string `json:"cert"`
		Key  string `json:"key"`
	}
	out := struct {
		CA    string  `json:"ca"`
		Nodes []files `json:"nodes"`
	}{CA: filepath.Join(dir, devcert.CAFile)}
	rows := [][]string{{"NODE", "CERTIFICATE", "KEY", "AUTHORITY"}}
	for _, n := range nodes {
		f := files{Node: n, Cert: devcert.CertFile(dir, n), Key: devcert.KeyFile(dir, n)}
		out.Nodes = append(out.Nodes, f)
		rows = append(rows, []string{n, f.Cert, f.Key, out.CA})
	}
	return a.show(c, out, func() [][]string { return rows })
}

// clientTLS is how to speak to coordinators: nil, which is plain text, without --ca.
func clientTLS(c *cli.Context) (*tls.Config, error) {
	file := c.String("ca")
	if file == "" {
		return nil, nil
	}
	pool, err := readCA(file)
	if err != nil {
		return nil, withCode(CodeUsage, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}, nil
}

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
