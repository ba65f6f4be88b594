package ledger

import "github.com/unisink/unisink/internal/mutant"

// switchedOff returns the rules that this process was asked to run without: none in a build
// without -tags mutants.
func switchedOff() unguarded {
	return unguarded{
		gapCheck:         mutant.On("ledger/gap-check"),
		openUnclosed:     mutant.On("ledger/close-before-open"),
		decideClosed:     mutant.On("ledger/closed-decides-nothing"),
		everyVote:        mutant.On("ledger/every-vote"),
		instanceCheck:    mutant.On("ledger/votes-of-this-instance"),
		rememberRefusals: mutant.On("ledger/refusals-forgotten"),
		floorCheck:       mutant.On("ledger/floor"),
		aheadCheck:       mutant.On("ledger/ids-not-ahead"),
		firstProof:       mutant.On("ledger/first-proof-stands"),
		haltOnHeuristic:  mutant.On("ledger/halt-on-heuristic"),
		retireUnresolved: mutant.On("ledger/retire-resolved-only"),
		namedParts:       mutant.On("ledger/named-parts-kept"),
		reuseGenerations: mutant.On("ledger/generations-never-reused"),
		desiredFirst:     mutant.On("ledger/desired-state-first"),
		backoff:          mutant.On("ledger/back-off"),
		youngDecision:    mutant.On("ledger/young-decision-counts-not"),
		anyResource:      mutant.On("ledger/resource-identity"),
		finalForClose:    mutant.On("ledger/final-in-close"),
		endlessTrail:     mutant.On("ledger/trail-is-bounded"),
		auditRepeats:     mutant.On("ledger/repeats-are-no-acts"),
	}
}
