// Package check judges what a run left behind: a history of what was done, said and seen, and
// nothing else. It imports nothing of the coordinator, so that it cannot share its mistakes, and
// reads no clock: a history that was saved is judged again as it was.
//
// The rules are numbered C1 to C14; see README.md of tests/jepsen-style for what each one finds.
package check
