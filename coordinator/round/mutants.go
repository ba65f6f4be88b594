package round

import "github.com/unisink/unisink/internal/mutant"

// switchedOff returns the rules that this process was asked to run without: none in a build
// without -tags mutants.
func switchedOff() guards {
	return guards{
		promise:     mutant.On("round/vote-stands"),
		stamp:       mutant.On("round/deadline-from-stamp"),
		budget:      mutant.On("round/commit-budget"),
		everyOne:    mutant.On("round/every-barrier"),
		provenClaim: mutant.On("round/proven-through"),
		inOrder:     mutant.On("round/decided-in-order"),
		sourcesTell: mutant.On("round/sources-tell-first"),
		fullSet:     mutant.On("round/every-vote"),
		idle:        mutant.On("round/no-barrier-without-work"),
		finishIdle:  mutant.On("round/idle-final-epoch"),
		bound:       mutant.On("round/pending-bound"),
	}
}
