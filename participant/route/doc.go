// Package route knows the coordinator's addresses: who leads, whom to try next and what may be
// retried. A Router is a grpc.ClientConnInterface, so any generated client works through it.
package route
