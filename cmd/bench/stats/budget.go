package stats

import (
	"fmt"
	"strings"
)

// Budget is one figure beside the most that it may be.
type Budget struct {
	Of    string  `json:"of"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	OK    bool    `json:"ok"`
}

// Beside puts a figure beside its budget.
func Beside(of string, value, limit float64) Budget { return Budget{of, value, limit, value <= limit} }

// Over is what a verdict begins with that is not "ok".
const Over = "over: "

// Verdict is "ok", or what is over; "-" of no budgets.
func Verdict(budgets []Budget) string {
	if len(budgets) == 0 {
		return "-"
	}
	var over []string
	for _, b := range budgets {
		if !b.OK {
			over = append(over, fmt.Sprintf("%s %.4g > %.4g", b.Of, b.Value, b.Limit))
		}
	}
	if len(over) == 0 {
		return "ok"
	}
	return Over + strings.Join(over, ", ")
}
