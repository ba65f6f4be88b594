package access

import (
	"context"

	"google.golang.org/grpc/peer"

	"github.com/unisink/unisink/internal/mutant"
)

// Gate turns away, by the head of a call alone, who could not make it with any message: this node must not hold
// messages, of megabytes perhaps, for callers that it refuses then. It is asked for every call and looks at nothing but
// what the connection has shown; whoever comes through is judged by Unary and Stream. A method that is not in the table
// comes through: mostly it is one of a newer version, and the server says without its message that there is none.
func (g *Guard) Gate(ctx context.Context, method string) error {
	r, known := rules[method]
	if !g.c.Certificates || !known || r.open || mutant.On("access/gate") {
		return nil
	}
	var id identity
	p, ok := peer.FromContext(ctx)
	if ok && len(chains(p)) > 0 {
		shown := chains(p)
		id = identity{name: certName(shown[0][0]), grants: certGrants(shown[0][0])}
		id.grants = g.granted(id)
		if g.allow(id, method, nil) == nil || g.namesNode(shown[0][0]) { // nodes hand on what others may
			return nil
		}
	}
	return g.allow(id, method, nil)
}
