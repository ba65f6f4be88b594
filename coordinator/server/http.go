package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// whatIsHere is for people who look at the port with a browser.
const whatIsHere = `This is the HTTP port of a unisink coordinator node. It has, for supervisors and monitors:

  /livez    200 while the process runs
  /readyz   200 while this node can be asked; else 503 and why not
  /metrics  metrics for Prometheus

Members, clients and the command line use the node's client port, which speaks gRPC.`

// newHTTP serves what supervisors and monitors ask for.
func (s *Server) newHTTP() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Ready(); err != nil {
			say(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		say(w, http.StatusOK, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.c.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, whatIsHere) })
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		say(w, http.StatusNotFound, "Nothing is served at this path.\n\n"+whatIsHere)
	})
	// The time for a request's head bounds the handshake too. Nobody keeps a connection for longer than a monitor needs.
	return &http.Server{
		Handler: s.guard.HTTP(s.c.HTTPOpen, mux), TLSConfig: s.c.TLS, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(s.c.Logger.Handler(), slog.LevelInfo), // handshakes that failed: a caller's mistake
	}
}

func (s *Server) serveHTTP() error {
	if s.c.TLS != nil {
		return s.http.ServeTLS(s.c.HTTP, "", "")
	}
	return s.http.Serve(s.c.HTTP)
}

// say writes a short answer; a caller that has gone is nobody's error.
func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text)
}
