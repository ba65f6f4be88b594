package repolint

import (
	"go/ast"
	"go/token"
	"strings"
)

// CheckSleeps finds tests that sleep on the real clock. A sleep is virtual, and fine, inside
// a synctest.Test call or in a file named *sim_test.go; any other needs a comment on its line
// that says why nothing else will do.
func CheckSleeps(repo *Repo) []Finding {
	var found []Finding
	for _, f := range repo.GoFiles() {
		if !f.Test || strings.HasSuffix(f.Path, "sim_test.go") {
			continue
		}
		commented := map[int]bool{}
		for _, group := range f.Go.Comments {
			for _, c := range group.List {
				commented[f.Line(c.Pos())] = true
			}
		}
		var bubbles []ast.Node
		virtual := func(p token.Pos) bool {
			for _, b := range bubbles {
				if b.Pos() <= p && p < b.End() {
					return true
				}
			}
			return false
		}
		ast.Inspect(f.Go, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch selected(call) {
			case "synctest.Test", "synctest.Run":
				bubbles = append(bubbles, call)
			case "time.Sleep":
				if line := f.Line(call.Pos()); !commented[line] && !virtual(call.Pos()) {
					found = append(found, Finding{
						"sleep", f.Path, line,
						"a test sleeps; use testing/synctest or a channel, or say on the line why not",
					})
				}
			}
			return true
		})
	}
	return found
}

// selected returns "x.Name" for a call of that form, else "".
func selected(call *ast.CallExpr) string {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return x.Name + "." + sel.Sel.Name
}

// CheckSkips finds tests that skip without a reason: no message, and no testing.Short in the
// function around.
func CheckSkips(repo *Repo) []Finding {
	var found []Finding
	for _, f := range repo.GoFiles() {
		if !f.Test && !testPackage(f.Dir()) {
			continue
		}
		for _, decl := range f.Go.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			short := false
			var silent []int
			ast.Inspect(fn, func(node ast.Node) bool {
				call, ok := node.(*ast.CallExpr)
				if !ok {
					return true
				}
				name := selected(call)
				_, method, _ := strings.Cut(name, ".")
				switch {
				case name == "testing.Short":
					short = true
				case method == "SkipNow", (method == "Skip" || method == "Skipf") && !says(call):
					silent = append(silent, f.Line(call.Pos()))
				}
				return true
			})
			if short {
				continue
			}
			for _, line := range silent {
				found = append(found, Finding{"skip", f.Path, line, "a test is skipped and does not say why"})
			}
		}
	}
	return found
}

// says reports whether a call has a first argument that is not an empty literal.
func says(call *ast.CallExpr) bool {
	if len(call.Args) == 0 {
		return false
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	return !ok || strings.Trim(lit.Value, "`\" ") != ""
}
