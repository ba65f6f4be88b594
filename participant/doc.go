// Package participant is the SDK of those who prepare, commit and roll back: members of a scope
// (sources, window processors, sinks) and clients that run transactions by hand. It also declares
// Resource, the contract that adapters fulfil. It knows the coordinator by the wire alone.
package participant
