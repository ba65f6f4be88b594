// Package grpctls makes gRPC ask for its TLS settings anew at each connection. The library takes them
// once, and a client that lives longer than its certificate, or than the authority it trusts, could
// not connect again.
package grpctls
