package participant_test

import (
	"testing"

	"github.com/unisink/unisink/participant"
)

func FuzzParseBranchName(f *testing.F) {
	for _, s := range []string{
		"ns.orders.0.sink.out.7.12", "ns~2.orders.4294967295.sink.out.7.12", "ns.0190a0b0-0000-7000-8000-000000000000.out",
		"", ".", "......", "ns.orders.00.sink.out.7.12", "ns~1.a.0.b.c.1.1", "a..b", "0~02.0.0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := participant.ParseBranchName(s)
		if err != nil {
			return
		}
		if name.String() != s {
			t.Fatalf("%q is read as %+v, which is written %q", s, name, name)
		}
	})
}
