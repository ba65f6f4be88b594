package repolint

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Finding is one broken rule at one place.
type Finding struct {
	Rule string
	Path string // slash-separated, from the repository's root
	Line int    // from 1; 0 when the whole file or folder is meant
	Text string // what is wrong, where, and what to do
}

// String returns the finding as "path:line: text (rule)", which editors can jump to.
func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s (%s)", f.Path, f.Text, f.Rule)
	}
	return fmt.Sprintf("%s:%d: %s (%s)", f.Path, f.Line, f.Text, f.Rule)
}

// Rule is a named check over a whole repository.
type Rule struct {
	Name  string
	Check func(*Repo) []Finding
}

// Rules returns every rule, in the order in which they are reported.
func Rules() []Rule {
	return []Rule{
		{"imports", CheckImports},
		{"third-party", CheckThirdParties},
		{"package-doc", CheckPackageDocs},
		{"design", CheckDesigns},
		{"sizes", CheckSizes},
		{"words", CheckWords},
		{"sleep", CheckSleeps},
		{"skip", CheckSkips},
		{"makefile", CheckMakefile},
		{"paths", CheckPaths},
		{"failures", CheckFailures},
		{"fault-points", CheckFaultPoints},
		{"mutants", CheckMutants},
	}
}

// File is one file of the repository.
type File struct {
	Path string
	Data []byte

	// The rest is set for Go files outside testdata alone.
	Go        *ast.File
	Fset      *token.FileSet
	Test      bool // its name ends in _test.go
	Generated bool // it says that it was generated
}

// Dir returns the folder of the file from the root, "." for the root itself.
func (f *File) Dir() string { return path.Dir(f.Path) }

// Line returns the line of a position in the file.
func (f *File) Line(p token.Pos) int { return f.Fset.Position(p).Line }

// Imported is one import of a Go file.
type Imported struct {
	Path string
	Line int
}

// Imports returns what the Go file imports.
func (f *File) Imports() []Imported {
	var all []Imported
	for _, spec := range f.Go.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has accepted it, so it is quoted well
		}
		all = append(all, Imported{Path: p, Line: f.Line(spec.Pos())})
	}
	return all
}

// Repo is a repository as the rules see it.
type Repo struct {
	Module string
	Files  []*File // by path
}

// GoFiles returns the Go files that a person wrote.
func (r *Repo) GoFiles() []*File {
	var files []*File
	for _, f := range r.Files {
		if f.Go != nil && !f.Generated {
			files = append(files, f)
		}
	}
	return files
}

// File returns the file at a path, or nil.
func (r *Repo) File(name string) *File {
	i, ok := slices.BinarySearchFunc(r.Files, name, func(f *File, name string) int { return strings.Compare(f.Path, name) })
	if !ok {
		return nil
	}
	return r.Files[i]
}

// Has reports whether there is a file at the path, or a folder with files below it.
func (r *Repo) Has(name string) bool {
	return slices.ContainsFunc(r.Files, func(f *File) bool { return under(f.Path, name) })
}

// Ours returns the part of an import path below our module, and whether it is ours at all.
func (r *Repo) Ours(importPath string) (dir string, ours bool) {
	if importPath == r.Module {
		return ".", true
	}
	return strings.CutPrefix(importPath, r.Module+"/")
}

// under reports whether a path is dir or lies below it.
func under(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}

// underAny reports whether a path is one of dirs or lies below one of them.
func underAny(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return under(name, dir) })
}

// skipped are the folders that hold no source: what git keeps, and what .gitignore names.
func skipped(name string) bool {
	switch path.Base(name) {
	case ".git", ".tools", "node_modules":
		return true
	}
	return name == "bin" || name == "dist"
}

// Load reads the repository in fsys, whose root holds go.mod. It fails on a Go file that does
// not parse.
func Load(fsys fs.FS) (*Repo, error) {
	repo := &Repo{}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && name != ".":
			return nil // removed while we were walking
		case err != nil:
			return err
		case entry.IsDir() && skipped(name):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		return repo.add(fsys, name)
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(repo.Files, func(a, b *File) int { return strings.Compare(a.Path, b.Path) })
	mod := repo.File("go.mod")
	if mod == nil {
		return nil, errors.New("no go.mod: this is not the root of the repository")
	}
	for line := range strings.Lines(string(mod.Data)) {
		if rest, ok := strings.CutPrefix(line, "module "); ok {
			repo.Module = strings.TrimSpace(rest)
		}
	}
	return repo, nil
}

// add reads one file into the repository, and parses it if it is Go.
func (r *Repo) add(fsys fs.FS, name string) error {
	data, err := fs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed while we were walking
	}
	if err != nil {
		return err
	}
	file := &File{Path: name, Data: data}
	r.Files = append(r.Files, file)
	if path.Ext(name) != ".go" || slices.Contains(strings.Split(name, "/"), "testdata") {
		return nil
	}
	file.Fset = token.NewFileSet()
	file.Go, err = parser.ParseFile(file.Fset, name, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	file.Test = strings.HasSuffix(name, "_test.go")
	file.Generated = ast.IsGenerated(file.Go)
	return nil
}

// text reports whether data looks like text: no zero byte in its beginning.
func text(data []byte) bool {
	return !bytes.Contains(data[:min(len(data), 8000)], []byte{0})
}
