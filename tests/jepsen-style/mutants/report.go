package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/unisink/unisink/internal/mutant"
)

// merge adds the verdicts of this run to those of earlier ones, drops mutants that are known no
// more, and sorts by name.
func merge(before, now []verdict, known []mutant.Mutant) []verdict {
	out := slices.Clone(now)
	for _, v := range before {
		same := func(o verdict) bool { return o.Name == v.Name }
		listed := func(m mutant.Mutant) bool { return m.Name == v.Name }
		if !slices.ContainsFunc(now, same) && slices.ContainsFunc(known, listed) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b verdict) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// load reads what earlier runs found; nothing when there is no such file.
func load(name string) ([]verdict, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []verdict
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s is not what this command writes; remove it: %w", name, err)
	}
	return all, nil
}

// save writes one mutant a line, so that a change is one line too.
func save(name string, all []verdict) error {
	text := []byte("[\n")
	for i, v := range all {
		line, err := json.Marshal(v)
		if err != nil {
			return err
		}
		text = append(append(text, "  "...), line...)
		if i < len(all)-1 {
			text = append(text, ',')
		}
		text = append(text, '\n')
	}
	return os.WriteFile(name, append(text, "]\n"...), 0o644)
}

// tell prints how the run ended and reports whether it is green.
func tell(out io.Writer, tried []verdict, known int) bool {
	var survivors []verdict
	for _, v := range tried {
		if v.CaughtBy == "" {
			survivors = append(survivors, v)
		}
	}
	fmt.Fprintf(out, "\n%d of %d mutants tried, %d caught, %d survived\n", len(tried), known, len(tried)-len(survivors), len(survivors))
	for _, v := range survivors {
		fmt.Fprintf(out, "  %s: %s\n    repeat: go run ./tests/jepsen-style/mutants -only %s\n", v.Name, v.why, v.Name)
	}
	return len(tried) > 0 && len(survivors) == 0
}
