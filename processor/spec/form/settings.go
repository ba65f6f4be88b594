package form

import (
	"regexp"
	"slices"
	"strings"
)

// secretName is what settings are called that hold secrets. Their types are the adapter's, which need not
// be there when settings are shown.
var secretName = regexp.MustCompile(`(?i)passw|secret|token|passphrase|credential|dsn`)

// Settings are an adapter's part of the specification, with places for messages.
type Settings struct {
	// File and At say where they stand.
	File string
	At   Pos

	path   string
	node   *Node
	lookup func(name string) (string, bool)
}

// NewSettings are those of an adapter: kind is its key in the file, n its value, path that of both.
func NewSettings(file string, kind, n *Node, path string, lookup func(name string) (string, bool)) Settings {
	if n.Kind == Null {
		n = &Node{Kind: Mapping, At: kind.At, in: kind.in}
	}
	return Settings{File: file, At: kind.At, path: path, node: n, lookup: lookup}
}

// Path of the settings: "sinks[1].kafka".
func (s Settings) Path() string { return s.path }

// Show is the settings as they are written, in one line. What looks like a secret that stands in the file
// itself, which Decode refuses, is not shown.
func (s Settings) Show() string {
	if s.node == nil || len(s.node.Keys) == 0 {
		return ""
	}
	return s.node.show()
}

// Same reports whether a setting of one name is written in the same way in both, and is there.
func (s Settings) Same(o Settings, name string) bool {
	here, there := s.written(name), o.written(name)
	return here != nil && there != nil && here.same(there)
}

func (s Settings) written(name string) *Node {
	if s.node == nil {
		return nil
	}
	for i, k := range s.node.Keys {
		if k.Value == name {
			return s.node.Items[i]
		}
	}
	return nil
}

func (n *Node) same(o *Node) bool {
	byValue := func(a, b *Node) bool { return a.Value == b.Value }
	return n.Kind == o.Kind && n.Value == o.Value && slices.EqualFunc(n.Keys, o.Keys, byValue) && slices.EqualFunc(n.Items, o.Items, (*Node).same)
}

func (n *Node) show() string {
	switch n.Kind {
	case Scalar:
		return n.Value
	case Sequence:
		parts := make([]string, len(n.Items))
		for i, item := range n.Items {
			parts[i] = item.show()
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case Mapping:
		parts := make([]string, len(n.Items))
		for i, item := range n.Items {
			text := item.show()
			if item.Kind == Scalar && secretName.MatchString(n.Keys[i].Value) {
				text = "(not shown)"
			}
			parts[i] = n.Keys[i].Value + ": " + text
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case kindUnset, Null:
	}
	return ""
}
