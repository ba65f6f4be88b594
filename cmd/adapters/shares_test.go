package adapters_test

import (
	"strings"
	"testing"

	"github.com/unisink/unisink/cmd/adapters"
	"github.com/unisink/unisink/processor/spec"
)

// What explain says of branches is what the adapter does: one reference to a database is one branch for all sinks there.
func TestSinksOfOneDatabaseAreExplainedAsOneBranch(t *testing.T) {
	const text = `pipeline: p
source: {name: in, file: {dir: in}}
sinks:
  - {name: a, postgres: {dsn: {env: ONE}, table: a}}
  - {name: b, postgres: {dsn: {env: ONE}, table: b}}
  - {name: c, postgres: {dsn: {env: TWO}, table: c}}
  - {name: d, file: {dir: out}}
`
	env := spec.Env{Lookup: func(name string) (string, bool) {
		t.Errorf("it looks up %s", name)
		return "", false
	}}
	doc, err := spec.Parse("p.yaml", []byte(text), env)
	if err != nil {
		t.Fatal(err)
	}
	got, err := spec.Explain(doc, adapters.Specs([]adapters.Adapter{adapters.Kafka(), adapters.Postgres(), adapters.File()}, doc))
	if err != nil {
		t.Fatal(err)
	}
	for want, n := range map[string]int{"shares the branch of a:": 1, "shares the branch of a if it leads to the same place": 1, "shares the branch": 2} {
		if strings.Count(got, want) != n {
			t.Errorf("%q is not there %d times:\n%s", want, n, got)
		}
	}
}
