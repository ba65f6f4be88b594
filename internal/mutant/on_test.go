//go:build mutants

package mutant

import (
	"os"
	"testing"
)

func TestTheEnvironmentSwitchesOneProtectionOff(t *testing.T) {
	wanted := os.Getenv(Env)
	for _, m := range Known() {
		if On(m.Name) != (m.Name == wanted) {
			t.Errorf("On(%q) = %v with %s=%q", m.Name, On(m.Name), Env, wanted)
		}
	}
}

func TestAMutantThatNobodyListsIsAMistake(t *testing.T) {
	if err := known("no/such-mutant"); err == nil {
		t.Error("took a mutant that no line of the list has")
	}
	if err := known(""); err != nil {
		t.Error(err)
	}
}
