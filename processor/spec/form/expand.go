package form

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Expand replaces ${NAME} and ${NAME:-default} by what the environment says; "$$" is a dollar. What was
// put in is not expanded again. An empty variable counts as one that is not set.
func Expand(text string, lookup func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i+1 == len(text) {
			b.WriteString(text)
			return b.String(), nil
		}
		b.WriteString(text[:i])
		switch text[i+1] {
		case '$':
			b.WriteByte('$')
			text = text[i+2:]
			continue
		case '{':
		default:
			b.WriteByte('$')
			text = text[i+1:]
			continue
		}
		inner, rest, closed := strings.Cut(text[i+2:], "}")
		if !closed {
			return "", errors.New("the reference ${ has no }; write ${NAME} or ${NAME:-default}, and $$ for a dollar")
		}
		name, def, hasDefault := strings.Cut(inner, ":-")
		if !variable.MatchString(name) {
			return "", fmt.Errorf("%q names no environment variable; write ${NAME} or ${NAME:-default}", "${"+inner+"}")
		}
		v, ok := lookup(name)
		switch {
		case ok && v != "":
			b.WriteString(v)
		case hasDefault:
			b.WriteString(def)
		default:
			return "", fmt.Errorf("the environment variable %s is not set; set it, or write ${%s:-default}", name, name)
		}
		text = rest
	}
}
