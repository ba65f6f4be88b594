// Package session is the leader's side of the participants: their streams and leases, the
// generations of each scope, restore and start, and the orders that keep an epoch going. It
// decides nothing by itself: who has voted is known to package round, and what is true stands in
// the ledger. All that is kept here dies with the term and is rebuilt by the next leader from the
// ledger and from what members say when they attach.
package session
