package app

import (
	"fmt"
	"testing"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func TestAStopInOrderIsToldFromOneThatMayHaveLeftWork(t *testing.T) {
	point := func(generation, n uint64, final bool) *unisinkv1.KeptRestorePoint {
		return &unisinkv1.KeptRestorePoint{Epoch: &unisinkv1.Epoch{Generation: generation, N: n}, Final: final}
	}
	for _, c := range []struct {
		what  string
		scope *unisinkv1.ScopeStatus
		want  bool
	}{
		{"stopped", &unisinkv1.ScopeStatus{Generation: 7, Final: 3, RestorePoints: []*unisinkv1.KeptRestorePoint{point(7, 2, false), point(7, 3, true)}}, true},
		{"killed", &unisinkv1.ScopeStatus{Generation: 7, Final: 3, RestorePoints: []*unisinkv1.KeptRestorePoint{point(7, 3, false)}}, false},
		{"killed at once after a stop", &unisinkv1.ScopeStatus{Generation: 8, RestorePoints: []*unisinkv1.KeptRestorePoint{point(7, 3, true)}}, false},
		{"open", &unisinkv1.ScopeStatus{Generation: 7, Final: 3, Open: true, RestorePoints: []*unisinkv1.KeptRestorePoint{point(7, 3, true)}}, false},
		{"unproven", &unisinkv1.ScopeStatus{Generation: 7, Final: 3, Unfinished: 1, RestorePoints: []*unisinkv1.KeptRestorePoint{point(7, 3, true)}}, false},
	} {
		if got := stoppedInOrder(c.scope); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}

func TestAResourceIsQuietWhereAllThatOweWereStoppedInOrder(t *testing.T) {
	used := func(name string, debts uint32, by ...string) *unisinkv1.ResourceStatus {
		return &unisinkv1.ResourceStatus{Text: name, Debts: debts, UsedBy: by}
	}
	unlooked, quiet := owing([]*unisinkv1.ResourceStatus{
		used("quiet", 1, "a/0 main out"), used("killed", 1, "b/0 main out"), used("both", 2, "a/0 main out", "b/0 main out"),
		used("one owes", 1, "a/0 main out", "c/0 main out"), used("nobody owes", 0, "c/0 main out"), used("nobody is known", 1),
	}, map[string]bool{"a/0": true, "b/0": false})
	if got := fmt.Sprint(unlooked, quiet); got != "[killed both nobody is known] [quiet one owes]" {
		t.Error(got)
	}
}
