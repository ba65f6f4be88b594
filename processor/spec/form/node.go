package form

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// What a file may hold. Aliases count as often as they are used, so a small file cannot become a large one.
const (
	maxFile  = 1 << 20
	maxNodes = 20_000
	maxDepth = 40
)

// Kind of a node.
type Kind uint8

const (
	kindUnset Kind = iota
	Scalar
	Mapping
	Sequence
	Null
)

// String names the kind as people do.
func (k Kind) String() string {
	return [...]string{"nothing", "a single value", "a mapping", "a list", "nothing"}[k]
}

// Node is a value of the file with its aliases resolved.
type Node struct {
	Kind  Kind
	Value string
	At    Pos
	in    *source
	// quoted: the value stands in quotes or in a block.
	quoted bool
	// Keys of a mapping, in the order of the file; Items are its values, or those of a list.
	Keys  []*Node
	Items []*Node
}

// Text is a scalar as the document keeps it.
func (n *Node) Text() Text { return Text{Value: n.Value, At: n.At, in: n.in} }

// source is the file's text, for places within a value.
type source struct{ lines []string }

// loader turns the YAML library's tree into nodes.
type loader struct {
	file     string
	in       *source
	left     int
	over     bool
	mistakes Mistakes
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(?:found )?(.*)$`)

// grammar are the sentences of the library's parser, which counts lines from 0; its scanner counts from 1.
// (The places go only into the text, so there is nothing else to tell them by.)
var grammar = regexp.MustCompile(`^did not find expected (?:<|node content|'-' indicator|key$|',' or '[]}]')`)

// Load reads the one document of a file. The node is nil if there are mistakes.
func Load(file string, text []byte) (*Node, Mistakes) {
	l := &loader{file: file, left: maxNodes}
	if len(text) > maxFile {
		return nil, Mistakes{{File: file, Text: fmt.Sprintf("the file has %d bytes, and a specification may have %d", len(text), maxFile)}}
	}
	if at, ok := broken(text); ok {
		return nil, Mistakes{{File: file, At: at, Text: "this byte is not UTF-8; save the file as UTF-8"}}
	}
	l.in = &source{lines: strings.Split(string(text), "\n")}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, Mistakes{{File: file, Text: "the file holds no specification"}}
	} else if err != nil {
		return nil, Mistakes{l.syntax(err)}
	}
	switch err := d.Decode(&more); {
	case err == nil:
		return nil, Mistakes{{File: file, At: Pos{more.Line, more.Column}, Text: "a second document begins here; a file holds one pipeline"}}
	case !errors.Is(err, io.EOF):
		return nil, Mistakes{l.syntax(err)}
	}
	root := l.node(&doc, 0)
	if l.over { // the rest was not read, so what seems wrong with it may not be
		return nil, l.mistakes[:1]
	}
	if len(l.mistakes) > 0 {
		return nil, l.mistakes
	}
	return root, nil
}

// syntax is what the YAML library found; it has the line only within its sentence.
func (l *loader) syntax(err error) Mistake {
	m := Mistake{File: l.file, Text: "not YAML: " + err.Error()}
	first, _, _ := strings.Cut(err.Error(), "\n")
	if f := yamlLine.FindStringSubmatch(first); f != nil {
		if n, err := strconv.Atoi(f[1]); err == nil {
			m.At.Line = n
			if grammar.MatchString(f[2]) {
				m.At.Line++
			}
		}
		m.Text = "not YAML: " + f[2]
	}
	return m
}

func (l *loader) wrong(at Pos, format string, args ...any) {
	l.mistakes = append(l.mistakes, Mistake{File: l.file, At: at, Text: fmt.Sprintf(format, args...)})
}

// bound tells that the file is too much, and nothing else.
func (l *loader) bound(at Pos, format string, args ...any) {
	if !l.over {
		l.mistakes = nil
		l.wrong(at, format, args...)
	}
	l.over, l.left = true, 0
}

func (l *loader) node(y *yaml.Node, depth int) *Node {
	at := Pos{y.Line, y.Column}
	n := &Node{At: at, in: l.in}
	l.left--
	switch {
	case l.left < 0:
		l.bound(at, "the file has more than %d values, its aliases counted as often as they are used", maxNodes)
		return n
	case depth > maxDepth:
		l.bound(at, "values are nested more than %d deep, or an alias holds itself", maxDepth)
		return n
	}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) != 1 {
			l.wrong(at, "the file holds no specification")
			return n
		}
		return l.node(y.Content[0], depth)
	case yaml.AliasNode:
		return l.node(y.Alias, depth+1)
	case yaml.ScalarNode:
		l.scalar(n, y)
	case yaml.SequenceNode:
		n.Kind = Sequence
		for _, c := range y.Content {
			n.Items = append(n.Items, l.node(c, depth+1))
		}
	case yaml.MappingNode:
		n.Kind = Mapping
		l.mapping(n, y, depth)
	default:
		l.wrong(at, "this is no value")
	}
	return n
}

func (l *loader) scalar(n *Node, y *yaml.Node) {
	n.Kind, n.Value = Scalar, y.Value
	n.quoted = y.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	switch tag := y.ShortTag(); {
	case tag == "!!null" && !n.quoted:
		n.Kind = Null
	case y.Style&yaml.TaggedStyle != 0 && tag != "!!str":
		l.wrong(n.At, "the tag %s means nothing here; leave it out", tag)
	}
}

func (l *loader) mapping(n *Node, y *yaml.Node, depth int) {
	first := map[string]Pos{}
	var merged []*Node
	for i := 0; i+1 < len(y.Content); i += 2 {
		k, v := l.node(y.Content[i], depth+1), l.node(y.Content[i+1], depth+1)
		switch {
		case y.Content[i].ShortTag() == "!!merge" && k.Kind == Scalar:
			merged = append(merged, v)
			continue
		case k.Kind != Scalar:
			l.wrong(k.At, "the name of a field is a single value, and this is %s", k.Kind)
			continue
		}
		if at, twice := first[k.Value]; twice {
			l.wrong(k.At, "field %q stands here twice; the first is in line %d", k.Value, at.Line)
			continue
		}
		first[k.Value] = k.At
		n.Keys, n.Items = append(n.Keys, k), append(n.Items, v)
	}
	for _, m := range merged {
		l.merge(n, m, first)
	}
}

// merge adds what "<<" names and the mapping does not say itself.
func (l *loader) merge(n, from *Node, has map[string]Pos) {
	if from.Kind == Sequence {
		for _, m := range from.Items {
			l.merge(n, m, has)
		}
		return
	}
	if from.Kind != Mapping {
		l.wrong(from.At, "<< takes a mapping or a list of them, and this is %s", from.Kind)
		return
	}
	for i, k := range from.Keys {
		if _, ok := has[k.Value]; !ok {
			has[k.Value] = k.At
			n.Keys, n.Items = append(n.Keys, k), append(n.Items, from.Items[i])
		}
	}
}

// broken finds the first byte that is not UTF-8.
func broken(text []byte) (Pos, bool) {
	if utf8.Valid(text) {
		return Pos{}, false
	}
	at := Pos{1, 1}
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n == 1 {
			return at, true
		}
		at.Column++
		if r == '\n' {
			at.Line, at.Column = at.Line+1, 1
		}
		text = text[n:]
	}
	return Pos{}, false
}

// Place is where the character at an offset of the value stands. Values may be quoted, folded or in a
// block, so the text is laid along the file; where that fails the place is that of the last agreement.
func (t Text) Place(offset int) Pos {
	if t.in == nil || t.At.Line < 1 || t.At.Line > len(t.in.lines) {
		return t.At
	}
	line, col := t.At.Line-1, t.At.Column-1
	row := []rune(t.in.lines[line])
	col = min(col, len(row))
	if col < len(row) {
		switch row[col] {
		case '|', '>': // the header of a block
			col = len(row)
		case '"', '\'':
			col++
		}
	}
	last := t.At
	for i, r := range []rune(t.Value) {
		if r == ' ' || r == '\n' || r == '\t' {
			if i == offset {
				return Pos{line + 1, col + 1}
			}
			if col < len(row) && row[col] == r {
				col++
			}
			continue
		}
		for {
			if col < len(row) {
				if row[col] == r {
					break
				}
				col++
				continue
			}
			if line+1 >= len(t.in.lines) {
				return last
			}
			line++
			row, col = []rune(t.in.lines[line]), 0
		}
		last = Pos{line + 1, col + 1}
		if i == offset {
			return last
		}
		col++
	}
	return last
}
