package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

var wireJSON = protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}

// The formats of results.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputJSONL = "jsonl"
)

// show prints v as JSON or, by default, rows as tables; the first row is the header, and a table
// of nothing but that is left out behind the first.
func (a *app) show(c *cli.Context, v any, tables ...func() [][]string) error {
	switch f := c.String("output"); f {
	case outputJSON:
		return a.printJSON(v)
	case outputJSONL:
		return a.printLine(v)
	case outputTable:
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

func noFormat(f string) error { return usagef("--output %q is not table, json or jsonl", f) }

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
