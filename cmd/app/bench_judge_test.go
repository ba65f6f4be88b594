package app

import (
	"io"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/cmd/bench/stats"
)

// A budget is missed for whoever asks; what writers were told as an error is always.
func TestAMeasurementIsJudgedByItsExitCode(t *testing.T) {
	ok, over := []stats.Budget{stats.Beside("p50", 1, 2)}, []stats.Budget{stats.Beside("p50", 1, 2), stats.Beside("p99", 3, 2)}
	for name, c := range map[string]struct {
		args     []string
		failures int
		budgets  [][]stats.Budget
		want     string // "": exit code 0
	}{
		"within":          {args: []string{"--check"}, budgets: [][]stats.Budget{ok, nil}},
		"over, shown":     {budgets: [][]stats.Budget{ok, over}},
		"over, checked":   {args: []string{"--check"}, budgets: [][]stats.Budget{ok, over, over}, want: "over budget: p99 3 > 2; p99 3 > 2"},
		"errors":          {failures: 2, budgets: [][]stats.Budget{ok}, want: "writers were told 2 errors while it was measured"},
		"errors, checked": {args: []string{"--check"}, failures: 2, budgets: [][]stats.Budget{over}, want: "writers were told 2 errors while it was measured"},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			measure := &cli.App{
				Writer: io.Discard, ErrWriter: io.Discard, Flags: []cli.Flag{checkFlag()},
				Action: func(ctx *cli.Context) error { err = judged(ctx, c.failures, c.budgets...); return nil },
			}
			if bad := measure.Run(append([]string{"measure"}, c.args...)); bad != nil {
				t.Fatal(bad)
			}
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%v, want none", err)
			case c.want != "" && (err == nil || err.Error() != c.want || codeOf(err) != CodeUnhealthy):
				t.Errorf("%v, want %q with exit code %d", err, c.want, CodeUnhealthy)
			}
		})
	}
}
