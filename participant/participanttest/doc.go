// Package participanttest is for those who write an adapter: Run checks a Resource against the
// contract, and Memory is the reference Resource, which keeps its data in a Store that outlives
// the processes that use it.
package participanttest
