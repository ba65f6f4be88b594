package repolint

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// faultList is where the names of all fault points stand.
const faultList = "internal/fault/points.txt"

// CheckFaultPoints compares the fault points in the code with the list of them, from which tests
// take where to crash. A point that is not listed would never be crashed at, and nobody would see.
func CheckFaultPoints(repo *Repo) []Finding {
	var found []Finding
	used := map[string]bool{}
	for _, f := range repo.GoFiles() {
		if f.Test || f.Dir() == "internal/fault" {
			continue
		}
		ast.Inspect(f.Go, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if s := selected(call); s != "fault.Point" && s != "fault.Err" {
				return true
			}
			name, ok := literal(call)
			if !ok {
				found = append(found, Finding{"fault-points", f.Path, f.Line(call.Pos()), "a fault point is named by a literal, so that it can be listed"})
			}
			if ok && !used[name] {
				used[name] = true
				if !slices.Contains(listedPoints(repo), name) {
					found = append(found, Finding{"fault-points", f.Path, f.Line(call.Pos()), fmt.Sprintf("the fault point %q is not in %s; add it there", name, faultList)})
				}
			}
			return true
		})
	}
	for _, name := range listedPoints(repo) {
		if !used[name] {
			found = append(found, Finding{"fault-points", faultList, 0, fmt.Sprintf("no code has the fault point %q; remove it there", name)})
		}
	}
	return found
}

// literal returns the one argument of a call if it is a string literal.
func literal(call *ast.CallExpr) (string, bool) {
	if len(call.Args) != 1 {
		return "", false
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	name, err := strconv.Unquote(lit.Value)
	return name, err == nil
}

func listedPoints(repo *Repo) []string {
	file := repo.File(faultList)
	if file == nil {
		return nil
	}
	var names []string
	for line := range strings.Lines(string(file.Data)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			names = append(names, line)
		}
	}
	return names
}
