// Package session is the leader's side of the participants: their streams and leases, the
// generations of each scope, restore and start, and the orders that keep an epoch going. It
// decides nothing by itself: who has voted is known to package round, and what is true stands in
// the ledger. All that is kept here dies with the term and is rebuilt by the next leader from the
// ledger and from what members say when they attach.
//
// # Goroutines
//
// [Manager.Lead] starts one actor per scope that has somebody attached, an open generation, or a
// stop under way, and one goroutine per proposal that is on its way; it waits for all of them. A
// handler of a call hands a step to the actor and waits for it; the actor never waits inside a
// step. Whatever was proposed comes back to the actor as another step, and so does an effect, as
// no more than a hint to read the ledger again.
//
// # Locks
//
// A scope belongs to its actor. Shared are: Manager.mu (who leads), then reign.mu (which scopes
// there are), then scope.mu (parts to delete) or stream.mu (orders not sent). They are taken in
// this order and held for memory only.
package session
