// Package raftnode replicates the ledger. It is the only user of hashicorp/raft and of its
// bbolt store, and holds every guard that the library needs to be trusted with decisions.
//
// Commands go in through [Node.Propose]; many callers share one log entry. What the entry
// changed comes out as each caller's own result and, on every node, as effects. Whatever leads
// to an act that cannot be taken back is read after [Node.Barrier]; [Node.View] alone shows
// what this node has applied so far, which may be old.
//
// The process ends, by [Config.OnFatal], rather than go on with a disk that failed or hangs,
// with an entry it cannot decode in full, or with data that belongs to somebody else.
package raftnode
