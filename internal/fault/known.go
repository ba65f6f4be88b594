package fault

import (
	_ "embed"
	"strings"
)

//go:embed points.txt
var listed string

// Known returns the names of all points that stand in the code, sorted, in every build. Whether
// a process can reach them is another matter: they do nothing without -tags faults.
func Known() []string {
	var names []string
	for line := range strings.Lines(listed) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			names = append(names, line)
		}
	}
	return names
}
