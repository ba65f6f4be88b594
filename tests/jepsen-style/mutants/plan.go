package main

import (
	"cmp"
	"slices"

	"github.com/unisink/unisink/internal/mutant"
)

// plan orders the mutants so that each test binary is needed once, beginning with another package
// each turn, and in that package with another mutant each time it comes first. So even if the time
// is up after one mutant, turn after turn all of them have been that one.
func plan(all []mutant.Mutant, turn int) []mutant.Mutant {
	byPackage := map[string][]mutant.Mutant{}
	var packages []string
	for _, m := range all {
		if byPackage[m.Package] == nil {
			packages = append(packages, m.Package)
		}
		byPackage[m.Package] = append(byPackage[m.Package], m)
	}
	if len(packages) == 0 {
		return nil
	}
	slices.Sort(packages)
	round := turn / len(packages)
	var out []mutant.Mutant
	for _, pkg := range rotated(packages, turn) {
		ms := byPackage[pkg]
		slices.SortFunc(ms, func(a, b mutant.Mutant) int { return cmp.Compare(a.Name, b.Name) })
		out = append(out, rotated(ms, round)...)
	}
	return out
}

// rotated begins with the n-th element, counted round and round.
func rotated[T any](s []T, n int) []T {
	n %= len(s)
	return slices.Concat(s[n:], s[:n])
}
