package verify

import (
	"cmp"
	"slices"
	"strings"
)

// Verdict of a Report.
type Verdict string

// The verdicts, from good to bad.
const (
	// Clean: every record is where it must be, and every result is there once and is right.
	Clean Verdict = "clean"
	// Undeterminable: nothing is wrong for certain, and something cannot be known.
	Undeterminable Verdict = "undeterminable"
	// Broken: something is missing, doubled or different.
	Broken Verdict = "broken"
)

// Case is one result or record that is not as it should be.
type Case struct {
	Sink string `json:"sink"`
	// Key of a result; of a record its place in the source, "orders/3/17".
	Key string `json:"key"`
	// Window of a result; empty for a record.
	Window string `json:"window"`
	// Why, for people.
	Why string `json:"-"`
	// Foreign: it is of an epoch that this pipeline has not decided, so somebody else wrote it.
	Foreign bool `json:"-"`
}

// Aside counts the records in sinks that were left out because a rewind put their epochs aside.
type Aside struct {
	Superseded       int `json:"superseded"`
	SupersededEpochs int `json:"superseded_epochs"`
}

// Report is what Run found.
type Report struct {
	Verdict Verdict `json:"verdict"`
	// Records of the source up to the cut.
	Records int `json:"records"`
	// Compared counts the records of the sinks that were held against them: those of epochs that are judged.
	Compared int `json:"compared"`
	// Windows counts the windows, by key, that have fired and of which every sink must hold a result.
	Windows        int    `json:"windows"`
	Missing        []Case `json:"missing"`
	Doubled        []Case `json:"doubled"`
	Different      []Case `json:"different"`
	Undeterminable []Case `json:"undeterminable"`
	Aside          `json:"-"`

	// Filtered, Late, Skipped, Dead and Passed records are in no window; Open windows have not fired.
	Filtered, Late, Skipped, Dead, Passed int `json:"-"`
	Open                                  int `json:"-"`
}

func newReport() Report {
	return Report{Missing: []Case{}, Doubled: []Case{}, Different: []Case{}, Undeterminable: []Case{}}
}

// judge sorts the cases and gives the verdict.
func (r *Report) judge() {
	for _, list := range [][]Case{r.Missing, r.Doubled, r.Different, r.Undeterminable} {
		slices.SortFunc(list, func(a, b Case) int {
			return cmp.Or(cmp.Compare(a.Sink, b.Sink), cmp.Compare(a.Window, b.Window), byNumbers(a.Key, b.Key), cmp.Compare(a.Why, b.Why))
		})
	}
	switch {
	case len(r.Missing)+len(r.Doubled)+len(r.Different) > 0:
		r.Verdict = Broken
	case len(r.Undeterminable) > 0:
		r.Verdict = Undeterminable
	default:
		r.Verdict = Clean
	}
}

// byNumbers compares texts so that "offset 9" comes before "offset 10".
func byNumbers(a, b string) int {
	digit := func(r rune) bool { return r >= '0' && r <= '9' }
	for a != "" && b != "" {
		m, n := len(a)-len(strings.TrimLeftFunc(a, digit)), len(b)-len(strings.TrimLeftFunc(b, digit))
		if m == 0 || n == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		x, y := strings.TrimLeft(a[:m], "0"), strings.TrimLeft(b[:n], "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(m, n)); c != 0 {
			return c
		}
		a, b = a[m:], b[n:]
	}
	return cmp.Compare(len(a), len(b))
}

// Unknowable is the report where nothing can be compared at all.
func Unknowable(why ...Case) Report {
	r := newReport()
	r.Undeterminable = append(r.Undeterminable, why...)
	r.judge()
	return r
}
