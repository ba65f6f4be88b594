// Package mutant names the protections that a test must miss when they are gone.
//
// A protection that no test notices is a comment. So where one stands, its absence can be asked
// for by name:
//
//	if index < newest && !mutant.On("raft/old-snapshot") {
//		return refuse(index)
//	}
//
// Without -tags mutants [On] is constantly false, the compiler drops the branch, and nothing can
// be switched off. With the tag the process reads UNISINK_MUTANT, which holds one name or is
// empty, says on standard error what it runs without, and stops on a name that is not listed: a
// trial that mutates nothing would pass for a test that catches nothing.
//
// The list is mutants.txt. Each line names a mutant, the package of the check that must catch it
// and a pattern of that check's tests. So for every line
//
//	go test -tags mutants -count=1 -run PATTERN PACKAGE
//
// passes, and with UNISINK_MUTANT=NAME it fails by its own judgement: not by the test's time-out,
// and not because something does not build. internal/repolint keeps the list equal to the code.
//
// Names are "room/what-is-missing", written as a fault point's. Two mutants are never on
// together. A mutant removes a protection and adds nothing else: it must not break what
// the protection does not protect, or it would be caught for that.
package mutant
