package postgres

import (
	"regexp"
	"strconv"
)

// copyLine finds the place in the server's context of an error of COPY: "COPY totals, line 17, column amount: ...".
var copyLine = regexp.MustCompile(`(?m)^COPY .*?, line (\d+)(?:, column ("(?:[^"]|"")*"|[^:]+))?`)

// copied returns the line, from 1, and the column that a COPY failed at; 0 and "" where the context does not say.
func copied(where string) (line int, column string) {
	m := copyLine.FindStringSubmatch(where)
	if m == nil {
		return 0, ""
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, ""
	}
	return n, m[2]
}
