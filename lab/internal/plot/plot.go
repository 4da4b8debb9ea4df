// Package plot draws lines over logarithmic axes, as SVG.
package plot

import (
	"fmt"
	"math"
	"strings"
)

// Point holds one value of a line.
type Point struct{ X, Y float64 }

// Line holds what a chart shows of one thing.
type Line struct {
	Name    string
	Color   string
	Dash    string // of SVG; empty: a solid line
	Circles bool   // circles at the points, without a line
	Points  []Point
}

// Chart describes a plot. Both axes are as long as its points need, in powers of ten.
type Chart struct {
	X, Y  string // what the axes show
	Lines []Line
}

const (
	width, height = 720, 420
	left, bottom  = 70, 50
	right, top    = 20, 30
)

// axis holds the powers of ten of an axis, and the pixels of its ends.
type axis struct {
	from, to     int
	begin, until float64
}

func (a axis) at(v float64) float64 {
	part := (math.Log10(v) - float64(a.from)) / float64(a.to-a.from)
	return a.begin + part*(a.until-a.begin)
}

// newAxis returns an axis that has all values.
func newAxis(begin, until float64, values []float64) axis {
	a := axis{from: math.MaxInt, to: math.MinInt, begin: begin, until: until}
	for _, v := range values {
		a.from = min(a.from, int(math.Floor(math.Log10(v))))
		a.to = max(a.to, int(math.Ceil(math.Log10(v))))
	}
	a.to = max(a.to, a.from+1)
	return a
}

// SVG draws the chart. All values must be positive, and there must be one.
func (c Chart) SVG() string {
	var xs, ys []float64
	for _, l := range c.Lines {
		for _, p := range l.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	x, y := newAxis(left, width-right, xs), newAxis(height-bottom, top, ys)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" `+
		`font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	for power := x.from; power <= x.to; power++ {
		at := x.at(math.Pow10(power))
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>`+
			`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			at, top, at, height-bottom, at, height-bottom+18, number(power))
	}
	for power := y.from; power <= y.to; power++ {
		at := y.at(math.Pow10(power))
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`+
			`<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, at, width-right, at, left-6, at+4, number(power))
	}
	for i, l := range c.Lines {
		l.draw(&b, x, y)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", left+12, top+18+i*17,
			l.Color, l.Name)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n",
		(left+width-right)/2, height-12, c.X)
	fmt.Fprintf(&b, `<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">`+
		"%s</text>\n</svg>\n", (top+height-bottom)/2, c.Y)
	return b.String()
}

func (l Line) draw(b *strings.Builder, x, y axis) {
	if l.Circles {
		for _, p := range l.Points {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="5" fill="none" stroke="%s" `+
				`stroke-width="2"/>`+"\n", x.at(p.X), y.at(p.Y), l.Color)
		}
		return
	}
	var points []string
	for _, p := range l.Points {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(p.X), y.at(p.Y)))
	}
	dash := l.Dash
	if dash == "" {
		dash = "none"
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2" `+
		`stroke-dasharray="%s"/>`+"\n", strings.Join(points, " "), l.Color, dash)
}

// number writes a power of ten.
func number(power int) string {
	if power < 0 {
		return fmt.Sprintf("%.*f", -power, math.Pow10(power))
	}
	return fmt.Sprintf("%.0f", math.Pow10(power))
}
