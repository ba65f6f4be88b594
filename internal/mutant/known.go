package mutant

import (
	_ "embed"
	"strings"
)

// Env is the environment variable that names the protection to switch off.
const Env = "UNISINK_MUTANT"

//go:embed mutants.txt
var listed string

// Mutant is one line of the list.
type Mutant struct {
	Name    string // of the protection that is switched off
	Package string // of the check that must catch it, as `go test` takes it
	Run     string // pattern of the check's tests, as `go test -run` takes it
}

// Known returns all mutants that stand in the code, sorted by name, in every build.
func Known() []Mutant {
	var all []Mutant
	for line := range strings.Lines(listed) {
		fields := strings.Fields(line)
		if len(fields) != 3 || strings.HasPrefix(fields[0], "#") {
			continue // a test refuses lines that are neither a mutant nor a comment
		}
		all = append(all, Mutant{Name: fields[0], Package: fields[1], Run: fields[2]})
	}
	return all
}
