package access

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/unisink/unisink/internal/mutant"
)

const (
	// hopHeader marks a call that a node hands on, so that two nodes that each take the other for the
	// leader do not send it to and fro.
	hopHeader = "unisink-forwarded"
	// callerHeader carries, with a call that a node hands on to the leader, whose call it is.
	callerHeader = "unisink-caller"
	// nameHeader and rolesHeader say, with it, what the caller's certificate names.
	nameHeader  = "unisink-caller-name-bin"
	rolesHeader = "unisink-caller-role"
)

// HandedOn reports whether a call says that a node has handed it on.
func HandedOn(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	return len(md.Get(hopHeader)) > 0
}

// identity is who calls, and what the certificate says.
type identity struct {
	name   string // for people, and for the log; "" without a certificate
	grants []grant
	node   bool // another node of this group, by the name of its certificate
	// distrust is why the certificate that the connection began with does not count any more.
	distrust error
}

// peerName is who is at the other end of the connection: the name in its certificate or, without
// TLS, the host that it calls from.
func peerName(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "unknown"
	}
	if shown := chains(p); len(shown) > 0 {
		return "certificate " + inHeader(holder(shown[0][0]))
	}
	if p.Addr == nil {
		return "unknown"
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	return host
}

// holder tells who holds a certificate from who hold others: by its subject and the URIs that it names, which a renewal
// keeps; one with neither by its other names, or by its key.
func holder(c *x509.Certificate) string {
	var names []string
	if s := c.Subject.String(); s != "" {
		names = append(names, s)
	}
	for _, u := range c.URIs {
		if strings.HasPrefix(u.String(), roleScheme) {
			continue // says what the holder may, not who it is
		}
		names = append(names, "URI="+u.String())
	}
	if len(names) == 0 {
		for _, n := range slices.Concat(c.DNSNames, c.EmailAddresses) {
			names = append(names, "SAN="+n)
		}
	}
	if len(names) == 0 {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		names = append(names, "key SHA-256="+hex.EncodeToString(sum[:]))
	}
	return strings.Join(names, ",")
}

// inHeader is a name as a header of a call takes it: in printable ASCII.
func inHeader(name string) string {
	if strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) < 0 {
		return name
	}
	return strconv.QuoteToASCII(name)
}

// chains are the ways from the certificate that the peer has proven to be its own to an authority; none
// if it has shown none.
func chains(p *peer.Peer) [][]*x509.Certificate {
	info, _ := p.AuthInfo.(credentials.TLSInfo)
	return info.State.VerifiedChains
}

// Caller is whose call it is. What a node says that handed the call on counts, if it is one: with
// certificates it has a node's name. Without them nobody is known for sure, and everybody is
// believed.
func (g *Guard) Caller(ctx context.Context) string {
	who := peerName(ctx)
	md, _ := metadata.FromIncomingContext(ctx)
	if named := md.Get(callerHeader); len(named) == 1 && len(md.Get(hopHeader)) > 0 && g.isNode(ctx) {
		return named[0]
	}
	return who
}

// isNode reports whether the connection is another node's, or may be.
func (g *Guard) isNode(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	if shown := chains(p); len(shown) > 0 {
		return g.namesNode(shown[0][0])
	}
	return !g.c.Certificates
}

// namesNode reports whether a certificate names a node of the group.
func (g *Guard) namesNode(c *x509.Certificate) bool {
	return slices.ContainsFunc(g.c.Nodes(), func(id string) bool { return slices.Contains(c.DNSNames, id) })
}

// identify says who calls. Of a call that another node has handed on it is the first caller, as that
// node saw it.
func (g *Guard) identify(ctx context.Context) identity {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return identity{}
	}
	own := g.bearer(chains(p))
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get(hopHeader)) == 0 || own.distrust != nil || !own.node && !mutant.On("access/forwarded-by-nodes") {
		return own
	}
	if mutant.On("access/forwarded-caller") {
		return identity{name: own.name, grants: []grant{{role: admin}}}
	}
	name := md.Get(nameHeader)
	if len(name) != 1 {
		return identity{distrust: errors.New("the node that handed the call on does not say whose it is")}
	}
	first := identity{name: name[0]}
	for _, text := range md.Get(rolesHeader) {
		if x, err := parseGrant(text); err == nil {
			first.grants = append(first.grants, x)
		}
	}
	first.grants = g.granted(first)
	return first
}

// bearer is who holds the certificate that the connection began with.
func (g *Guard) bearer(chains [][]*x509.Certificate) identity {
	if len(chains) == 0 {
		return identity{}
	}
	c := chains[0][0]
	id := identity{name: certName(c), grants: certGrants(c), node: g.namesNode(c)}
	if g.c.Trusts != nil && !mutant.On("access/trusted-still") {
		id.distrust = g.c.Trusts(chains, time.Now())
	}
	id.grants = g.granted(id)
	if id.node { // one that leads may finish what nobody else does, with credentials of its own
		id.grants = append(slices.Clip(id.grants), grant{role: resolver})
	}
	return id
}

// granted are the roles that count: those of the file if there is one, else those that the
// certificate names.
func (g *Guard) granted(id identity) []grant {
	if g.c.Roles == nil {
		return id.grants
	}
	return g.c.Roles().byName[id.name]
}

// HandOn adds to the context of an outgoing call whose call it is that this node, self, hands on to the leader.
func (g *Guard) HandOn(ctx context.Context, self string) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, hopHeader, self, callerHeader, peerName(ctx))
	if !g.c.Certificates {
		return ctx
	}
	id := g.identify(ctx)
	said := []string{nameHeader, id.name}
	for _, text := range grantTexts(id.grants) {
		said = append(said, rolesHeader, text)
	}
	return metadata.AppendToOutgoingContext(ctx, said...)
}

// title is how a caller is called in a sentence.
func (id identity) title() string {
	if id.name == "" {
		return "a caller without a certificate"
	}
	return id.name
}

// has lists the caller's roles for a sentence.
func (id identity) has() string {
	texts := grantTexts(id.grants)
	if id.node {
		texts = append(texts, "node")
	}
	if len(texts) == 0 {
		return "no role"
	}
	return strings.Join(texts, ", ")
}
