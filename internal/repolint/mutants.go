package repolint

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// mutantList is where the names of all mutants stand, with the check that must catch each.
const mutantList = "internal/mutant/mutants.txt"

// CheckMutants compares the mutants in the code with the list of them, from which the mutation
// gate takes what to switch off. One that is not listed would never be tried.
func CheckMutants(repo *Repo) []Finding {
	var found []Finding
	listed := map[string]bool{}
	if file := repo.File(mutantList); file != nil {
		for line := range strings.Lines(string(file.Data)) {
			if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(fields[0], "#") {
				listed[fields[0]] = true
			}
		}
	}
	used := map[string]bool{}
	for _, f := range repo.GoFiles() {
		if f.Test || f.Dir() == "internal/mutant" {
			continue
		}
		ast.Inspect(f.Go, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || selected(call) != "mutant.On" {
				return true
			}
			name, ok := literal(call)
			switch {
			case !ok:
				found = append(found, Finding{"mutants", f.Path, f.Line(call.Pos()), "a mutant is named by a literal, so that it can be listed"})
			case !listed[name] && !used[name]:
				found = append(found, Finding{"mutants", f.Path, f.Line(call.Pos()), fmt.Sprintf("the mutant %q is not in %s; add it there with the check that catches it", name, mutantList)})
			}
			used[name] = used[name] || ok
			return true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !used[name] {
			found = append(found, Finding{"mutants", mutantList, 0, fmt.Sprintf("no code has the mutant %q; remove it there", name)})
		}
	}
	return found
}
