package access

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"

	"github.com/unisink/unisink/internal/mutant"
)

// HTTP asks for the role viewer wherever the path is not open.
func (g *Guard) HTTP(open []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.c.Certificates && !slices.Contains(open, r.URL.Path) && !mutant.On("access/metrics-for-viewers") {
			var chains [][]*x509.Certificate
			if r.TLS != nil {
				chains = r.TLS.VerifiedChains
			}
			id := g.bearer(chains)
			sees := slices.ContainsFunc(id.grants, func(x grant) bool { return x.role.holds(viewer) })
			switch {
			case id.distrust != nil:
				http.Error(w, fmt.Sprintf("%s may not see %s any more: %v", id.title(), r.URL.EscapedPath(), id.distrust), http.StatusForbidden)
				return
			case !sees:
				http.Error(w, fmt.Sprintf("%s may not see %s, which takes the role viewer, and has %s", id.title(), r.URL.EscapedPath(), id.has()), http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
