package app

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/coordinator"
	"github.com/unisink/unisink/coordinator/access"
	"github.com/unisink/unisink/coordinator/raftnode"
	"github.com/unisink/unisink/coordinator/raftnode/devcert"
	"github.com/unisink/unisink/participant"
)

func (a *app) cert() *cli.Command {
	return group("cert", "certificates of nodes and of those who connect to them",
		&cli.Command{
			Name: "dev", Usage: "make an authority and certificates for nodes and clients, for trying",
			Description: "An authority that DIR holds already signs further ones. No file is ever overwritten. Certificates of\n" +
				"nodes name the node's id, localhost and the loopback addresses, those of clients the roles. They end\n" +
				"after 90 days." +
				forExample("unisink cert dev --dir certs --node n1 --node n2 --node n3", "unisink cert dev --dir certs --client ada --role admin"),
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "dir", Usage: "`DIR` for the files, readable by their owner alone"},
				&cli.StringSliceFlag{Name: "node", Usage: "`ID` of each node"},
				&cli.StringSliceFlag{Name: "host", Usage: "further `HOST` names or addresses of the nodes"},
				&cli.StringSliceFlag{Name: "client", Usage: "`NAME` of each person or process that connects to nodes"},
				&cli.StringSliceFlag{Name: "role", Usage: "`ROLE` of the clients: viewer, member:PIPELINE, client, resolver, operator or admin; several times for several"},
			},
			Action: a.certDev,
		},
	)
}

// certFiles are one certificate's.
type certFiles struct {
	Node   string   `json:"node,omitempty"`
	Client string   `json:"client,omitempty"`
	Roles  []string `json:"roles,omitempty"`
	Cert   string   `json:"cert"`
	Key    string   `json:"key"`
}

func (a *app) certDev(c *cli.Context) error {
	if err := errors.Join(noArgs(c), need(c, "dir")); err != nil {
		return err
	}
	dir, nodes, clients, roles := c.String("dir"), c.StringSlice("node"), c.StringSlice("client"), c.StringSlice("role")
	switch {
	case len(nodes)+len(clients) == 0:
		return usagef("name nodes with --node, or clients with --client; see `%s --help`", c.Command.HelpName)
	case len(clients) > 0 && len(roles) == 0:
		return usagef("say with --role what the clients may do; without one they may do nothing")
	case len(roles) > 0 && len(clients) == 0:
		return usagef("--role is for clients; name them with --client")
	}
	for _, r := range roles {
		if err := access.CheckRole(r); err != nil {
			return usagef("--role: %v", err)
		}
	}
	for _, n := range slices.Concat(nodes, clients) {
		for _, file := range []string{devcert.CertFile(dir, n), devcert.KeyFile(dir, n)} {
			if _, err := os.Lstat(file); err == nil {
				return failf(CodeRefused, "%s exists already; remove it, or choose another directory", file)
			}
		}
	}
	o := devcert.Options{Dir: dir, Nodes: nodes, Hosts: c.StringSlice("host"), Clients: clients, Roles: roles}
	if err := devcert.Make(o); err != nil {
		return withCode(CodeUsage, err)
	}
	return a.showCerts(c, o)
}

func (a *app) showCerts(c *cli.Context, o devcert.Options) error {
	out := struct {
		CA      string      `json:"ca"`
		Nodes   []certFiles `json:"nodes"`
		Clients []certFiles `json:"clients"`
	}{CA: filepath.Join(o.Dir, devcert.CAFile), Nodes: []certFiles{}, Clients: []certFiles{}}
	rows := [][]string{{"NAME", "CERTIFICATE", "KEY", "AUTHORITY", "ROLES"}}
	for _, n := range o.Nodes {
		f := certFiles{Node: n, Cert: devcert.CertFile(o.Dir, n), Key: devcert.KeyFile(o.Dir, n)}
		out.Nodes = append(out.Nodes, f)
		rows = append(rows, []string{n, f.Cert, f.Key, out.CA, "node"})
	}
	for _, n := range o.Clients {
		f := certFiles{Client: n, Roles: o.Roles, Cert: devcert.CertFile(o.Dir, n), Key: devcert.KeyFile(o.Dir, n)}
		out.Clients = append(out.Clients, f)
		rows = append(rows, []string{n, f.Cert, f.Key, out.CA, strings.Join(o.Roles, " ")})
	}
	return a.show(c, out, func() [][]string { return rows })
}

// clientTLS is how to speak to coordinators, asked at each connection: nil, which is plain text, without
// --ca.
func clientTLS(c *cli.Context) (func() *tls.Config, error) {
	f := participant.TLSFiles{CA: c.String("ca"), Cert: c.String("cert"), Key: c.String("key")}
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return nil, usagef("--cert and --key are given together")
	case f.CA == "" && f.Cert != "":
		return nil, usagef("--cert needs --ca, the authority that the coordinators are judged by")
	case f.CA == "":
		return nil, nil
	}
	from, err := f.Load(slog.New(slog.NewTextHandler(c.App.ErrWriter, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return nil, withCode(CodeUsage, err)
	}
	return from, nil
}

// present is the configuration as it is now.
func present(from func() *tls.Config) *tls.Config {
	if from == nil {
		return nil
	}
	return from()
}

// loadTLS names the node's certificate for all ports: nodes prove themselves to each other, and the
// node and its clients to each other.
func loadTLS(c *cli.Context, cfg *coordinator.Config) error {
	cert, key, ca := c.String("tls-cert"), c.String("tls-key"), c.String("tls-ca")
	if cert == "" && key == "" && ca == "" {
		return nil
	}
	if cert == "" || key == "" || ca == "" {
		return usagef("--tls-cert, --tls-key and --tls-ca are given together; `unisink cert dev` makes some for trying")
	}
	cfg.RaftTLS = &raftnode.TLSConfig{CertFile: cert, KeyFile: key, CAFile: ca}
	cfg.ClientTLS = cfg.RaftTLS
	return nil
}
