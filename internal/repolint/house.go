package repolint

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

var (
	phony  = regexp.MustCompile(`^\.PHONY:\s*(.*)$`)
	target = regexp.MustCompile(`^([a-z][a-z-]*):([^=]|$)`)
)

// CheckMakefile finds targets that `make` alone would not print: one without "## what it
// does" on its line, or one that is not declared phony.
func CheckMakefile(repo *Repo) []Finding {
	makefile := repo.File("Makefile")
	if makefile == nil {
		return []Finding{{"makefile", "Makefile", 0, "there is none"}}
	}
	var found []Finding
	declared := map[string]bool{}
	number := 0
	for line := range strings.Lines(string(makefile.Data)) {
		number++
		line = strings.TrimRight(line, "\n")
		if m := phony.FindStringSubmatch(line); m != nil {
			for name := range strings.FieldsSeq(m[1]) {
				declared[name] = true
			}
			continue
		}
		m := target.FindStringSubmatch(line)
		switch {
		case m == nil:
		case !strings.Contains(line, "## "):
			found = append(found, Finding{"makefile", "Makefile", number, m[1] + " does not say what it does; end the line with ## and one sentence"})
		case !declared[m[1]]:
			found = append(found, Finding{"makefile", "Makefile", number, m[1] + " is not declared .PHONY on the line before"})
		}
	}
	return found
}

// named is a path in a document: backquoted, with a slash and an ending we use.
var named = regexp.MustCompile("`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+\\.(?:go|proto|md|sh|yaml|json))`")

// linked is a relative link in a document.
var linked = regexp.MustCompile(`\]\(([A-Za-z0-9_./-]+)(?:#[^)]*)?\)`)

// CheckPaths finds files that the documents at the root and in docs/ name and that do not
// exist.
func CheckPaths(repo *Repo) []Finding {
	var found []Finding
	for _, f := range repo.Files {
		if path.Ext(f.Path) != ".md" || (f.Dir() != "." && !under(f.Path, "docs")) {
			continue
		}
		number := 0
		for line := range strings.Lines(string(f.Data)) {
			number++
			for _, m := range named.FindAllStringSubmatch(line, -1) {
				if !repo.Has(m[1]) {
					found = append(found, Finding{"paths", f.Path, number, fmt.Sprintf("names %s, which does not exist", m[1])})
				}
			}
			for _, m := range linked.FindAllStringSubmatch(line, -1) {
				if !repo.Has(path.Join(f.Dir(), m[1])) {
					found = append(found, Finding{"paths", f.Path, number, fmt.Sprintf("links to %s, which does not exist", m[1])})
				}
			}
		}
	}
	return found
}

// failureRow is a row of the failures table: its id, what must not happen, and where that is
// tested.
var failureRow = regexp.MustCompile(`^\|\s*([A-Z][0-9]+)\s*\|.*\|([^|]*)\|\s*$`)

// failureTest is a test or subtest that is named after a row: TestP17_Survivor or "P17/a survivor".
var failureTest = regexp.MustCompile(`func Test([A-Z][0-9]+)_|"([A-Z][0-9]+)/`)

// CheckFailures finds rows of docs/failures.md that name no test, a file that does not exist,
// or a file that has the row's id neither in its name nor in its text: a promise whose test
// has gone. It finds tests as well that are named after a row that the table lacks.
func CheckFailures(repo *Repo) []Finding {
	const doc = "docs/failures.md"
	f := repo.File(doc)
	if f == nil {
		return []Finding{{"failures", doc, 0, "there is none: list what must not happen, and the test that would see it"}}
	}
	var found []Finding
	rows, number := map[string]bool{}, 0
	for line := range strings.Lines(string(f.Data)) {
		number++
		if strings.HasPrefix(line, "## Later") {
			break // `make failures` looks at these
		}
		m := failureRow.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		rows[m[1]] = true
		tests := backquoted.FindAllStringSubmatch(m[2], -1)
		if len(tests) == 0 {
			found = append(found, Finding{"failures", doc, number, m[1] + " names no test"})
		}
		id := regexp.MustCompile(`(^|[^A-Z0-9])` + m[1] + `([^0-9]|$)`)
		for _, t := range tests {
			file := repo.File(t[1])
			if file == nil || (!id.Match(file.Data) && !id.MatchString(t[1])) {
				found = append(found, Finding{"failures", doc, number, fmt.Sprintf("%s is not mentioned in %s", m[1], t[1])})
			}
		}
	}
	if len(rows) == 0 {
		return append(found, Finding{"failures", doc, 0, "its table has no rows"})
	}
	return append(found, testsWithoutRow(repo, rows)...)
}

// testsWithoutRow finds tests that are named after a row that is not there.
func testsWithoutRow(repo *Repo, rows map[string]bool) []Finding {
	var found []Finding
	for _, f := range repo.GoFiles() {
		if !f.Test || under(f.Dir(), "internal/repolint") { // whose tests quote others
			continue
		}
		number := 0
		for line := range strings.Lines(string(f.Data)) {
			number++
			for _, m := range failureTest.FindAllStringSubmatch(line, -1) {
				if id := m[1] + m[2]; !rows[id] {
					found = append(found, Finding{"failures", f.Path, number, fmt.Sprintf("a test is named after %s, which is no row of docs/failures.md", id)})
				}
			}
		}
	}
	return found
}
