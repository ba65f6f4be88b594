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

// elsewhere are points that a run of this pipeline cannot be made to reach, by the beginning of
// their name, and who crashes there. Every run carries one of them in its plan all the same, for
// chance leads to some.
func elsewhere() map[string]string {
	return map[string]string{
		"kafka/before-repair":    "a broker that dies at the right moment tears a commit, but cannot be made to; the tests of adapters/kafka crash there",
		"kafka/after-repair":     "a broker that dies at the right moment tears a commit, but cannot be made to; the tests of adapters/kafka crash there",
		"kafka/before-loss-note": "retention deletes nothing in this run; the tests of adapters/kafka crash there",
		"kafka/after-loss-note":  "retention deletes nothing in this run; the tests of adapters/kafka crash there",
	}
}

// knownPoints asks the binary for its fault points, and sets those aside that cannot be reached.
func knownPoints(ctx context.Context, bin, only string) (reachable []string, other map[string]string, err error) {
	out, err := exec.CommandContext(ctx, bin, "dev", "faults", "-o", "json").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("ask %s for its fault points: %w", bin, err)
	}
	var names []string
	if err := json.Unmarshal(out, &names); err != nil {
		return nil, nil, fmt.Errorf("read the list of fault points: %w", err)
	}
	other = map[string]string{}
	for _, name := range names {
		why := ""
		for prefix, reason := range elsewhere() {
			if strings.HasPrefix(name, prefix) {
				why = reason
			}
		}
		switch {
		case why != "":
			other[name] = why
		case strings.HasPrefix(name, only):
			reachable = append(reachable, name)
		}
	}
	if len(reachable) == 0 {
		return nil, nil, fmt.Errorf("%s names no fault point that begins with %q", bin, only)
	}
	return reachable, other, nil
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
