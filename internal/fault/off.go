//go:build !faults

package fault

// Enabled reports whether this build has fault points. A test that needs them skips, with
// this as its reason, when it is false.
const Enabled = false

// Point does nothing in this build.
func Point(string) {}

// Err returns nil in this build.
func Err(string) error { return nil }

// Set panics in this build: a hook that is never called would let a test pass unseen.
func Set(func(name string) error) (restore func()) {
	panic("fault.Set: this binary was built without -tags faults; check fault.Enabled first")
}

// Names returns nil in this build.
func Names() []string { return nil }
