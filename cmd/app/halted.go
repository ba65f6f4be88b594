package app

import (
	"fmt"
	"strings"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// inDoubt counts what will end by itself, and says what will not.
func inDoubt(s *unisinkv1.ScopeStatus) string {
	text := fmt.Sprintf("%d open, %d unfinished", s.GetRoundsOpen(), s.GetUnfinished())
	if s.GetHalted() != "" {
		text += ", needs a person"
	}
	return text
}

// haltedRows say why scopes are halted.
func haltedRows(scopes []*unisinkv1.ScopeStatus) [][]string {
	rows := [][]string{{"NEEDS A PERSON", "WHAT HAPPENED"}}
	for _, s := range scopes {
		if s.GetHalted() != "" {
			rows = append(rows, []string{scopeText(s.GetScope()), s.GetHalted()})
		}
	}
	return rows
}

// haltedScopes ends a command that looked with the exit code that calls for a person, and says what to do.
func haltedScopes(scopes []*unisinkv1.ScopeStatus) error {
	var halted []*unisinkv1.ScopeStatus
	for _, s := range scopes {
		if s.GetHalted() != "" {
			halted = append(halted, s)
		}
	}
	if len(halted) == 0 {
		return nil
	}
	text := "scope " + scopeText(halted[0].GetScope()) + " needs a person: it is halted"
	if n := len(halted); n > 1 {
		text = fmt.Sprintf("%d scopes need a person: they are halted", n)
	}
	return failf(CodeHuman, "%s; %s", text, whatToDo(halted[0]))
}

// whatToDo about a halted scope. One that is halted for a branch has its choices with the transaction.
func whatToDo(s *unisinkv1.ScopeStatus) string {
	if strings.HasPrefix(s.GetHalted(), "branch ") {
		return "`unisink txn list --in-doubt` names the transaction, and `unisink txn show` what may be done"
	}
	return fmt.Sprintf("once the cause is mended, `unisink pipeline resume %s --why …` lets it go on", scopeText(s.GetScope()))
}
