// Package branchname reads the names of branches and judges whose branch a handle names.
//
// Names can be guessed, and a handle is what a participant or a client hands in. Whoever finishes it later has
// rights of its own, in every resource: so before a handle is decided, and again before it is finished, it is
// asked whether it names a branch of the transaction that it came with. Names that are no branch's are their
// adapter's affair, and pass.
package branchname
