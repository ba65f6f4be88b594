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

// cornersOut says of a corner's point why a run has not been led there.
func (c Config) cornersOut() string {
	if c.Sinks == allSinks {
		return "the corners belong to -sinks " + kafkaAndFiles
	}
	return "the corners were left out, as -acts and -only ask for"
}

// points are the fault points of the binary, by what a run does about them.
type points struct {
	led      []string          // each run is led there, with every means
	cornered []string          // only the corners lead there
	others   map[string]string // this form of a run does not come by, and why
}

// knownPoints asks the binary for its fault points, and sorts them.
func knownPoints(ctx context.Context, c Config) (p points, err error) {
	out, err := exec.CommandContext(ctx, c.FaultsBin, "dev", "faults", "-o", "json").Output()
	if err != nil {
		return p, fmt.Errorf("ask %s for its fault points: %w", c.FaultsBin, err)
	}
	var names []string
	if err := json.Unmarshal(out, &names); err != nil {
		return p, fmt.Errorf("read the list of fault points: %w", err)
	}
	p = c.sort(names)
	if len(p.led) == 0 {
		return p, fmt.Errorf("%s names no fault point that begins with %q and that this run comes by", c.FaultsBin, c.Only)
	}
	return p, nil
}

// sort sorts the names of fault points.
func (c Config) sort(names []string) points {
	p := points{others: map[string]string{}}
	for _, name := range names {
		comesBy, why := c.reaches(name)
		switch {
		case !comesBy:
			p.others[name] = why
		case slices.Contains(cornerPoints(), name):
			p.cornered = append(p.cornered, name)
		case strings.HasPrefix(name, c.Only):
			p.led = append(p.led, name)
		}
	}
	return p
}

var crashLine = regexp.MustCompile(`(?m)^fault: crash at (\S+), hit \d+$`)

// tornLine is what the adapter logs when it writes the markers that a torn commit lacks.
const tornLine = `"msg":"a transaction is torn; its missing markers are being written"`

// finishedLine is what a resolver logs when it has ended a branch.
const finishedLine = `"msg":"finished what its process did not"`

// count counts the lines of a log that say something.
func count(log, line string) (int, error) {
	data, err := os.ReadFile(log)
	if err != nil {
		return 0, fmt.Errorf("read a log: %w", err)
	}
	return bytes.Count(data, []byte(line)), nil
}

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
