package repolint

import (
	"bytes"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Limits. Past one, split, or name the thing in a paragraph "Sizes" of the room's DESIGN.md,
// with the reason.
const (
	maxFileLines    = 500
	maxFuncLines    = 60
	maxFields       = 15
	maxMethods      = 8
	maxPackageLines = 2500
)

// CheckSizes finds what has outgrown the limits. A file of tests has a limit too; what is in
// it, tables above all, has none. Generated files have none at all.
func CheckSizes(repo *Repo) []Finding {
	allowed := sizesByRoom(repo)
	var found []Finding
	report := func(f *File, line int, names []string, format string, args ...any) {
		if !allowed.covers(f.Path, names) {
			found = append(found, Finding{"sizes", f.Path, line, fmt.Sprintf(format, args...) +
				"; split it, or give the reason under \"Sizes\" in the room's DESIGN.md"})
		}
	}
	for _, f := range repo.GoFiles() {
		if n := lines(f); n > maxFileLines {
			report(f, 0, []string{path.Base(f.Path), f.Path}, "%d lines, limit %d", n, maxFileLines)
		}
		if f.Test {
			continue
		}
		for _, decl := range f.Go.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := f.Line(fn.End()) - f.Line(fn.Pos()) + 1; n > maxFuncLines {
				report(f, f.Line(fn.Pos()), funcNames(fn), "func %s has %d lines, limit %d", funcNames(fn)[0], n, maxFuncLines)
			}
		}
		ast.Inspect(f.Go, func(node ast.Node) bool {
			spec, ok := node.(*ast.TypeSpec)
			if !ok {
				return true
			}
			name := []string{spec.Name.Name}
			switch t := spec.Type.(type) {
			case *ast.StructType:
				if n := members(t.Fields); n > maxFields {
					report(f, f.Line(spec.Pos()), name, "struct %s has %d fields, limit %d", name[0], n, maxFields)
				}
			case *ast.InterfaceType:
				if n := members(t.Methods); n > maxMethods {
					report(f, f.Line(spec.Pos()), name, "interface %s has %d methods, limit %d", name[0], n, maxMethods)
				}
			}
			return true
		})
	}
	all := packages(repo)
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		sum := 0
		for _, f := range all[dir] {
			sum += lines(f)
		}
		if sum > maxPackageLines {
			report(all[dir][0], 0, []string{path.Base(dir), dir}, "package %s has %d lines without its tests, limit %d", dir, sum, maxPackageLines)
		}
	}
	return found
}

func lines(f *File) int { return bytes.Count(f.Data, []byte("\n")) }

// members counts the names of a field list; what is embedded counts once.
func members(list *ast.FieldList) int {
	n := 0
	for _, field := range list.List {
		n += max(1, len(field.Names))
	}
	return n
}

// funcNames returns "Type.Method" and "Method", or the function's name alone.
func funcNames(fn *ast.FuncDecl) []string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return []string{fn.Name.Name}
	}
	recv := fn.Recv.List[0].Type
	for {
		switch t := recv.(type) {
		case *ast.StarExpr:
			recv = t.X
			continue
		case *ast.IndexExpr:
			recv = t.X
			continue
		case *ast.IndexListExpr:
			recv = t.X
			continue
		case *ast.Ident:
			return []string{t.Name + "." + fn.Name.Name, fn.Name.Name}
		}
		return []string{fn.Name.Name}
	}
}

// exceptions are the names that each room's DESIGN.md gives under "Sizes", by room.
type exceptions map[string][]string

var (
	sizesStart = regexp.MustCompile(`^(#+\s+|[-*]\s+)?(\*\*|_)?Sizes\b`)
	backquoted = regexp.MustCompile("`([^`]+)`")
)

// sizesByRoom reads the paragraph or section "Sizes" of every DESIGN.md: a paragraph ends at
// an empty line, a section (begun by a heading) at the next heading.
func sizesByRoom(repo *Repo) exceptions {
	all := exceptions{}
	for _, f := range repo.Files {
		if path.Base(f.Path) != "DESIGN.md" {
			continue
		}
		inside, section := false, false
		for line := range strings.Lines(string(f.Data)) {
			trimmed := strings.TrimSpace(line)
			switch {
			case sizesStart.MatchString(trimmed):
				inside, section = true, strings.HasPrefix(trimmed, "#")
			case strings.HasPrefix(trimmed, "#"), trimmed == "" && !section:
				inside = false
			}
			if !inside {
				continue
			}
			for _, m := range backquoted.FindAllStringSubmatch(line, -1) {
				all[f.Dir()] = append(all[f.Dir()], strings.TrimRight(m[1], "/()"))
			}
		}
	}
	return all
}

// covers reports whether a room around the file names one of names, by itself or by its path
// from the room.
func (e exceptions) covers(file string, names []string) bool {
	for dir := path.Dir(file); ; dir = path.Dir(dir) {
		for _, allowed := range e[dir] {
			for _, name := range names {
				if allowed == name || path.Join(dir, allowed) == name {
					return true
				}
			}
		}
		if dir == "." {
			return false
		}
	}
}
