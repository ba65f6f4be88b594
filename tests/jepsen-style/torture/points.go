package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// notReached says of a corner's point why a run has not been led there.
const notReached = "the corners were left out, as -acts and -only ask for"

// knownPoints asks the binary for its fault points, and sets those aside that only the corners lead to.
func knownPoints(ctx context.Context, bin, only string) (reachable, cornered []string, err error) {
	out, err := exec.CommandContext(ctx, bin, "dev", "faults", "-o", "json").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("ask %s for its fault points: %w", bin, err)
	}
	var names []string
	if err := json.Unmarshal(out, &names); err != nil {
		return nil, nil, fmt.Errorf("read the list of fault points: %w", err)
	}
	for _, name := range names {
		switch {
		case slices.Contains(cornerPoints(), name):
			cornered = append(cornered, name)
		case strings.HasPrefix(name, only):
			reachable = append(reachable, name)
		}
	}
	if len(reachable) == 0 {
		return nil, nil, fmt.Errorf("%s names no fault point that begins with %q", bin, only)
	}
	return reachable, cornered, nil
}

var crashLine = regexp.MustCompile(`(?m)^fault: crash at (\S+), hit \d+$`)

// tornLine is what the adapter logs when it writes the markers that a torn commit lacks.
const tornLine = `"msg":"a transaction is torn; its missing markers are being written"`

// crashes counts the crashes that a pipeline's log shows, by point, and the torn commits.
func crashes(log string) (_ map[string]int, torn int, err error) {
	data, err := os.ReadFile(log)
	if err != nil {
		return nil, 0, fmt.Errorf("read the pipeline's log: %w", err)
	}
	count := map[string]int{}
	for _, m := range crashLine.FindAllSubmatch(data, -1) {
		count[string(bytes.Clone(m[1]))]++
	}
	return count, bytes.Count(data, []byte(tornLine)), nil
}

func missing(want []string, have map[string]int) (left []string) {
	for _, p := range want {
		if have[p] == 0 {
			left = append(left, p)
		}
	}
	slices.Sort(left)
	return left
}
