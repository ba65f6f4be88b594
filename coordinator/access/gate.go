package access

import (
	"context"

	"google.golang.org/grpc/peer"

	"github.com/unisink/unisink/internal/mutant"
)

// Gate turns away, by the head of a call alone, who has shown no certificate: a caller that nobody knows must not make
// this node hold its messages before it is refused. It is asked for every call, and looks at nothing but the connection;
// whoever comes through is judged by Unary and Stream.
func (g *Guard) Gate(ctx context.Context, method string) error {
	if !g.c.Certificates || rules[method].open || mutant.On("access/gate") {
		return nil
	}
	if p, ok := peer.FromContext(ctx); ok && len(chains(p)) > 0 {
		return nil
	}
	return g.allow(identity{}, method, nil)
}

// Known reports whether a method is one of the table, and not a name that a caller has made up.
func Known(method string) bool {
	_, known := rules[method]
	return known
}
