package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestMetricsAreForViewers(t *testing.T) {
	g := guarded()
	var distrust error
	g.c.Trusts = func([][]*x509.Certificate, time.Time) error { return distrust }
	h := g.HTTP([]string{"/livez"}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	get := func(path string, c *x509.Certificate) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.TLS = &tls.ConnectionState{}
		if c != nil {
			r.TLS.VerifiedChains = [][]*x509.Certificate{{c}}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for name, c := range map[string]struct {
		path string
		cert *x509.Certificate
		want int
	}{
		"open to all":            {"/livez", nil, http.StatusNoContent},
		"nobody":                 {"/metrics", nil, http.StatusForbidden},
		"a viewer":               {"/metrics", certified("vera", "viewer"), http.StatusNoContent},
		"an operator":            {"/metrics", certified("olga", "operator"), http.StatusNoContent},
		"a member":               {"/metrics", certified("worker", "member:orders"), http.StatusForbidden},
		"a path that is no path": {"/livez/../metrics", nil, http.StatusForbidden},
	} {
		if got := get(c.path, c.cert); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	distrust = errors.New("its certificate ended")
	if got := get("/metrics", certified("vera", "viewer")); got != http.StatusForbidden {
		t.Errorf("a viewer whose certificate ended: %d", got)
	}
}
