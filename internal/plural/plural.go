// Package plural writes numbers of things for people: "1 record", "2 records".
package plural

import (
	"fmt"
	"strings"
)

// Of is n with the name of the thing, in the plural unless n is 1.
func Of[N int | int32 | int64 | uint32 | uint64](n N, thing string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(thing, "nch"), strings.HasSuffix(thing, "s"):
		thing += "es"
	default:
		thing += "s"
	}
	return fmt.Sprint(n, " ", thing)
}
