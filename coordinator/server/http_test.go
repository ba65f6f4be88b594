package server

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unisink/unisink/coordinator/ledger"
)

// What the HTTP server itself has to say, of handshakes that failed for instance, is a line of the log like any other.
func TestTheHTTPServerSpeaksInTheLog(t *testing.T) {
	var log bytes.Buffer
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := New(Config{
		Node: shown{m: ledger.New()}, Sessions: noSessions{}, Registry: prometheus.NewRegistry(),
		Logger: slog.New(slog.NewTextHandler(&log, nil)), HTTP: listener,
	})
	if s.http.ErrorLog == nil {
		t.Fatal("it writes past the log")
	}
	s.http.ErrorLog.Print("http: TLS handshake error from a caller")
	if got := log.String(); !strings.Contains(got, `level=INFO msg="http: TLS handshake error from a caller"`) {
		t.Errorf("the log has %q", got)
	}
}

// Whoever opens the port with a browser learns what is there.
func TestTheHTTPPortSaysWhatItHas(t *testing.T) {
	s := New(Config{Node: shown{m: ledger.New()}, Sessions: noSessions{}, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	for _, c := range []struct {
		method, path string
		code         int
		says         string
	}{
		{http.MethodGet, "/", http.StatusOK, "/livez"},
		{http.MethodHead, "/", http.StatusOK, ""},
		{http.MethodGet, "/metric", http.StatusNotFound, "/metrics"},
		{http.MethodGet, "/livez", http.StatusOK, "ok\n"},
		{http.MethodPost, "/livez", http.StatusMethodNotAllowed, ""},
	} {
		w := httptest.NewRecorder()
		s.newHTTP().Handler.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s: %d %q, want %d with %q", c.method, c.path, w.Code, w.Body, c.code, c.says)
		}
	}
}
