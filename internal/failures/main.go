package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "failures: "+err.Error())
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("name the catalogue and the output of `go test -json`")
	}
	doc, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	tests, err := os.Open(args[1])
	if err != nil {
		return err
	}
	passed, err := read(tests)
	if err := errors.Join(err, tests.Close()); err != nil {
		return fmt.Errorf("%s: %w", args[1], err)
	}
	return report(catalogue(doc), passed, out)
}

// row of the catalogue.
type row struct {
	id string
	// later says why no test is asked for yet.
	later string
}

var (
	testedRow = regexp.MustCompile(`(?m)^\|\s*([A-Z][0-9]+)\s*\|[^|]*\|[^|]*\|[^|]*\|\s*$`)
	laterRow  = regexp.MustCompile(`(?m)^\|\s*([A-Z][0-9]+)\s*\|[^|]*\|([^|]*)\|\s*$`)
)

// catalogue reads the rows: four columns where there are tests, three where they come later.
func catalogue(doc []byte) []row {
	var rows []row
	for _, m := range testedRow.FindAllSubmatch(doc, -1) {
		rows = append(rows, row{id: string(m[1])})
	}
	for _, m := range laterRow.FindAllSubmatch(doc, -1) {
		rows = append(rows, row{id: string(m[1]), later: strings.TrimSpace(string(m[2]))})
	}
	return rows
}

// event is what is needed of a line of `go test -json`.
type event struct {
	Action, Package, Test string
}

// rowIn finds the rows that a test's name carries: O9 in "TestTorn/O9/no_leader", "TestScenarios/P24-poison".
var rowIn = regexp.MustCompile(`(?:^|[/_,-]|Test)([A-Z][0-9]{1,2})(?:$|[/_,-])`)

// read finds the tests that passed, by row. A test that was skipped has shown nothing; one that failed
// anywhere in the run counts for nothing, however often it passed.
func read(r io.Reader) (map[string][]string, error) {
	passed, failed := map[string]bool{}, map[string]bool{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var e event
			if jsonErr := json.Unmarshal(line, &e); jsonErr != nil {
				return nil, fmt.Errorf("a line is not of `go test -json`: %w", jsonErr)
			}
			name := strings.TrimPrefix(e.Package, "github.com/unisink/unisink/") + " " + e.Test
			switch {
			case e.Test == "":
			case e.Action == "pass":
				passed[name] = true
			case e.Action == "fail":
				failed[name] = true
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	byRow := map[string][]string{}
	for name := range passed {
		if failed[name] {
			continue
		}
		rest := name
		for {
			m := rowIn.FindStringSubmatchIndex(rest)
			if m == nil {
				break
			}
			id := rest[m[2]:m[3]]
			if !slices.Contains(byRow[id], name) {
				byRow[id] = append(byRow[id], name)
			}
			rest = rest[m[3]:]
		}
	}
	for _, names := range byRow {
		slices.Sort(names)
	}
	return byRow, nil
}

// report prints the rows with their tests.
func report(rows []row, passed map[string][]string, out io.Writer) error {
	if len(rows) == 0 {
		return errors.New("the catalogue has no rows")
	}
	var errs []error
	for _, r := range rows {
		tests := passed[r.id]
		switch {
		case r.later != "" && len(tests) > 0:
			errs = append(errs, fmt.Errorf("row %s is said to be later work, and %s passed: move it", r.id, tests[0]))
		case r.later != "":
			fmt.Fprintf(out, "%-4s later: %s\n", r.id, r.later)
		case len(tests) == 0:
			errs = append(errs, fmt.Errorf("row %s: no test that carries it passed in this run", r.id))
			fmt.Fprintf(out, "%-4s MISSING\n", r.id)
		default:
			fmt.Fprintf(out, "%-4s %d: %s\n", r.id, len(tests), leaves(tests))
		}
	}
	return errors.Join(errs...)
}

// leaves leaves out tests that only hold others, and shows three at most.
func leaves(tests []string) string {
	var out []string
	for i, t := range tests {
		if i+1 < len(tests) && strings.HasPrefix(tests[i+1], t+"/") {
			continue
		}
		out = append(out, t)
	}
	const most = 3
	if len(out) > most {
		return strings.Join(out[:most], ", ") + fmt.Sprintf(" and %d more", len(out)-most)
	}
	return strings.Join(out, ", ")
}
