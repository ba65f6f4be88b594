package form

import "testing"

func TestASecretsReferenceSaysWhereItIsReadAgain(t *testing.T) {
	for want, s := range map[string]Secret{
		"":             {},
		"env:PASSWORD": {from: "environment variable PASSWORD", value: "hunter2"},
		"file:/a b":    {from: "file /a b", value: "hunter2"},
	} {
		if got := s.Reference(); got != want {
			t.Errorf("%s: reference %q, want %q", s, got, want)
		}
	}
}
