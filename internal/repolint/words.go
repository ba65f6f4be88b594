package repolint

import (
	"fmt"
	"regexp"
	"strings"
)

// stranger is something that belongs to one machine or one workplace and not to the product.
type stranger struct {
	what    string
	pattern *regexp.Regexp
}

// strangers returns what no file may contain. The patterns are put together from halves, so
// that this file does not contain them either.
func strangers() []stranger {
	compile := func(halves ...string) *regexp.Regexp {
		return regexp.MustCompile(`(?i)` + strings.Join(halves, ""))
	}
	return []stranger{
		{"a path of one machine", compile(`(^|[^\w./-])/wo`, `rk/`)},
		{"a path of one machine", compile(`/tmp/br`, `ief`)},
		{"a path of one machine", compile(`/tmp/bash_`, `jobs`)},
		{"a package registry's host", compile(`(proxy|sum)\.gol`, `ang\.org`)},
		{"a package registry's host", compile(`npm`, `js\.(org|com)`)},
		{"a package registry's host", compile(`(repo1?\.|central\.)maven`, `\.org|repo\.maven\.`, `apache\.org`)},
		{"a package registry's host", compile(`(deb|ftp|security)\.deb`, `ian\.org`)},
		{"a package registry's host", compile(`(py`, `pi|pythonhosted)\.org`)},
		{"a package registry's host", compile(`crates`, `\.io`)},
		{"a word of the workshop, not of the product", compile(`\bsub-?ag`, `ents?\b|\btime`, `box\b`)},
	}
}

// unowned is a note to do something later that names nobody and no issue.
var unowned = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b(\([a-z][\w-]*, #\d+\))?`)

// CheckWords finds what belongs to a workshop, and work left over without a name. In text
// files of every kind, generated and locked ones included.
func CheckWords(repo *Repo) []Finding {
	list := strangers()
	var found []Finding
	for _, f := range repo.Files {
		if !text(f.Data) {
			continue
		}
		number := 0
		for line := range strings.Lines(string(f.Data)) {
			number++
			for _, s := range list {
				if hit := s.pattern.FindString(line); hit != "" {
					found = append(found, Finding{"words", f.Path, number, fmt.Sprintf("%q is %s; leave it out", strings.TrimSpace(hit), s.what)})
				}
			}
			if f.Go == nil || f.Generated {
				continue
			}
			if m := unowned.FindStringSubmatch(line); m != nil && m[2] == "" {
				found = append(found, Finding{"words", f.Path, number, m[1] + " without a name and an issue; do it, or write " + m[1] + "(name, #issue)"})
			}
		}
	}
	return found
}
