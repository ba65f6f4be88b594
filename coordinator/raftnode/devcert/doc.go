// Package devcert makes certificates for trying a coordinator group with mutual TLS: an
// authority of its own and one certificate for each node. They are for development; a real
// group gets its certificates from the authority that its owner already runs.
package devcert
