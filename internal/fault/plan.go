package fault

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Env is the environment variable that holds a process's fault plan.
const Env = "UNISINK_FAULT"

// action is what a rule does.
type action int

const (
	actionUnset action = iota // a parsing mistake, never a real action
	crash
	pause
	fail
)

// String returns the word that the plan uses.
func (a action) String() string {
	switch a {
	case crash:
		return "crash"
	case pause:
		return "pause"
	case fail:
		return "error"
	case actionUnset:
	}
	return "unset"
}

// rule is one entry of a plan.
type rule struct {
	name   string
	hit    uint64 // which hit, from 1; 0 means every one
	action action
	pause  time.Duration // with action pause alone
}

// parse reads a plan; an empty one has no rules. The error says which entry is wrong and what
// an entry looks like.
func parse(plan string) ([]rule, error) {
	var rules []rule
	for entry := range strings.SplitSeq(plan, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		r, err := parseRule(entry)
		if err != nil {
			return nil, fmt.Errorf("%s: entry %q: %w; want name[@n]=crash|pause:DURATION|error", Env, entry, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// parseRule reads one entry.
func parseRule(entry string) (rule, error) {
	where, what, ok := strings.Cut(entry, "=")
	if !ok {
		return rule{}, fmt.Errorf("no action")
	}
	var r rule
	var nth string
	if r.name, nth, ok = strings.Cut(where, "@"); ok {
		n, err := strconv.ParseUint(nth, 10, 64)
		if err != nil || n == 0 {
			return rule{}, fmt.Errorf("hit %q is not a number from 1", nth)
		}
		r.hit = n
	}
	if !validName(r.name) {
		return rule{}, fmt.Errorf("%q is no point's name", r.name)
	}
	duration, isPause := strings.CutPrefix(what, "pause:")
	switch {
	case what == "crash":
		r.action = crash
	case what == "error":
		r.action = fail
	case isPause:
		d, err := time.ParseDuration(duration)
		if err != nil || d <= 0 {
			return rule{}, fmt.Errorf("%q is not a duration above zero", duration)
		}
		r.action, r.pause = pause, d
	default:
		return rule{}, fmt.Errorf("%q is no action", what)
	}
	return r, nil
}

// validName reports whether name is written as a point's name: "room/step".
func validName(name string) bool {
	if name == "" {
		return false
	}
	for _, c := range name {
		ok := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.ContainsRune("/-._", c)
		if !ok {
			return false
		}
	}
	return true
}
