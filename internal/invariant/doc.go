// Package invariant states what must hold, and stops the process when it does not.
//
// Two strengths. [Must] is always on and costs one comparison; it stands before whatever
// cannot be taken back: a decision, an apply, a rename. [Check] takes a function, for what
// costs more than a comparison (walking a whole state, recomputing a hash); it runs only in
// builds with -tags invariants or -race.
//
// A violation is a mistake in this program, never an answer of the world: a full disk, a
// dead peer or a malformed message is an error and is returned. Continuing after a violation
// could decide a transaction twice, so a violation panics, and nothing of ours recovers it.
package invariant
