//go:build mutants

package mutant

import (
	"fmt"
	"os"
	"slices"
	"sync"
)

// Enabled reports whether this build can switch protections off.
const Enabled = true

// chosen is read once: a protection that comes and goes is no trial.
var chosen = sync.OnceValue(func() string {
	name := os.Getenv(Env)
	if err := known(name); err != nil {
		panic(err.Error())
	}
	if name != "" {
		fmt.Fprintf(os.Stderr, "mutant: this process runs without %s\n", name)
	}
	return name
})

// On reports whether the named protection is switched off in this process. Safe for concurrent
// use.
func On(name string) bool { return chosen() == name }

// known refuses a name that no line of the list has; the empty one means no mutant.
func known(name string) error {
	if name == "" || slices.ContainsFunc(Known(), func(m Mutant) bool { return m.Name == name }) {
		return nil
	}
	return fmt.Errorf("%s: no mutant is called %q; the names stand in internal/mutant/mutants.txt", Env, name)
}
