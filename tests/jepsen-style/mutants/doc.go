// Command mutants switches the protections off one at a time and wants a stated check to miss each.
//
//	go run ./tests/jepsen-style/mutants -all
//
// What can be switched off, and which check must miss it, stands in internal/mutant/mutants.txt.
// A mutant is caught when its check passes as the code is and, in the same run and from the same
// binary, fails without the protection: by the verdict of a test that passed before. A check that
// runs out of time, panics, ends the process, skips, or does not build has caught nothing.
//
// It exits with 0 only if every mutant that was tried was caught. README.md says more.
package main
