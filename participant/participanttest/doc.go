// Package participanttest is for those who write an adapter: Run checks a Resource against the
// contract, and Memory is the reference Resource, which keeps its data in a Store that outlives
// the processes that use it.
//
// # How an adapter is certified
//
// A test calls [Run] with a [Kit]. Its New makes a [Target]: one directory, database or topic with nothing in
// it, and the ways to reach it. Three of them are needed, Process, Write and Read; the example shows a
// whole test file. Each check is a subtest named after its rule, so one of them alone is
//
//	go test -run 'TestConformance/P16' ./...
//
// The rest of a Target is optional, and each part lets the kit see more:
//
//   - Stepped shows it the adapter's steps towards the world. It injects an error at each of them, cancels at
//     each, and cuts the process off at each. For a network, [StepDialer] makes a dial function of it.
//   - World and [Child] let it start processes of the test binary and kill them (SIGKILL) between any two
//     calls and at any step; Points adds the adapter's own named crash points.
//   - NeverPrepared, Drop and Recreate make what must not be taken for a commit: a handle of nothing, prepared work that
//     is gone, a target made anew. Secrets are words to look for where none may be.
//
// Run returns a [Certificate] and logs it. It says what the adapter claims (Description: CanList, Bounded,
// Asserted), what was certified, and as "NOT CERTIFIED" with the reason what was not, because the adapter does not
// claim it or the Target gave nothing to look with. What is claimed is tried both ways: what an adapter can
// do and does not claim is an error too. [Certificate.Require] keeps a test from losing unseen what was certified once.
//
// Checks of real services take as long as their answers: Kit.Branches, Kit.Steps and Kit.Kills make less of
// the costly ones, and the certificate says how much it was.
package participanttest
