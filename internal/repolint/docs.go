package repolint

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// packages returns the folders that hold a package which a person wrote, with its files that
// are not tests.
func packages(repo *Repo) map[string][]*File {
	all := map[string][]*File{}
	for _, f := range repo.GoFiles() {
		if !f.Test {
			all[f.Dir()] = append(all[f.Dir()], f)
		}
	}
	return all
}

// CheckPackageDocs finds packages without a package comment, with more than one, with one
// that does not begin as godoc wants it, or with another package's words.
func CheckPackageDocs(repo *Repo) []Finding {
	var found []Finding
	said := map[string]string{}
	all := packages(repo)
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		var where []string
		comment, name := "", ""
		for _, f := range all[dir] {
			name = f.Go.Name.Name
			if f.Go.Doc != nil && strings.TrimSpace(f.Go.Doc.Text()) != "" {
				where = append(where, path.Base(f.Path))
				comment = f.Go.Doc.Text()
			}
		}
		switch want := begins(dir, name); {
		case len(where) == 0:
			found = append(found, Finding{"package-doc", dir, 0, "no package comment; write doc.go"})
		case len(where) > 1:
			found = append(found, Finding{
				"package-doc", dir, 0,
				fmt.Sprintf("package comments in %s; keep one, in doc.go", strings.Join(where, " and ")),
			})
		case !strings.HasPrefix(comment, want):
			found = append(found, Finding{
				"package-doc", path.Join(dir, where[0]), 0,
				fmt.Sprintf("the package comment does not begin with %q", want),
			})
		case said[comment] != "":
			found = append(found, Finding{"package-doc", dir, 0, "has the package comment of " + said[comment]})
		default:
			said[comment] = dir
		}
	}
	return found
}

// begins returns how the comment of a package begins.
func begins(dir, name string) string {
	if name == "main" {
		return "Command " + path.Base(dir) + " "
	}
	return "Package " + name + " "
}

// CheckDesigns finds top-level rooms without a DESIGN.md.
func CheckDesigns(repo *Repo) []Finding {
	var found []Finding
	for _, dir := range []string{"coordinator", "participant", "adapters", "processor", "cmd"} {
		if repo.Has(dir) && !repo.Has(dir+"/DESIGN.md") {
			found = append(found, Finding{"design", dir, 0, "no DESIGN.md: purpose, invariants, assumptions, failures, decisions"})
		}
	}
	return found
}
