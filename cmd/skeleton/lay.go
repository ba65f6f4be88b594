package skeleton

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

//go:embed both full four
var files embed.FS

// Plan says what to lay.
type Plan struct {
	// Name is the adapter's kind, as a pipeline's file says it.
	Name string
	// Dir is where the files go; it does not exist, or is empty.
	Dir string
	// Module is the path of the new module.
	Module string
	// Four: a sink in four functions; else the full contract.
	Four bool
	// Version of unisink that it is built with, and Source, a checkout to take in its place; "": none.
	Version, Source string
}

// ErrRefused is wrapped by what is wrong with a plan: nothing was written.
var ErrRefused = errors.New("nothing is written")

var (
	nameForm   = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}$`)
	moduleForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~/-]*$`)
)

// Lay writes the files and returns their names, sorted. It never writes over a file.
func Lay(p Plan) ([]string, error) {
	if !nameForm.MatchString(p.Name) {
		return nil, fmt.Errorf("%w: the name %q becomes a key in files: small letters and digits, beginning with a letter, at most 32", ErrRefused, p.Name)
	}
	if !moduleForm.MatchString(p.Module) {
		return nil, fmt.Errorf("%w: %q is no path of a Go module", ErrRefused, p.Module)
	}
	there, err := os.ReadDir(p.Dir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	case len(there) > 0:
		return nil, fmt.Errorf("%w: the directory %s is not empty; name another with --dir", ErrRefused, p.Dir)
	}
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return nil, err
	}
	form := "full"
	if p.Four {
		form = "four"
	}
	var names []string
	for _, from := range []string{"both", form} {
		laid, err := p.layAll(from)
		if err != nil {
			return nil, fmt.Errorf("lay the skeleton in %s: %w", p.Dir, err)
		}
		names = append(names, laid...)
	}
	slices.Sort(names)
	return names, nil
}

func (p Plan) layAll(from string) ([]string, error) {
	all, err := files.ReadDir(from)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range all {
		name := strings.TrimSuffix(f.Name(), ".tmpl")
		if err := p.lay(path.Join(from, f.Name()), name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

func (p Plan) lay(from, name string) error {
	t, err := template.ParseFS(files, from)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(p.Dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(t.Execute(f, p), f.Close())
}
