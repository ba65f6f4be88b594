// Package state keeps what an operator remembers between records: accumulators by key and window, in
// key groups, with a compact snapshot form; and it declares the Store in which snapshots lie that
// are too large for a vote.
//
// A key's group is fixed by [Group] for ever; a snapshot part covers a range of groups, so that
// whole groups can move to another process.
package state
