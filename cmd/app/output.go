package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

var wireJSON = protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}

// The formats of results.
const (
	outputTable = "table"
	outputWide  = "wide" // a table that leaves nothing out
	outputJSON  = "json"
	outputJSONL = "jsonl"
)

var outputs = []string{outputTable, outputWide, outputJSON, outputJSONL}

// forPeople reports whether results are tables.
func forPeople(c *cli.Context) bool {
	f := c.String("output")
	return f == outputTable || f == outputWide
}

// show prints v as JSON or, by default, rows as tables; the first row is the header, and a table
// of nothing but that is left out behind the first.
func (a *app) show(c *cli.Context, v any, tables ...func() [][]string) error {
	switch f := c.String("output"); f {
	case outputJSON:
		return a.printJSON(v)
	case outputJSONL:
		return a.printLine(v)
	case outputTable, outputWide:
		for i, rows := range tables {
			r := rows()
			if i > 0 && len(r) == 1 {
				continue
			}
			if i > 0 {
				fmt.Fprintln(a.out)
			}
			a.printTable(r)
		}
		return nil
	default:
		return noFormat(f)
	}
}

func noFormat(f string) error { return usagef("--output %q is not table, wide, json or jsonl", f) }

func (a *app) printJSON(v any) error {
	var text []byte
	var err error
	if m, ok := v.(proto.Message); ok {
		// Its own white space differs from one build to the next, on purpose.
		text, err = wireJSON.Marshal(m)
		if err == nil {
			text, err = json.MarshalIndent(json.RawMessage(text), "", "  ")
		}
	} else {
		text, err = json.MarshalIndent(v, "", "  ")
	}
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = fmt.Fprintln(a.out, plainJSON(text))
	return err
}

// printLine prints v as JSON on one line.
func (a *app) printLine(v any) error {
	var text []byte
	var err error
	if m, ok := v.(proto.Message); ok {
		if text, err = wireJSON.Marshal(m); err == nil {
			var line bytes.Buffer // its own white space differs from one build to the next
			if err = json.Compact(&line, text); err == nil {
				text = line.Bytes()
			}
		}
	} else {
		text, err = json.Marshal(v)
	}
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = fmt.Fprintln(a.out, plainJSON(text))
	return err
}

func (a *app) printTable(rows [][]string) {
	t := table.NewWriter()
	t.SetOutputMirror(a.out)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = "  "
	t.SetStyle(style)
	for i, r := range rows {
		row := make(table.Row, len(r))
		for j, cell := range r {
			row[j] = plain(a.named(cell))
		}
		if i == 0 {
			t.AppendHeader(row)
		} else {
			t.AppendRow(row)
		}
	}
	t.SuppressTrailingSpaces()
	t.Render()
}

// ago shows an age for people.
func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "-"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}

// roughly shows an age in one unit.
func roughly(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// wrapped breaks the cells of the first columns into lines of at most so many letters; the lines behind the first
// are rows of their own. Nothing is left out.
func wrapped(rows [][]string, widths ...int) [][]string {
	var out [][]string
	for _, r := range rows {
		lines, most := make([][]string, len(r)), 1
		for i, cell := range r {
			if lines[i] = []string{cell}; i < len(widths) {
				lines[i] = wrap(cell, widths[i])
			}
			most = max(most, len(lines[i]))
		}
		for n := range most {
			row := make([]string, len(r))
			for i := range r {
				if n < len(lines[i]) {
					row[i] = lines[i][n]
				}
			}
			out = append(out, row)
		}
	}
	return out
}

// wrap breaks a text between its words, and within a word that is too long by itself.
func wrap(text string, width int) []string {
	var lines []string
	line := []rune{}
	for _, word := range strings.Split(text, " ") {
		w := []rune(word)
		if len(line) > 0 && len(line)+1+len(w) > width {
			lines, line = append(lines, string(line)), nil
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for line = append(line, w...); len(line) > width; line = line[width:] {
			lines = append(lines, string(line[:width]))
		}
	}
	return append(lines, string(line))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// cut shortens a text that another command shows whole.
func cut(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}

func enumWord(s, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(s, prefix), "_", " "))
}

// oneOf is a number of one thing as adapters write it into handles, whose texts are kept as they are.
var oneOf = regexp.MustCompile(`\b1 (record|file|partition)s\b`)

// handleText is what a handle says of itself, for people.
func handleText(h *unisinkv1.Handle) string { return oneOf.ReplaceAllString(h.GetText(), "1 $1") }
