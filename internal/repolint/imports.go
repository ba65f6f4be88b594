package repolint

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// room says what of ours the packages at and below a path may import. Of two that match the
// longer path rules.
type room struct {
	path string
	// own is how many path elements make a unit that may import itself; 0 means the elements
	// of path. Adapters are units by themselves: none imports another.
	own int
	may []string
}

// rooms returns the layout: who may import whom. What stands in no row may be imported by
// nobody, and a package that no row covers is a finding.
func rooms() []room {
	everything := []string{"coordinator", "participant", "processor", "adapters", "proto", "internal", "cmd"}
	around := []string{"coordinator/ledger", "coordinator/round", "coordinator/eventlog", "coordinator/wire", "proto", "internal"}
	// Assertions are allowed in the pure packages: they are standard library alone, and a
	// replica that breaks a rule must stop where the rule is.
	assert := "internal/invariant"
	// So are the switches that show what a protection is for: nothing in a build that is used.
	mutants := "internal/mutant"
	return append([]room{
		{path: "coordinator", may: []string{"proto", "internal"}},
		{path: "coordinator/ledger", may: []string{assert, mutants}},
		{path: "coordinator/round", may: []string{"coordinator/ledger", assert, mutants}},
		{path: "coordinator/eventlog", may: []string{"coordinator/ledger", "internal"}},
		{path: "coordinator/wire", may: []string{"coordinator/ledger", "coordinator/round", "proto", "internal/grpcerr"}},
		{path: "coordinator/raftnode", may: around},
		{path: "coordinator/session", may: around},
		{path: "coordinator/finish", may: around},
		{path: "coordinator/access", may: around},
		{path: "coordinator/server", may: append([]string{"coordinator/access"}, around...)},
		{path: "coordinator/console", may: around},
		{path: "coordinator/coordinatortest", may: []string{"coordinator", "participant", "proto", "internal"}},

		{path: "participant", may: []string{"proto", "internal"}},

		{path: "processor", may: []string{"participant", "internal"}},
		{path: "processor/link", may: []string{"participant", "processor", "proto", "internal"}},
		{path: "processor/stream", may: nil},
		{path: "processor/window", may: []string{"processor/stream", assert, mutants}},
		{path: "processor/barrier", may: []string{"processor/stream", assert, mutants}},
		// verify recomputes what the pipeline computed and must not share its bugs.
		{path: "processor/verify", may: []string{"processor/stream", "internal"}},

		// processor/state holds the contract of stores, which adapters keep too.
		{path: "adapters", own: 2, may: []string{"participant", "processor/stream", "processor/state", "internal"}},

		{path: "cmd", may: append([]string{"examples"}, everything...)}, // the demo carries an example
		// Examples are what users write: the public packages, nothing internal.
		{path: "examples", own: 2, may: []string{"participant", "processor", "adapters", "proto", "cmd/app"}},
		{path: "tests", own: 2, may: everything},

		{path: "proto", may: nil},
		{path: "internal", own: 2, may: []string{"internal"}},
		{path: "internal/invariant", may: nil},
		{path: "internal/fault", may: nil},
		{path: "internal/mutant", may: nil},
		{path: "internal/obs", may: nil},
	}, harnessRooms()...)
}

// harnessRooms are those of the harness.
func harnessRooms() []room {
	return []room{
		// The harness is a black box: a checker must not share the coordinator's bugs.
		{path: "tests/jepsen-style", may: []string{"participant", "proto"}},
		// The simulation runs nodes in its own process. What judges them is in check, which imports nothing.
		{path: "tests/jepsen-style/check", may: nil},
		{path: "tests/jepsen-style/sim", may: []string{"coordinator", "participant", "processor", "adapters", "proto", "internal", "tests/jepsen-style/check", "tests/jepsen-style/blackbox/judge"}},
		// What harnesses of real processes share.
		{path: "tests/jepsen-style/rig", may: []string{"participant", "proto"}},
		// Torture runs real brokers and processes; it looks at them and at the binary from outside.
		{path: "tests/jepsen-style/torture", may: []string{"participant", "proto", "internal/services", "internal/child", "internal/freeport", "tests/jepsen-style/rig", "examples"}},
		// The black box's tellers are users: of the SDK, of an adapter, and of the reference resource as their accounts.
		{path: "tests/jepsen-style/blackbox", own: 3, may: []string{
			"participant", "proto", "adapters/file", "processor/stream", "internal/services", "internal/child", "internal/freeport",
			"tests/jepsen-style/rig", "tests/jepsen-style/check",
		}},
		// The mutation gate builds checks and runs them; of the code it knows the list of mutants alone.
		{path: "tests/jepsen-style/mutants", may: []string{"internal/mutant", "internal/child"}},
	}
}

// harness is the one place whose test files obey the layout too.
const harness = "tests/jepsen-style"

// roomOf returns the row that rules a folder.
func roomOf(dir string) (room, bool) {
	var best room
	found := false
	for _, r := range rooms() {
		if under(dir, r.path) && (!found || len(r.path) > len(best.path)) {
			best, found = r, true
		}
	}
	return best, found
}

// unit returns the folder whose packages may import each other.
func (r room) unit(dir string) string {
	n := r.own
	if n == 0 {
		n = strings.Count(r.path, "/") + 1
	}
	parts := strings.Split(dir, "/")
	return path.Join(parts[:min(n, len(parts))]...)
}

// testPackage reports whether a folder holds a package made for tests to import.
func testPackage(dir string) bool { return strings.HasSuffix(dir, "test") }

// CheckImports finds imports within the module that the layout does not allow.
func CheckImports(repo *Repo) []Finding {
	var found []Finding
	for _, f := range repo.GoFiles() {
		dir := f.Dir()
		inHarness := under(dir, harness)
		row, known := roomOf(dir)
		if !known {
			found = append(found, Finding{"imports", f.Path, 0, "no row of the layout covers this folder; add one to rooms()"})
			continue
		}
		allowed := append(slices.Clone(row.may), row.unit(dir))
		for _, imp := range f.Imports() {
			target, ours := repo.Ours(imp.Path)
			if !ours {
				continue
			}
			if why := forbids(f, target, allowed, inHarness); why != "" {
				found = append(found, Finding{"imports", f.Path, imp.Line, fmt.Sprintf("imports %s: %s", target, why)})
			}
		}
	}
	return found
}

// forbids returns why a file may not import target, or "".
func forbids(f *File, target string, allowed []string, inHarness bool) string {
	dir := f.Dir()
	switch {
	case under(target, harness) && !inHarness:
		return "the harness is imported by nobody"
	case f.Test && !inHarness:
		return "" // tests may look anywhere
	case testPackage(target) && !testPackage(dir) && !under(dir, "tests"):
		return "a package made for tests is imported from test files alone"
	case !underAny(target, allowed):
		return fmt.Sprintf("%s may import only %s", dir, strings.Join(allowed, ", "))
	}
	return ""
}
