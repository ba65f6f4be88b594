package mutant

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryLineIsAMutantOrAComment(t *testing.T) {
	name := regexp.MustCompile(`^[a-z0-9._-]+(/[a-z0-9._-]+)+$`)
	lines := 0
	for line := range strings.Lines(listed) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		lines++
		fields := strings.Fields(line)
		if len(fields) != 3 {
			t.Errorf("%q is not: name package pattern", line)
			continue
		}
		if !name.MatchString(fields[0]) {
			t.Errorf("%q is no mutant's name", fields[0])
		}
		if !strings.HasPrefix(fields[1], "./") {
			t.Errorf("%q is no package of this repository", fields[1])
		}
		if _, err := regexp.Compile(fields[2]); err != nil {
			t.Error(err)
		}
	}
	all := Known()
	if len(all) != lines {
		t.Errorf("Known() has %d mutants, the list %d", len(all), lines)
	}
	byName := func(a, b Mutant) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(all, byName) {
		t.Error("the list is not sorted by name")
	}
	if unique := slices.CompactFunc(slices.Clone(all), func(a, b Mutant) bool { return a.Name == b.Name }); len(unique) != len(all) {
		t.Error("a name stands twice in the list")
	}
}
