package secrets

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// found is a secret in a text.
type found struct {
	at       int // bytes from the text's beginning
	encoding string
}

// finder is one way in which a secret can be seen, or hide: what stands in a row, each in one of several forms.
type finder struct {
	encoding string
	row      [][]string
	begins   [256]bool // with which bytes the first form begins
}

// finders are tried in this order.
var finders = slices.Concat(
	either("plain", func(s string) [][]string { return [][]string{{s}} }),
	either("base64", func(s string) [][]string { return [][]string{inBase64(s)} }),
	// Beside digits in a row: with spaces or colons between, and as Go, C and addresses write bytes.
	either("hex", func(s string) [][]string {
		return byBytes(s, []string{"", " ", ":", "%", `\x`, `\X`, "0x", " 0x", ", 0x", ",0x", "0X", " 0X", ", 0X", ",0X"}, "%02x", "%02X")
	}),
	either("decimal", func(s string) [][]string { return byBytes(s, []string{" ", ",", ", "}, "%d") }),
	// Some characters as addresses, quotes, JSON or markup write them.
	either("escaped", func(s string) [][]string {
		return byBytes(s, []string{""}, "%c", "%%%02x", "%%%02X", `\x%02x`, `\x%02X`, `\%03o`, `\u00%02x`, `\u00%02X`, "&#%d;", "&#x%02x;", "&#x%02X;")
	}),
)

// either finds the marker's beginning and its end.
func either(encoding string, rowOf func(string) [][]string) []finder {
	var out []finder
	for _, part := range []string{opening, ending} {
		f := finder{encoding: encoding, row: rowOf(part)}
		for _, form := range f.row[0] {
			f.begins[form[0]] = true
		}
		out = append(out, f)
	}
	return out
}

// inBase64 is text in any of its three places among the bytes before and after, without what a byte shares with a neighbour.
func inBase64(text string) []string {
	var out []string
	for before := range 3 {
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			coded := alphabet.EncodeToString([]byte(strings.Repeat("\x00", before) + text))
			out = append(out, coded[(before*8+5)/6:(before+len(text))*8/6])
		}
	}
	return out
}

// byBytes is text byte by byte, each in one of the forms, with one of the strings between two of them.
func byBytes(text string, between []string, forms ...string) [][]string {
	var out [][]string
	for i, b := range []byte(text) {
		var all []string
		for _, form := range forms {
			one := fmt.Sprintf(form, b)
			if i == 0 {
				all = append(all, one)
				continue
			}
			for _, gap := range between {
				all = append(all, gap+one)
			}
		}
		out = append(out, all)
	}
	return out
}

// at reports whether the row stands at the beginning of a text.
func (f *finder) at(text []byte) bool {
	for _, forms := range f.row {
		i := slices.IndexFunc(forms, func(form string) bool { return len(form) <= len(text) && string(text[:len(form)]) == form })
		if i < 0 {
			return false
		}
		text = text[len(forms[i]):]
	}
	return true
}

// broken is where a long text goes on in another line, with what the testing package puts before each.
var broken = regexp.MustCompile(`\r?\n[ \t]*(?:[\w.-]+\.go:\d+: )?`)

// find returns the secrets that stand in a text, also those that go on in the next line. One that can be read in several ways is
// returned once, by the simplest.
func find(text []byte) []found {
	out := search(text)
	cuts := broken.FindAllIndex(text, -1)
	if len(cuts) == 0 {
		return out
	}
	var joined []byte
	last := 0
	for _, c := range cuts {
		joined = append(joined, text[last:c[0]]...)
		last = c[1]
	}
	joined = append(joined, text[last:]...)
	for _, f := range search(joined) {
		f.at = before(cuts, f.at)
		if !slices.ContainsFunc(out, func(o found) bool { return o.at == f.at }) {
			out = append(out, found{f.at, f.encoding + ", over several lines"})
		}
	}
	slices.SortStableFunc(out, func(a, b found) int { return a.at - b.at })
	return out
}

// before finds where a byte of a text without its cuts stood in the text with them.
func before(cuts [][]int, at int) int {
	for _, c := range cuts {
		if at < c[0] {
			break
		}
		at += c[1] - c[0]
	}
	return at
}

func search(text []byte) []found {
	var out []found
	for i := range finders {
		f := &finders[i]
		for at, b := range text {
			if f.begins[b] && f.at(text[at:]) && !slices.ContainsFunc(out, func(o found) bool { return o.at == at }) {
				out = append(out, found{at, f.encoding})
			}
		}
	}
	return out
}

// lineOf is the number of the line, from 1, and its text, shortened.
func lineOf(text []byte, at int) (int, string) {
	from := bytes.LastIndexByte(text[:at], '\n') + 1
	line := text[from:]
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	const around = 80
	first, last := max(at-from-around, 0), min(at-from+around, len(line))
	return bytes.Count(text[:from], []byte("\n")) + 1, strings.ToValidUTF8(string(line[first:last]), "?")
}
