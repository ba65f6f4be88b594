package app

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// catchUpTime is how long a new node is waited for unless --timeout says otherwise: it may have to be
// sent a snapshot.
const catchUpTime = 2 * time.Minute

// someArgs returns exactly the positional arguments that are named.
func someArgs(c *cli.Context, names ...string) ([]string, error) {
	if c.NArg() != len(names) {
		return nil, usagef("give %s, in this order; see `%s --help`", strings.Join(names, " and "), c.Command.HelpName)
	}
	return c.Args().Slice(), nil
}

// changing calls f with a client, and with more time than a question has.
func (a *app) changing(c *cli.Context, f func(ctx context.Context, cl *participant.Client) error) error {
	limit := catchUpTime
	if c.IsSet("timeout") {
		limit = c.Duration("timeout")
	}
	ctx, cancel := context.WithTimeout(c.Context, limit)
	defer cancel()
	cl, err := connect(c, coordinators(c), patience(ctx))
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	return f(ctx, cl)
}

func (a *app) clusterAdd(c *cli.Context) error {
	args, err := someArgs(c, "the node's id", "its client address")
	if err == nil {
		err = hostPort(args[1])
	}
	if err != nil {
		return err
	}
	return a.changing(c, func(ctx context.Context, cl *participant.Client) error {
		resp, err := cl.Cluster().AddNode(ctx, &unisinkv1.AddNodeRequest{Meta: cl.NewMeta(), Node: args[0], ClientAddress: args[1]})
		if err != nil {
			return fmt.Errorf("add node %s: %w", args[0], err)
		}
		return a.showNode(c, resp, resp.GetNode())
	})
}

func (a *app) clusterReplace(c *cli.Context) error {
	args, err := someArgs(c, "the old node's id", "the new one's id", "its client address")
	if err == nil {
		err = hostPort(args[2])
	}
	if err != nil {
		return err
	}
	return a.changing(c, func(ctx context.Context, cl *participant.Client) error {
		resp, err := cl.Cluster().ReplaceNode(ctx, &unisinkv1.ReplaceNodeRequest{
			Meta: cl.NewMeta(), OldNode: args[0], Node: args[1], ClientAddress: args[2],
		})
		if err != nil {
			return fmt.Errorf("replace node %s by %s: %w", args[0], args[1], err)
		}
		return a.showNode(c, resp, resp.GetNode())
	})
}

// hostPort refuses what is no address before a node is asked, which would take it for one that does not answer.
func hostPort(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return usagef("the client address %q is not host:port", addr)
	}
	return nil
}

func (a *app) showNode(c *cli.Context, resp any, n *unisinkv1.Node) error {
	return a.show(c, resp, func() [][]string {
		return [][]string{{"NODE", "RAFT", "CLIENTS", "VOTES"}, {n.GetId(), n.GetRaftAddress(), n.GetClientAddress(), "yes"}}
	})
}

func (a *app) clusterRemove(c *cli.Context) error {
	id, err := oneArg(c, "node")
	if err != nil {
		return err
	}
	return a.changing(c, func(ctx context.Context, cl *participant.Client) error {
		if _, err := cl.Cluster().RemoveNode(ctx, &unisinkv1.RemoveNodeRequest{Meta: cl.NewMeta(), Node: id}); err != nil {
			return fmt.Errorf("remove node %s: %w", id, err)
		}
		return a.show(c, map[string]string{"removed": id}, func() [][]string { return [][]string{{"REMOVED"}, {id}} })
	})
}

func (a *app) clusterTransfer(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		resp, err := cl.Cluster().Transfer(ctx, &unisinkv1.TransferRequest{Meta: cl.NewMeta()})
		if err != nil {
			return fmt.Errorf("hand leadership over: %w", err)
		}
		return a.show(c, resp, func() [][]string { return [][]string{{"ENDS"}, {resp.GetNode()}} })
	})
}
