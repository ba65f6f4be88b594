package repolint_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/unisink/unisink/internal/repolint"
)

const ours = "github.com/unisink/unisink"

// tree makes a repository from pairs of path and content.
func tree(t *testing.T, pairs ...string) *repolint.Repo {
	t.Helper()
	files := fstest.MapFS{"go.mod": {Data: []byte("module " + ours + "\n\ngo 1.26\n")}}
	for i := 0; i < len(pairs); i += 2 {
		files[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	repo, err := repolint.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// importing is a Go file that imports one path.
func importing(path string) string {
	return fmt.Sprintf("// Package p is one.\npackage p\n\nimport _ %q\n", path)
}

// lines is a Go file that is n lines longer than its beginning.
func lines(beginning string, n int) string {
	return "// Package p is one.\npackage p\n" + beginning + strings.Repeat("// and on\n", n)
}

// function is a Go file with one function, a method of T, of n lines.
func function(n int) string {
	return "// Package p is one.\npackage p\n\ntype T struct{}\n\nfunc (t *T) Long() {\n" + strings.Repeat("\t_ = t\n", n-2) + "}\n"
}

// body is a Go test file whose one function holds the statements.
func body(imports, statements string) string {
	return "package p\n\nimport (\n" + imports + "\n)\n\nfunc TestX(t *testing.T) {\n" + statements + "\n}\n"
}

// trial is a small repository and what its rule must say to it.
type trial struct {
	name  string
	files []string
	want  string // part of the one finding that is wanted; "" for none
}

// TestEveryRuleSeesItsSabotage gives each rule small repositories, some with exactly the
// mistake it must see. A rule without one that turns it red would be trusted unseen.
func TestEveryRuleSeesItsSabotage(t *testing.T) {
	trials := map[string][]trial{
		"imports":     importTrials(),
		"third-party": thirdPartyTrials(),
		"package-doc": packageDocTrials(),
		"design":      designTrials(),
		"sizes":       sizeTrials(),
		"words":       wordTrials(),
		"sleep":       sleepTrials(),
		"skip":        skipTrials(),
		"makefile":    makefileTrials(),
		"paths":       pathTrials(),
		"failures":    failureTrials(),

		"fault-points": faultPointTrials(),
		"mutants":      mutantTrials(),
	}
	for _, rule := range repolint.Rules() {
		red := 0
		for _, trial := range trials[rule.Name] {
			if trial.want != "" {
				red++
			}
			t.Run(rule.Name+"/"+trial.name, func(t *testing.T) { trial.run(t, rule) })
		}
		if red == 0 {
			t.Errorf("rule %s has no trial that shows it red", rule.Name)
		}
	}
}

// run checks that the rule says what the trial wants, once, and nothing else.
func (trial trial) run(t *testing.T, rule repolint.Rule) {
	t.Helper()
	found := rule.Check(tree(t, trial.files...))
	switch {
	case trial.want == "" && len(found) > 0:
		t.Errorf("found fault with what is allowed: %v", found)
	case trial.want != "" && len(found) != 1:
		t.Errorf("found %v, want one finding about %q", found, trial.want)
	case trial.want != "" && !strings.Contains(found[0].String(), trial.want):
		t.Errorf("found %v, want it to say %q", found[0], trial.want)
	case trial.want != "" && found[0].Rule != rule.Name:
		t.Errorf("found %v under the name of another rule, want %s", found[0], rule.Name)
	}
}

func importTrials() []trial {
	return []trial{
		{"round knows ledger", []string{"coordinator/round/a.go", importing(ours + "/coordinator/ledger")}, ""},
		{"ledger knows nobody", []string{"coordinator/ledger/a.go", importing(ours + "/coordinator/round")}, "coordinator/ledger/a.go:4"},
		{"ledger may assert", []string{"coordinator/ledger/a.go", importing(ours + "/internal/invariant")}, ""},
		{"ledger logs nothing", []string{"coordinator/ledger/a.go", importing(ours + "/internal/obs")}, "may import only internal/invariant"},
		{"siblings do not meet", []string{"coordinator/session/a.go", importing(ours + "/coordinator/raftnode")}, "coordinator/session may import only"},
		{"coordinator joins them", []string{"coordinator/a.go", importing(ours + "/coordinator/raftnode")}, ""},
		{"coordinator knows no SDK", []string{"coordinator/a.go", importing(ours + "/participant")}, "imports participant"},
		{"SDK knows no coordinator", []string{"participant/a.go", importing(ours + "/coordinator/ledger")}, "imports coordinator/ledger"},
		{"resolver knows SDK", []string{"participant/resolver/a.go", importing(ours + "/participant")}, ""},
		{"adapter knows SDK", []string{"adapters/kafka/a.go", importing(ours + "/participant")}, ""},
		{"adapter knows itself", []string{"adapters/file/a.go", importing(ours + "/adapters/file/format")}, ""},
		{"adapter knows no other", []string{"adapters/kafka/a.go", importing(ours + "/adapters/file")}, "imports adapters/file"},
		{"adapter knows no processor", []string{"adapters/kafka/a.go", importing(ours + "/processor")}, "imports processor"},
		{"window knows stream", []string{"processor/window/a.go", importing(ours + "/processor/stream")}, ""},
		{"window knows no state", []string{"processor/window/a.go", importing(ours + "/processor/state")}, "imports processor/state"},
		{"verify shares no bugs", []string{"processor/verify/a.go", importing(ours + "/processor/window")}, "imports processor/window"},
		{"nobody knows cmd", []string{"processor/a.go", importing(ours + "/cmd/app")}, "imports cmd/app"},
		{"examples know app", []string{"examples/sink/a.go", importing(ours + "/cmd/app")}, ""},
		{"examples know nothing internal", []string{"examples/sink/a.go", importing(ours + "/internal/obs")}, "imports internal/obs"},
		{"kits are for tests", []string{"adapters/kafka/a.go", importing(ours + "/participant/participanttest")}, "made for tests"},
		{"tests use kits", []string{"adapters/kafka/a_test.go", importing(ours + "/participant/participanttest")}, ""},
		{"tests look anywhere", []string{"participant/a_test.go", importing(ours + "/coordinator")}, ""},
		{"but not at the harness", []string{"participant/a_test.go", importing(ours + "/tests/jepsen-style/check")}, "imported by nobody"},
		{"the harness's tests obey too", []string{"tests/jepsen-style/check/a_test.go", importing(ours + "/coordinator/ledger")}, "imports coordinator/ledger"},
		{"every folder has a row", []string{"helpers/a.go", importing("fmt")}, "no row"},
		{"generated code is exempt", []string{"coordinator/ledger/a.go", "// Code generated by x. DO NOT EDIT.\n\n" + importing(ours+"/cmd/app")}, ""},
	}
}

func thirdPartyTrials() []trial {
	return []trial{
		{"raft in raftnode", []string{"coordinator/raftnode/a.go", importing("github.com/hashicorp/raft")}, ""},
		{"raft elsewhere", []string{"coordinator/server/a.go", importing("github.com/hashicorp/raft")}, "lives in coordinator/raftnode alone"},
		{"kafka in its adapter", []string{"adapters/kafka/a.go", importing("github.com/twmb/franz-go/pkg/kgo")}, ""},
		{"kafka elsewhere", []string{"processor/a.go", importing("github.com/twmb/franz-go/pkg/kgo")}, "adapters/kafka"},
		{"embedded kafka in cmd", []string{"cmd/app/a.go", importing("github.com/twmb/franz-go/pkg/kfake")}, ""},
		{"kafka client in cmd", []string{"cmd/app/a.go", importing("github.com/twmb/franz-go/pkg/kgo")}, "adapters/kafka"},
		{"cli elsewhere", []string{"coordinator/a.go", importing("github.com/urfave/cli/v2")}, "lives in cmd"},
		{"grpc in server", []string{"coordinator/server/a.go", importing("google.golang.org/grpc")}, ""},
		{"grpc elsewhere", []string{"processor/a.go", importing("google.golang.org/grpc")}, "lives in"},
		{"wire types elsewhere", []string{"coordinator/finish/a.go", importing(ours + "/proto/unisink/v1")}, "generated types stay at the edges"},
		{"pure means pure", []string{"coordinator/ledger/a.go", importing("golang.org/x/sync/errgroup")}, "standard library alone"},
		{"not so pure elsewhere", []string{"coordinator/finish/a.go", importing("golang.org/x/sync/errgroup")}, ""},
		{"cmp is for tests", []string{"participant/a.go", importing("github.com/google/go-cmp/cmp")}, "for tests alone"},
		{"cmp in tests", []string{"participant/a_test.go", importing("github.com/google/go-cmp/cmp")}, ""},
		{"cmp in kits", []string{"participant/participanttest/a.go", importing("github.com/google/go-cmp/cmp")}, ""},
	}
}

func packageDocTrials() []trial {
	said := "// Package p is one.\npackage p\n"
	return []trial{
		{"said once", []string{"a/doc.go", said, "a/b.go", "package p\n"}, ""},
		{"not said", []string{"a/b.go", "package p\n"}, "no package comment"},
		{"said in a test only", []string{"a/b.go", "package p\n", "a/b_test.go", said}, "no package comment"},
		{"said twice", []string{"a/doc.go", said, "a/b.go", said}, "b.go and doc.go"},
		{"said elsewhere", []string{"a/doc.go", said, "b/doc.go", said}, "has the package comment of a"},
		{"not as godoc wants it", []string{"a/doc.go", "// A package.\npackage p\n"}, `does not begin with "Package p "`},
		{"a command", []string{"cmd/x/main.go", "// Command x runs.\npackage main\n"}, ""},
		{"a command called a package", []string{"cmd/x/main.go", "// Package main runs.\npackage main\n"}, `"Command x "`},
		{"generated", []string{"a/a.pb.go", "// Code generated by x. DO NOT EDIT.\n\npackage p\n"}, ""},
	}
}

func designTrials() []trial {
	return []trial{
		{"there", []string{"adapters/kafka/a.go", "package p\n", "adapters/DESIGN.md", "# x\n"}, ""},
		{"missing", []string{"adapters/kafka/a.go", "package p\n"}, "adapters: no DESIGN.md"},
	}
}

func sizeTrials() []trial {
	fields := "\ntype Wide struct {\n" + strings.Repeat("\tA, B, C, D int\n", 4) + "}\n"
	methods := "\ntype Chatty interface {\n" + strings.Repeat("\tA()\n", 9) + "}\n"
	return []trial{
		{"a file at the limit", []string{"adapters/kafka/a.go", lines("", 498)}, ""},
		{"a file past it", []string{"adapters/kafka/a.go", lines("", 499)}, "501 lines, limit 500"},
		{"a test file past it", []string{"adapters/kafka/a_test.go", lines("", 499)}, "501 lines"},
		{"a generated file past it", []string{"adapters/kafka/a.go", "// Code generated by x. DO NOT EDIT.\n\n" + lines("", 900)}, ""},
		{"a file explained", []string{"adapters/kafka/a.go", lines("", 600), "adapters/DESIGN.md", "# x\n\nSizes: `a.go` is one table.\n"}, ""},
		{"a file explained by path", []string{"adapters/kafka/a.go", lines("", 600), "adapters/DESIGN.md", "## Sizes\n\nSo.\n\n`kafka/a.go` is one table.\n"}, ""},
		{"a file named elsewhere in the document", []string{"adapters/kafka/a.go", lines("", 600), "adapters/DESIGN.md", "`a.go` does it.\n\nSizes: `b.go` is one table.\n\n`a.go` too.\n"}, "602 lines"},
		{"a file explained in another room", []string{"adapters/kafka/a.go", lines("", 600), "processor/DESIGN.md", "Sizes: `a.go` is one table.\n"}, "602 lines"},
		{"a function at the limit", []string{"adapters/kafka/a.go", function(60)}, ""},
		{"a function past it", []string{"adapters/kafka/a.go", function(61)}, "func T.Long has 61 lines, limit 60"},
		{"a function of a test", []string{"adapters/kafka/a_test.go", function(99)}, ""},
		{"a function explained", []string{"adapters/kafka/a.go", function(61), "adapters/DESIGN.md", "**Sizes**: `T.Long` is one switch.\n"}, ""},
		{"a struct past it", []string{"adapters/kafka/a.go", lines(fields, 0)}, "struct Wide has 16 fields"},
		{"a struct explained", []string{"adapters/kafka/a.go", lines(fields, 0), "adapters/DESIGN.md", "- Sizes: `Wide` is a row.\n"}, ""},
		{"an interface past it", []string{"adapters/kafka/a.go", lines(methods, 0)}, "interface Chatty has 9 methods"},
		{"a package past it", []string{
			"adapters/kafka/a.go", lines("", 450), "adapters/kafka/b.go", lines("", 450), "adapters/kafka/c.go", lines("", 450),
			"adapters/kafka/d.go", lines("", 450), "adapters/kafka/e.go", lines("", 450), "adapters/kafka/f.go", lines("", 450),
		}, "package adapters/kafka has 2712 lines"},
	}
}

func wordTrials() []trial {
	return []trial{
		{"plain words", []string{"a.md", "This may work/run, and homework/x too.\n", "go.sum", "golang.org/x/sync v0\n"}, ""},
		{"a path", []string{"a.md", "See /wo" + "rk/main.\n"}, "a.md:1"},
		{"a registry in a lock file", []string{"x/package-lock.json", "{\n\"resolved\": \"https://registry.npm" + "js.org/a\"}\n"}, "x/package-lock.json:2"},
		{"a module proxy", []string{".ci/run", "GOPROXY=https://proxy.gol" + "ang.org\n"}, "registry's host"},
		{"a workshop word", []string{"a/b.go", "package p // written by a sub" + "agent\n"}, "workshop"},
		{"left for later by nobody", []string{"a/b.go", "package p // TO" + "DO: all of it\n"}, "without a name and an issue"},
		{"left for later by somebody", []string{"a/b.go", "package p // TO" + "DO(ann, #12): the rest\n"}, ""},
		{"a binary", []string{"a.bin", "\x00 /wo" + "rk/main"}, ""},
	}
}

func sleepTrials() []trial {
	sleep := "\ttime.Sleep(time.Second)"
	imports := "\t\"testing\"\n\t\"testing/synctest\"\n\t\"time\""
	bubble := "\tsynctest.Test(t, func(t *testing.T) {\n\t" + sleep + "\n\t})"
	return []trial{
		{"asleep", []string{"a/b_test.go", body(imports, sleep)}, "a/b_test.go:10"},
		{"with a reason", []string{"a/b_test.go", body(imports, sleep+" // the kernel offers no event")}, ""},
		{"in a bubble", []string{"a/b_test.go", body(imports, bubble)}, ""},
		{"after a bubble", []string{"a/b_test.go", body(imports, bubble+"\n"+sleep)}, "a test sleeps"},
		{"in a simulation", []string{"a/b_sim_test.go", body(imports, sleep)}, ""},
		{"not a test", []string{"a/b.go", body(imports, sleep)}, ""},
	}
}

func skipTrials() []trial {
	imports := "\t\"testing\""
	return []trial{
		{"silent", []string{"a/b_test.go", body(imports, "\tt.Skip()")}, "a/b_test.go:8"},
		{"now", []string{"a/b_test.go", body(imports, "\tt.SkipNow()")}, "does not say why"},
		{"empty", []string{"a/b_test.go", body(imports, "\tt.Skipf(\"\")")}, "does not say why"},
		{"silent in a kit", []string{"a/kittest/b.go", body(imports, "\tt.Skip()")}, "does not say why"},
		{"with a reason", []string{"a/b_test.go", body(imports, "\tt.Skip(\"needs fault points\")")}, ""},
		{"because of -short", []string{"a/b_test.go", body(imports, "\tif testing.Short() {\n\t\tt.Skip()\n\t}")}, ""},
	}
}

func makefileTrials() []trial {
	return []trial{
		{"explained", []string{"Makefile", ".PHONY: unit\nunit: ## the fast tests\n\tgo test\nX := 1\nx := 2\n"}, ""},
		{"unexplained", []string{"Makefile", ".PHONY: unit\nunit:\n\tgo test\n"}, "Makefile:2"},
		{"a file's name by accident", []string{"Makefile", "unit: ## the fast tests\n\tgo test\n"}, "not declared .PHONY"},
		{"no Makefile", nil, "there is none"},
	}
}

func pathTrials() []trial {
	return []trial{
		{"there", []string{"README.md", "See `a/b.go` and [it](a/b.go#x) and [web](https://example.org/x).\n", "a/b.go", "package p\n"}, ""},
		{"named and gone", []string{"README.md", "\nSee `a/b.go`.\n"}, "README.md:2"},
		{"linked and gone", []string{"docs/x.md", "See [it](a.md).\n"}, "links to a.md"},
		{"linked from docs", []string{"docs/x.md", "See [it](../README.md).\n", "README.md", "x\n"}, ""},
	}
}

func failureTrials() []trial {
	row := "| id | what | test |\n|---|---|---|\n| P17 | a survivor rolled back | %s |\n"
	doc := func(tests string) string { return fmt.Sprintf(row, tests) }
	test := "package p\n\nfunc TestP17_SurvivorCommits() {}\n"
	return []trial{
		{"tested", []string{"docs/failures.md", doc("`a/b_test.go`"), "a/b_test.go", test}, ""},
		{"tested twice", []string{"docs/failures.md", doc("`a/b_test.go`, `a/testdata/x.txt`"), "a/b_test.go", test, "a/testdata/x.txt", "# P17\n"}, ""},
		{"tested by a scenario of that name", []string{"docs/failures.md", doc("`a/testdata/P17-final.txt`"), "a/testdata/P17-final.txt", "open\n"}, ""},
		{"untested", []string{"docs/failures.md", doc("")}, "P17 names no test"},
		{"the file is gone", []string{"docs/failures.md", doc("`a/b_test.go`")}, "docs/failures.md:3"},
		{"the test is gone", []string{"docs/failures.md", doc("`a/b_test.go`"), "a/b_test.go", "package p // P170, P1\n"}, "P17 is not mentioned in a/b_test.go"},
		{"a test without a row", []string{"docs/failures.md", doc("`a/b_test.go`"), "a/b_test.go", test + "func TestP18_Other() {}\n"}, "named after P18"},
		{"a subtest without a row", []string{"docs/failures.md", doc("`a/b_test.go`"), "a/b_test.go", test + "var _ = []string{\"P17/x\", \"P19/y\"}\n"}, "named after P19"},
		{"no document", nil, "there is none"},
		{"no rows", []string{"docs/failures.md", "# Failures\n"}, "no rows"},
	}
}

func faultPointTrials() []trial {
	const list = "internal/fault/points.txt"
	at := func(arg string) string {
		return "// Package p is one.\npackage p\n\nfunc f() { fault.Point(" + arg + ") }\n"
	}
	return []trial{
		{"listed", []string{list, "# all\na/before\n", "a/a.go", at(`"a/before"`)}, ""},
		{"not listed", []string{list, "# all\n", "a/a.go", at(`"a/before"`)}, `"a/before" is not in`},
		{"gone", []string{list, "a/before\n"}, `no code has the fault point "a/before"`},
		{"not to be listed", []string{"a/a.go", at("name")}, "named by a literal"},
		{"tests make up their own", []string{"a/a_test.go", at(`"a/before"`)}, ""},
	}
}

func mutantTrials() []trial {
	const list = "internal/mutant/mutants.txt"
	at := func(arg string) string {
		return "// Package p is one.\npackage p\n\nvar off = mutant.On(" + arg + ")\n"
	}
	return []trial{
		{"listed", []string{list, "# all\na/guard ./a TestGuard\n", "a/a.go", at(`"a/guard"`)}, ""},
		{"not listed", []string{list, "# all\n", "a/a.go", at(`"a/guard"`)}, `"a/guard" is not in`},
		{"gone", []string{list, "a/guard ./a TestGuard\n"}, `no code has the mutant "a/guard"`},
		{"not to be listed", []string{"a/a.go", at("name")}, "named by a literal"},
	}
}

func TestLoadRefusesWhatItCannotRead(t *testing.T) {
	if _, err := repolint.Load(fstest.MapFS{"a.go": {Data: []byte("package p\n")}}); err == nil {
		t.Error("loaded a tree without go.mod")
	}
	broken := fstest.MapFS{"go.mod": {Data: []byte("module m\n")}, "a.go": {Data: []byte("package\n")}}
	if _, err := repolint.Load(broken); err == nil {
		t.Error("loaded a Go file that does not parse")
	}
}
