// Package grpcerr is the one form in which the coordinator's refusals cross the wire: a gRPC
// status that carries an ErrorInfo with a reason, the domain "unisink" and a few facts.
//
// Callers branch on the reason, never on the text and seldom on the code: two refusals with
// one code may ask for different answers. The text is for people.
package grpcerr
