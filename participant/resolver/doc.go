// Package resolver finishes what nobody else finishes: decided branches whose process is gone, what closed
// generations may have left prepared, and, by listing whole namespaces again and again, what was prepared too
// late for anybody to notice. It knows resources by participant.Finisher alone, and what is to be done by the
// coordinator's ledger alone: it decides nothing.
//
// Several resolvers may run beside each other and beside the members, with the same resources or others. Each
// act is one that may be repeated by anybody, and the first proof of a branch stands.
package resolver
