//go:build !mutants

package mutant

// Enabled reports whether this build can switch protections off.
const Enabled = false

// On is false in this build.
func On(string) bool { return false }
