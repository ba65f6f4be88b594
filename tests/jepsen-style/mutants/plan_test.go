package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/unisink/unisink/internal/mutant"
)

func TestEveryMutantComesFirstInItsTurn(t *testing.T) {
	var all []mutant.Mutant
	for pkg, n := range map[string]int{"./a": 3, "./b": 1, "./c": 5} {
		for i := range n {
			all = append(all, mutant.Mutant{Name: fmt.Sprintf("%s/%d", pkg[2:], i), Package: pkg})
		}
	}
	first := map[string]bool{}
	for turn := range 15 {
		order := plan(all, turn)
		first[order[0].Name] = true
		if len(order) != len(all) {
			t.Fatalf("turn %d has %d mutants of %d", turn, len(order), len(all))
		}
		seen := map[string]bool{}
		for i, m := range order {
			if i > 0 && order[i-1].Package != m.Package && seen[m.Package] {
				t.Errorf("turn %d comes back to package %s", turn, m.Package)
			}
			seen[m.Package] = true
		}
	}
	if len(first) != len(all) {
		t.Errorf("%d of %d mutants ever came first", len(first), len(all))
	}
	if plan(nil, 7) != nil {
		t.Error("a plan of nothing has something")
	}
}

func TestVerdictsOfMutantsThatWereNotTriedStay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mutants.json")
	if got, err := load(file); err != nil || got != nil {
		t.Fatalf("without a file: %v, %v", got, err)
	}
	before := []verdict{{Name: "a/gone", CaughtBy: "./a TestA"}, {Name: "a/old", CaughtBy: "./a TestA", AfterS: 1.5}, {Name: "b/again"}}
	now := []verdict{{Name: "b/again", CaughtBy: "./b TestB", AfterS: 0.25}, {Name: "a/new"}}
	known := []mutant.Mutant{{Name: "a/new"}, {Name: "a/old"}, {Name: "b/again"}}
	want := []verdict{{Name: "a/new"}, {Name: "a/old", CaughtBy: "./a TestA", AfterS: 1.5}, {Name: "b/again", CaughtBy: "./b TestB", AfterS: 0.25}}
	if err := save(file, merge(before, now, known)); err != nil {
		t.Fatal(err)
	}
	if got, err := load(file); err != nil || !slices.Equal(got, want) {
		t.Errorf("kept %v, %v; want %v", got, err, want)
	}
}
