// Package server is the gRPC edge of a coordinator node: wire types to domain types and back,
// status codes, the leader hint and the forwarding of unary calls, health and metrics. It
// decides nothing.
package server
