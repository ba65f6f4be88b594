package app

import (
	"context"
	"crypto/tls"
	"log/slog"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func coordinators(c *cli.Context) []string {
	var out []string
	for _, s := range c.StringSlice("coordinator") {
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

// withClient calls f with a client of the group and a context that ends with --timeout.
func (a *app) withClient(c *cli.Context, f func(ctx context.Context, cl *participant.Client) error) error {
	return a.withClientAt(c, coordinators(c), f)
}

func (a *app) withClientAt(c *cli.Context, addresses []string, f func(ctx context.Context, cl *participant.Client) error) error {
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	cl, err := connect(c, addresses, patience(ctx))
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	return f(ctx, cl)
}

// connect makes a client that looks for a coordinator for as long as its patience lasts. The caller
// closes it.
func connect(c *cli.Context, addresses []string, patience time.Duration) (*participant.Client, error) {
	secure, err := clientTLS(c)
	if err != nil {
		return nil, err
	}
	cl, err := participant.NewClient(participant.ClientConfig{
		Coordinators: addresses, TLSFrom: secure, Actor: "cli", Logger: slog.New(slog.DiscardHandler), Patience: patience,
	})
	if err != nil {
		return nil, withCode(CodeUsage, err)
	}
	return cl, nil
}

// searchTime is longer than it takes a group to elect a new leader, and shorter than a person waits
// for being told that nobody is there.
const searchTime = 4 * time.Second

// patience is how long a client looks for a coordinator: a little less than the time there is, so
// that "nobody answered" is said, and not "time ran out".
func patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return searchTime
	}
	return min(searchTime, max(time.Until(deadline)*9/10, 10*time.Millisecond))
}

// askNode asks one node, and no other, about itself. One that does not listen is asked once more
// or twice, not for long.
func askNode(ctx context.Context, secure func() *tls.Config, addr string) (*unisinkv1.StatusResponse, error) {
	cl, err := participant.NewClient(participant.ClientConfig{
		Coordinators: []string{addr}, TLSFrom: secure, Actor: "cli", Logger: slog.New(slog.DiscardHandler), Patience: min(patience(ctx), 500*time.Millisecond),
	})
	if err != nil {
		return nil, usagef("%v", err)
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	return cl.Cluster().Status(ctx, &unisinkv1.StatusRequest{})
}
