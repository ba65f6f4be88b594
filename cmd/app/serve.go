package app

import (
	"errors"
	"log/slog"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/coordinator"
	"github.com/unisink/unisink/coordinator/raftnode"
	"github.com/unisink/unisink/internal/obs"
)

func (a *app) serve() *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "run one coordinator node",
		Description: "A new node waits for `unisink cluster bootstrap`. Addresses are loopback unless certificates\n" +
			"are given or --insecure is said." +
			forExample("unisink serve --node n1 --data n1 --http 127.0.0.1:7402",
				"unisink serve --node n1 --data /var/lib/unisink --client 10.0.0.1:7400 --raft 10.0.0.1:7401 --tls-cert … --tls-key … --tls-ca …"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "node", EnvVars: []string{"UNISINK_NODE"}, Usage: "`ID` of the node, for the life of its data directory"},
			&cli.StringFlag{Name: "data", EnvVars: []string{"UNISINK_DATA"}, Usage: "`DIR` for log, snapshots and identity"},
			&cli.StringFlag{Name: "client", EnvVars: []string{"UNISINK_CLIENT"}, Value: "127.0.0.1:7400", Usage: "`ADDRESS` that members and tools use"},
			&cli.StringFlag{Name: "client-advertise", EnvVars: []string{"UNISINK_CLIENT_ADVERTISE"}, Usage: "`ADDRESS` given to others; default --client"},
			&cli.StringFlag{Name: "raft", EnvVars: []string{"UNISINK_RAFT"}, Value: "127.0.0.1:7401", Usage: "`ADDRESS` that other nodes use"},
			&cli.StringFlag{Name: "raft-advertise", EnvVars: []string{"UNISINK_RAFT_ADVERTISE"}, Usage: "`ADDRESS` given to other nodes; default --raft"},
			&cli.StringFlag{Name: "http", EnvVars: []string{"UNISINK_HTTP"}, Usage: "`ADDRESS` of /livez, /readyz and /metrics; none by default"},
			&cli.StringFlag{Name: "tls-cert", EnvVars: []string{"UNISINK_TLS_CERT"}, Usage: "`FILE` with the node's certificate (PEM)"},
			&cli.StringFlag{Name: "tls-key", EnvVars: []string{"UNISINK_TLS_KEY"}, Usage: "`FILE` with its key"},
			&cli.StringFlag{Name: "tls-ca", EnvVars: []string{"UNISINK_TLS_CA"}, Usage: "`FILE` with the authority of all nodes"},
			&cli.StringFlag{Name: "roles", EnvVars: []string{"UNISINK_ROLES"}, Usage: "`FILE` that gives names in certificates their roles; by default certificates name them"},
			&cli.StringSliceFlag{Name: "http-open", EnvVars: []string{"UNISINK_HTTP_OPEN"}, Value: cli.NewStringSlice("/livez", "/readyz"), Usage: "`PATHS` of --http that need no certificate"},
			&cli.BoolFlag{Name: "insecure", EnvVars: []string{"UNISINK_INSECURE"}, Usage: "allow plain text on addresses reachable from outside"},
			&cli.DurationFlag{Name: "heartbeat", EnvVars: []string{"UNISINK_HEARTBEAT"}, Value: 500 * time.Millisecond, Usage: "`TIME` without a word from the leader after which a node calls for votes"},
			&cli.DurationFlag{Name: "keep", EnvVars: []string{"UNISINK_KEEP"}, Value: time.Hour, Usage: "`TIME` for which resolved history stays readable"},
			&cli.StringFlag{Name: "resolver", EnvVars: []string{"UNISINK_RESOLVER"}, Usage: "`FILE` of resources whose left-overs this node finishes while it leads; see `unisink resolver --help`"},
			&cli.BoolFlag{Name: "reflection", EnvVars: []string{"UNISINK_REFLECTION"}, Usage: "let tools list the gRPC services"},
		},
		Action: a.serveNode,
	}
}

func (a *app) serveNode(c *cli.Context) (err error) {
	if err := errors.Join(noArgs(c), need(c, "node", "data")); err != nil {
		return err
	}
	log, err := a.logger(c)
	if err != nil {
		return err
	}
	cfg := coordinator.Config{
		NodeID: c.String("node"), DataDir: c.String("data"), Logger: log,
		RaftBind: c.String("raft"), RaftAdvertise: c.String("raft-advertise"),
		ClientBind: c.String("client"), ClientAdvertise: c.String("client-advertise"), HTTPBind: c.String("http"),
		RolesFile: c.String("roles"), Insecure: c.Bool("insecure"), Reflection: c.Bool("reflection"),
		HeartbeatTimeout: c.Duration("heartbeat"), KeepFor: c.Duration("keep"),
	}
	if err := loadTLS(c, &cfg); err != nil {
		return err
	}
	if c.IsSet("http-open") {
		cfg.HTTPOpen = c.StringSlice("http-open")
	}
	if err := cfg.Validate(); err != nil {
		return withCode(CodeUsage, err)
	}
	reach, err := a.resolveWhileLeading(c, &cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reach.close()) }()
	n, err := coordinator.New(cfg)
	if err != nil {
		return startError(err)
	}
	log.InfoContext(c.Context, "serving", obs.Node(cfg.NodeID), slog.String("clients", cfg.ClientBind), slog.String("nodes", cfg.RaftBind),
		slog.String("group", n.Group()))
	if cfg.ClientTLS == nil {
		log.WarnContext(c.Context, "plain text: nobody is asked who they are, and nothing is denied; give --tls-cert, --tls-key and --tls-ca")
	}
	return startError(n.Run(c.Context))
}

// startError gives what an operator can mend its exit code.
func startError(err error) error {
	switch {
	case errors.Is(err, raftnode.ErrRemoved), errors.Is(err, raftnode.ErrForeignDataDir), errors.Is(err, raftnode.ErrDataDirEmptied), errors.Is(err, raftnode.ErrDataDirLocked), errors.Is(err, raftnode.ErrAddressInUse),
		errors.Is(err, coordinator.ErrAddressInUse):
		return withCode(CodeRefused, err)
	case errors.Is(err, raftnode.ErrDataDirUnusable), errors.Is(err, raftnode.ErrConfig), errors.Is(err, coordinator.ErrCertificates):
		return withCode(CodeUsage, err)
	default:
		return err
	}
}
