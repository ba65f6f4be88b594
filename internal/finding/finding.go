package finding

import (
	"fmt"
	"slices"
)

// Severity of a finding.
type Severity string

// The severities, mildest first.
const (
	// Fine: found as wanted.
	Fine Severity = "ok"
	// Note: it works, and one should know; or it could not be looked at.
	Note Severity = "note"
	// Warning: it works until something fails.
	Warning Severity = "warning"
	// Wrong: it cannot work.
	Wrong Severity = "error"
)

// Finding is one setting that was looked at.
type Finding struct {
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // "topic totals", "the server", "role etl"
	Setting  string   `json:"setting"`
	Found    string   `json:"found"`
	Wanted   string   `json:"wanted"`
	Why      string   `json:"why,omitempty"` // unless it is fine
	// Passes: it is wrong now, and may be right in a moment without anybody's help.
	Passes bool `json:"-"`
}

// Sentence says the finding in one.
func (f Finding) Sentence() string {
	s := fmt.Sprintf("%s of %s is %s, and should be %s", f.Setting, f.Subject, f.Found, f.Wanted)
	if f.Why != "" {
		s += ": " + f.Why
	}
	return s
}

// Judged is a finding that is fine if ok, else bad and because of why.
func Judged(ok bool, bad Severity, f Finding) Finding {
	if f.Severity = bad; ok {
		f.Severity, f.Why = Fine, ""
	}
	return f
}

// Unknown is a finding about what could not be looked at.
func Unknown(subject, setting, wanted string, err error) Finding {
	return Finding{Severity: Note, Subject: subject, Setting: setting, Found: "not known", Wanted: wanted, Why: "it could not be asked for: " + err.Error()}
}

// Sort puts what is worst first, in place, and keeps the order of what is equally bad.
func Sort(found []Finding) {
	order := []Severity{Wrong, Warning, Note, Fine}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
	})
}

// Forbids returns the first finding with which nothing can work. What may pass by itself, as a broker that is
// starting does, is none: it is waited for.
func Forbids(found []Finding) (Finding, bool) {
	i := slices.IndexFunc(found, func(f Finding) bool { return f.Severity == Wrong && !f.Passes })
	if i < 0 {
		return Finding{}, false
	}
	return found[i], true
}

// Unwell counts what is not as it should be.
func Unwell(found []Finding) int {
	n := 0
	for _, f := range found {
		if f.Severity == Warning || f.Severity == Wrong {
			n++
		}
	}
	return n
}
