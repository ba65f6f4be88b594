package form

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Mistake is one thing that is wrong with a specification.
type Mistake struct {
	File string
	At   Pos
	// Path of the field: "sinks[1].kafka.topic"; empty: the whole file.
	Path string
	// Text says what is wrong and what to do.
	Text string
}

// Error is "file:line:column: path: text"; what is not known is left out.
func (m Mistake) Error() string {
	var b strings.Builder
	b.WriteString(m.File)
	if m.At.Line > 0 {
		fmt.Fprintf(&b, ":%d", m.At.Line)
		if m.At.Column > 0 {
			fmt.Fprintf(&b, ":%d", m.At.Column)
		}
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if m.Path != "" {
		b.WriteString(m.Path + ": ")
	}
	return b.String() + m.Text
}

// Mistakes are all that was found, in the order of the file. It is an error; use
// errors.As.
type Mistakes []Mistake

// Error has one line for each.
func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i := range m {
		lines[i] = m[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Err is nil when nothing is wrong.
func (m Mistakes) Err() error {
	if len(m) == 0 {
		return nil
	}
	slices.SortStableFunc(m, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.At.Line, b.At.Line), cmp.Compare(a.At.Column, b.At.Column))
	})
	return slices.Compact(m)
}

// Meant is `, did you mean "window"?` when one of the names is near to what was written, else what there is.
func Meant(wrote string, names []string) string {
	if n := Nearest(wrote, names); n != "" {
		return fmt.Sprintf(", did you mean %q?", n)
	}
	if len(names) == 0 {
		return ""
	}
	return "; there is " + strings.Join(names, ", ")
}

// Nearest returns the name that what was written is likely to mean, or "".
func Nearest(wrote string, names []string) string {
	return Within(wrote, names, min(3, (len(wrote)+1)/3))
}

// Within is the nearest name that is at most so far away, or "".
func Within(wrote string, names []string, least int) string {
	best := ""
	for _, n := range names {
		if d := distance(strings.ToLower(wrote), strings.ToLower(n)); d < least || d == least && best == "" && d < len(n) {
			best, least = n, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours between two words.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
