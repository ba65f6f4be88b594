package repolint

import (
	"fmt"
	"slices"
	"strings"
)

// party says where a third party may be used. Of two that match the longer prefix rules.
type party struct {
	prefix string
	in     []string
}

// parties returns the third parties that live in one place each. One that stands in no row
// may be used wherever third parties are allowed at all.
func parties() []party {
	wire := []string{
		"proto", "coordinator/server", "coordinator/access", "coordinator/session", "coordinator/wire", "coordinator/raftnode",
		"participant", "processor/link", "cmd",
		// The form of a refusal is part of the wire, and both of its ends use it.
		"internal/grpcerr",
		// So is how both of them are secured.
		"internal/grpctls",
	}
	commands := []string{"cmd"}
	onlyTests := []string{}
	return []party{
		{"github.com/hashicorp/", []string{"coordinator/raftnode"}},
		// A journal is a file of its own, which has nothing to do with the log.
		{"go.etcd.io/bbolt", []string{"coordinator/raftnode", "participant/journal"}},
		{"github.com/twmb/franz-go", []string{"adapters/kafka", "internal/services"}},
		// The embedded Kafka of dev and demo is a process that the binary starts.
		{"github.com/twmb/franz-go/pkg/kfake", []string{"adapters/kafka", "internal/services", "cmd"}},
		{"github.com/jackc/pgx", []string{"adapters/postgres", "internal/services"}},
		{"github.com/urfave/cli", commands},
		{"github.com/knadh/koanf", commands},
		{"github.com/jedib0t/go-pretty", commands},
		{"golang.org/x/term", commands},
		// Who verifies a specification evaluates it by itself.
		{"cel.dev/", []string{"processor/spec", "processor/verify/fromspec"}},
		{"go.yaml.in/yaml", []string{"processor/spec"}},
		{"github.com/santhosh-tekuri/jsonschema", onlyTests},
		{"google.golang.org/grpc", wire},
		{"google.golang.org/protobuf", wire},
		{"google.golang.org/genproto", wire},
		{"github.com/grpc-ecosystem/", wire},
		{"github.com/google/go-cmp", onlyTests},
		{"github.com/rogpeppe/go-internal", onlyTests},
		{"go.uber.org/goleak", onlyTests},
		{"pgregory.net/rapid", onlyTests},
	}
}

// pure are the packages that use the standard library alone.
func pure() []string {
	return []string{
		"coordinator/ledger", "coordinator/round",
		"processor/stream", "processor/window", "processor/barrier",
		"internal/invariant", "internal/fault", "internal/mutant", "internal/obs", "internal/repolint",
	}
}

// wireTypes is our generated code, which is kept to the edges as a third party is.
const wireTypes = "proto"

// CheckThirdParties finds third parties outside their place. Test files, packages made for
// tests, and tests/ use what they need; internal/deps, never built, only names the modules.
func CheckThirdParties(repo *Repo) []Finding {
	var found []Finding
	for _, f := range repo.GoFiles() {
		dir := f.Dir()
		if f.Test || testPackage(dir) || under(dir, "tests") || under(dir, "internal/deps") {
			continue
		}
		for _, imp := range f.Imports() {
			if why := misplaced(repo, dir, imp.Path); why != "" {
				found = append(found, Finding{"third-party", f.Path, imp.Line, fmt.Sprintf("imports %s: %s", imp.Path, why)})
			}
		}
	}
	return found
}

// misplaced returns why a package in dir may not import a path, or "".
func misplaced(repo *Repo, dir, importPath string) string {
	target, ours := repo.Ours(importPath)
	if ours {
		if under(target, wireTypes) && !underAny(dir, place("google.golang.org/protobuf")) && !under(dir, "examples") {
			return "generated types stay at the edges: " + strings.Join(place("google.golang.org/protobuf"), ", ")
		}
		return ""
	}
	first, _, _ := strings.Cut(importPath, "/")
	switch {
	case !strings.Contains(first, "."):
		return "" // the standard library
	case underAny(dir, pure()):
		return "this package uses the standard library alone"
	}
	in := place(importPath)
	switch {
	case in == nil || underAny(dir, in):
		return ""
	case len(in) == 0:
		return "it is for tests alone"
	default:
		return "it lives in " + strings.Join(in, ", ") + " alone"
	}
}

// place returns where an import path may be used, nil for anywhere.
func place(importPath string) []string {
	var best party
	for _, p := range parties() {
		if len(p.prefix) > len(best.prefix) && strings.HasPrefix(importPath, p.prefix) {
			best = p
		}
	}
	return slices.Clone(best.in)
}
