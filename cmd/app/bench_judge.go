package app

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/cmd/bench/stats"
	"github.com/unisink/unisink/internal/plural"
)

func checkFlag() cli.Flag {
	return &cli.BoolFlag{Name: "check", Usage: "end with exit code 10 when a budget is missed; without, budgets are shown alone"}
}

// judged is what a measurement says by its exit code. What writers were told as an error always counts, and a budget
// that is missed where --check is given.
func judged(c *cli.Context, failures int, budgets ...[]stats.Budget) error {
	if failures > 0 {
		return failf(CodeUnhealthy, "writers were told %s while it was measured", plural.Of(failures, "error"))
	}
	if !c.Bool("check") {
		return nil
	}
	var over []string
	for _, b := range budgets {
		if v := stats.Verdict(b); strings.HasPrefix(v, stats.Over) {
			over = append(over, strings.TrimPrefix(v, stats.Over))
		}
	}
	if len(over) > 0 {
		return withCode(CodeUnhealthy, fmt.Errorf("over budget: %s", strings.Join(over, "; ")))
	}
	return nil
}

// budgetsOf are those of each row.
func budgetsOf[R any](rows []R, of func(*R) []stats.Budget) [][]stats.Budget {
	out := make([][]stats.Budget, len(rows))
	for i := range rows {
		out[i] = of(&rows[i])
	}
	return out
}
