package form

import "strings"

// Reference says where the secret stands, as "env:NAME" or "file:PATH", for a client that reads it again
// whenever it needs it, so that it may be renewed; "" for no secret.
func (s Secret) Reference() string {
	if name, ok := strings.CutPrefix(s.from, "environment variable "); ok {
		return "env:" + name
	}
	if path, ok := strings.CutPrefix(s.from, "file "); ok {
		return "file:" + path
	}
	return ""
}
