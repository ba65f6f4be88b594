package verify_test

import (
	"slices"
	"testing"

	"github.com/unisink/unisink/processor/verify"
)

func TestCasesAreInTheOrderThatAPersonCounts(t *testing.T) {
	want := []string{"", "a", "out/0 offset 1", "out/0 offset 2", "out/0 offset 10", "out/0 offset 0010", "out/1 offset 9", "out/10 offset 0", "z"}
	var cases []verify.Case
	for i := range want {
		cases = append(cases, verify.Case{Key: want[(i*4+3)%len(want)]}) // 4 and 9 have no common divisor: each once
	}
	var got []string
	for _, x := range verify.Unknowable(cases...).Undeterminable {
		got = append(got, x.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
