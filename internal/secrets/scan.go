package secrets

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Scan looks for planted secrets in files, in all files of folders, and in standard input for "-". What `go test -json` wrote is
// taken apart: what one test printed is read as one text. It prints where each secret stands, or how much was looked at and what
// was planted. It is an error that one was found, that none was planted (with all: that one of the list was not), or that
// something could not be read.
func Scan(paths []string, all bool, in io.Reader, out io.Writer) error {
	s := scan{texts: map[string]*text{}}
	for _, p := range paths {
		if err := s.path(p, in); err != nil {
			return fmt.Errorf("look for secrets: %w", err)
		}
	}
	return s.report(all, out)
}

// text is what one test printed, or one file.
type text struct {
	all    []byte
	starts []start
}

// start says that what begins here is told by this line of the file.
type start struct{ at, line int }

// lineAt is the file's line that tells of a byte; 0 if the text is the file itself.
func (t *text) lineAt(at int) int {
	line := 0
	for _, s := range t.starts {
		if s.at > at {
			break
		}
		line = s.line
	}
	return line
}

type scan struct {
	texts map[string]*text // by where they come from
}

func (s *scan) path(p string, in io.Reader) error {
	if p == "-" {
		all, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		return s.content("standard input", all)
	}
	return filepath.WalkDir(p, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || name != p && !e.Type().IsRegular() {
			return err
		}
		all, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return s.content(name, all)
	})
}

// event is what is needed of a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

// content takes a file in.
func (s *scan) content(name string, all []byte) error {
	first, _, _ := bytes.Cut(all, []byte("\n"))
	var e event
	if err := json.Unmarshal(first, &e); err != nil || e.Action == "" || e.Package == "" {
		s.texts[name] = &text{all: all}
		return nil
	}
	number := 0
	for line := range bytes.Lines(all) {
		number++
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s:%d: this is no line of `go test -json`, as the first is: %w", name, number, err)
		}
		if e.Output == "" {
			continue
		}
		where := strings.TrimSuffix(name+": "+strings.TrimPrefix(e.Package, "github.com/unisink/unisink/")+" "+e.Test, " ")
		t := s.texts[where]
		if t == nil {
			t = &text{}
			s.texts[where] = t
		}
		t.starts = append(t.starts, start{len(t.all), number})
		t.all = append(t.all, e.Output...)
	}
	return nil
}

func (s *scan) report(all bool, out io.Writer) error {
	used := map[string]bool{}
	size, leaks := 0, 0
	for _, where := range slices.Sorted(maps.Keys(s.texts)) {
		t := s.texts[where]
		size += len(t.all)
		for _, m := range planted.FindAllSubmatch(t.all, -1) {
			used[string(m[1])] = true
		}
		for _, f := range find(t.all) {
			leaks++
			number, line := lineOf(t.all, f.at)
			told := ""
			if l := t.lineAt(f.at); l > 0 {
				told = fmt.Sprintf(" (line %d of the file)", l)
			}
			fmt.Fprintf(out, "%s, line %d%s: %s: %s\n", where, number, told, f.encoding, line)
		}
	}
	var errs []error
	if leaks > 0 {
		errs = append(errs, fmt.Errorf("planted secrets are shown in %d places", leaks))
	}
	if len(used) == 0 {
		errs = append(errs, fmt.Errorf("no secret was planted in %d outputs of %d bytes, so that none is seen means nothing", len(s.texts), size))
	}
	if all {
		for _, n := range names {
			if !used[n] {
				errs = append(errs, fmt.Errorf("no test planted %s", n))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "no secret in %d outputs of %d bytes; %d were planted: %s\n", len(s.texts), size, len(used), strings.Join(slices.Sorted(maps.Keys(used)), ", "))
	return err
}
