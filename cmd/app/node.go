package app

import (
	"context"
	"log/slog"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// askNode asks one node, and no other, about itself.
func askNode(ctx context.Context, addr string) (*unisinkv1.StatusResponse, error) {
	cl, err := participant.NewClient(participant.ClientConfig{
		Coordinators: []string{addr}, Actor: "cli", Logger: slog.New(slog.DiscardHandler), Patience: patience(ctx),
	})
	if err != nil {
		return nil, usagef("%v", err)
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	return cl.Cluster().Status(ctx, &unisinkv1.StatusRequest{})
}
