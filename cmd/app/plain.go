package app

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// plain is a text of somebody else as a line of a terminal may hold it: a reason, an error, a name. What would steer the
// terminal, begin a line of its own or turn the direction of writing around stands there as its escape, so that no text
// looks like more than it is.
func plain(text string) string { return escaped(text, "") }

// plainLines is plain for a text whose own line breaks stay.
func plainLines(text string) string { return escaped(text, "\n") }

func escaped(text, keep string) string {
	steers := func(r rune) bool { return !unicode.IsGraphic(r) && !strings.ContainsRune(keep, r) }
	if utf8.ValidString(text) && strings.IndexFunc(text, steers) < 0 {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1: // no UTF-8
			q := strconv.Quote(text[:1])
			out.WriteString(q[1 : len(q)-1])
		case steers(r):
			q := strconv.QuoteRune(r)
			out.WriteString(q[1 : len(q)-1])
		default:
			out.WriteRune(r)
		}
		text = text[size:]
	}
	return out.String()
}

// plainJSON is a JSON text with escapes for what JSON itself lets through: the controls above ASCII, which terminals obey as
// well, and those of direction. Outside of its strings a JSON text has none but line breaks.
func plainJSON(text []byte) string {
	var out strings.Builder
	for _, r := range string(text) {
		if r == '\n' || unicode.IsGraphic(r) {
			out.WriteRune(r)
			continue
		}
		for _, half := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&out, `\u%04x`, half)
		}
	}
	return out.String()
}
