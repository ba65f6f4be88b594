package veil

import (
	"crypto/sha256"
	"fmt"
	"regexp"
)

// hashBytes of a key are shown, enough to find it among those that somebody has.
const hashBytes = 8

// Key tells a key from others: by its length and the first digits of its SHA-256, which `sha256sum` prints of it too.
func Key(key []byte) string {
	sum := sha256.Sum256(key)
	return fmt.Sprintf("a key of %d bytes (SHA-256 begins with %x)", len(key), sum[:hashBytes])
}

// quoted is what stands between the first and the last double quote.
var quoted = regexp.MustCompile(`(?s)".*"`)

// Quoted returns a text with three dots for whatever it quotes.
func Quoted(text string) string { return quoted.ReplaceAllLiteralString(text, `"..."`) }

// Error is err in other words, which do not show what err's own do; it is still found by errors.Is and errors.As.
func Error(err error, text string) error { return &veiled{text, err} }

type veiled struct {
	text string
	err  error
}

func (v *veiled) Error() string { return v.text }
func (v *veiled) Unwrap() error { return v.err }
