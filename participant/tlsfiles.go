package participant

import (
	"crypto/tls"
	"log/slog"

	"github.com/unisink/unisink/internal/certs"
)

// TLSFiles name PEM files that connections to coordinators are secured with.
type TLSFiles struct {
	CA   string // the authority of the coordinators' certificates
	Cert string // the process's own certificate, which says what it may do
	Key  string // its key; given with Cert
}

// Load reads the files and returns what TLSFrom takes. They are read again when a connection is made
// and they have changed, so that a process outlives its certificate. Files that cannot be used then are
// logged, and those read before stay in use. An error says which file cannot be used now.
func (f TLSFiles) Load(log *slog.Logger) (func() *tls.Config, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	store, err := certs.Open(certs.Files{CA: f.CA, Cert: f.Cert, Key: f.Key}, "", log)
	if err != nil {
		return nil, err
	}
	return store.Client, nil
}
