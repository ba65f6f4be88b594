package certs

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// certificates are all that a PEM file holds; another kind of block in it is a mistake, such as a key
// given for an authority.
func certificates(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out, nil
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it holds a block %q beside certificates", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
}
