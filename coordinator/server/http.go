package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

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
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text)
}
