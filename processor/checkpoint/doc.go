// Package checkpoint writes, reads and deletes the snapshots of an operator: base and changes.
//
// A snapshot is a list of parts. The first is inline in the vote: what the operator remembers beside its
// keyed state, and the keyed state too if it is small. Else the keyed state is a chain of parts in a
// store, each of which says for every key group either all that the group has or what has changed
// in it. An epoch adds one part to the chain and lets those go that nothing needs any more.
package checkpoint
