// Package show draws what happened in a run over time, as one page without anything from outside.
package show

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"
)

// Class of a span or a bar: how it is coloured.
type Class string

// The classes.
const (
	Kill    Class = "kill"
	Pause   Class = "pause"
	Cut     Class = "cut"
	Disk    Class = "disk"
	Leader  Class = "leader"
	Good    Class = "good"
	Neutral Class = "neutral"
	Bad     Class = "bad"
)

// Span is a time in a lane. One without a length is a mark.
type Span struct {
	From, To time.Duration
	Class    Class
	Text     string // shown under the pointer
}

// Lane is one line of the picture.
type Lane struct {
	Name  string
	Spans []Span
}

// Bars count something in every second of the run, by class.
type Bars struct {
	Name   string
	Counts []Count
}

// Count is how often something of a class happened, second by second.
type Count struct {
	Class  Class
	Text   string
	Number map[int]int
}

// Row is one line of the table.
type Row struct {
	Name, State, Text string
	Bad               bool
}

// Page is everything that is shown.
type Page struct {
	Title, Line string
	Rows        []Row
	Findings    []string
	Length      time.Duration
	Lanes       []Lane
	Bars        []Bars
}

// Sizes of the picture, in pixels.
const (
	laneHigh  = 18
	barsHigh  = 60
	nameWide  = 90
	pageWide  = 1400
	widest    = 8 // a second
	narrowest = 1
)

//go:embed page.html
var pageText string

// Write writes the page.
func Write(w io.Writer, p Page) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return fmt.Errorf("read the form of the page: %w", err)
	}
	if err := t.Execute(w, draw(p)); err != nil {
		return fmt.Errorf("draw the run: %w", err)
	}
	return nil
}

// picture is a page with everything where it is drawn.
type picture struct {
	Page
	Width, Height int
	Names         []label
	Boxes         []box
	Ticks         []label
}

type label struct {
	X, Y float64
	Text string
}

type box struct {
	X, Y, W, H float64
	Class      Class
	Text       string
}

func draw(p Page) picture {
	seconds := max(1, p.Length.Seconds())
	scale := min(widest, max(narrowest, pageWide/seconds))
	pic := picture{Page: p, Width: nameWide + int(seconds*scale) + 20}
	x := func(at time.Duration) float64 { return nameWide + at.Seconds()*scale }
	y := float64(laneHigh)
	step := 10 * time.Second
	for time.Duration(float64(p.Length)/float64(step)) > time.Duration(pic.Width/70) {
		step *= 2
	}
	for at := time.Duration(0); at <= p.Length; at += step {
		pic.Ticks = append(pic.Ticks, label{x(at), 12, at.String()})
	}
	for _, l := range p.Lanes {
		pic.Names = append(pic.Names, label{2, y + laneHigh - 5, l.Name})
		for _, s := range l.Spans {
			wide := max(1.5, x(s.To)-x(s.From))
			pic.Boxes = append(pic.Boxes, box{x(s.From), y + 2, wide, laneHigh - 4, s.Class, s.Text})
		}
		y += laneHigh
	}
	for _, b := range p.Bars {
		y += 6
		pic.Names = append(pic.Names, label{2, y + barsHigh - 4, b.Name})
		pic.Boxes = append(pic.Boxes, bars(b, int(seconds)+1, y, scale)...)
		y += barsHigh
	}
	pic.Height = int(y) + 10
	return pic
}

// bars stacks the classes of every second on each other.
func bars(b Bars, seconds int, y, scale float64) (boxes []box) {
	most := 1
	for s := range seconds {
		sum := 0
		for _, c := range b.Counts {
			sum += c.Number[s]
		}
		most = max(most, sum)
	}
	for s := range seconds {
		foot := y + barsHigh
		for _, c := range b.Counts {
			n := c.Number[s]
			if n == 0 {
				continue
			}
			high := float64(n) / float64(most) * barsHigh
			foot -= high
			boxes = append(boxes, box{nameWide + float64(s)*scale, foot, max(1, scale-0.5), high, c.Class, fmt.Sprintf("%d s: %d %s", s, n, c.Text)})
		}
	}
	return boxes
}
