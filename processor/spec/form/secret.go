package form

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// Secret is a password or a key that the specification only names: `{env: NAME}` or `{file: PATH}`. It is
// printed, logged and encoded as what names it, never as what it is. The zero value is no secret.
type Secret struct {
	from  string
	value string
}

// Reveal returns the secret itself, for the one call that needs it.
func (s Secret) Reveal() string { return s.value }

// Given reports whether the specification names one.
func (s Secret) Given() bool { return s.from != "" }

// String says where the secret comes from.
func (s Secret) String() string {
	if s.from == "" {
		return "no secret"
	}
	return "secret from " + s.from
}

// GoString is String: no verb prints the secret.
func (s Secret) GoString() string { return s.String() }

// Format is String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalText is String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// maxSecret bounds the file of a secret; a certificate chain has some thousand bytes.
const maxSecret = 1 << 20

// secretFrom reads what a reference names. The error is without place and never holds the secret.
func secretFrom(n *Node, lookup func(string) (string, bool)) (Secret, error) {
	const form = "write {env: NAME} or {file: PATH}"
	if n.Kind != Mapping {
		return Secret{}, fmt.Errorf("a secret is named, never written here: %s", form)
	}
	if len(n.Keys) != 1 || n.Items[0].Kind != Scalar || n.Items[0].Value == "" {
		return Secret{}, fmt.Errorf("a secret is named by one reference: %s", form)
	}
	name := n.Items[0].Value
	switch n.Keys[0].Value {
	case "env":
		v, ok := lookup(name)
		if !ok || v == "" {
			return Secret{}, fmt.Errorf("the environment variable %s of the secret is not set", name)
		}
		return Secret{"environment variable " + name, v}, nil
	case "file":
		info, err := os.Stat(name)
		if err != nil {
			return Secret{}, fmt.Errorf("read the secret: %w", err)
		}
		if !info.Mode().IsRegular() || info.Size() > maxSecret {
			return Secret{}, fmt.Errorf("the secret's file %s is no regular file of at most %d bytes", name, maxSecret)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return Secret{}, fmt.Errorf("read the secret: %w", err)
		}
		v := strings.TrimRight(string(text), "\r\n")
		if v == "" {
			return Secret{}, fmt.Errorf("the secret's file %s is empty", name)
		}
		return Secret{"file " + name, v}, nil
	}
	return Secret{}, fmt.Errorf("%q is no way to name a secret: %s", n.Keys[0].Value, form)
}
