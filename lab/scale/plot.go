package scale

import (
	"fmt"
	"math"
	"strings"
)

// Point holds one measurement: the connections that a server held with so many replicas.
type Point struct {
	Replicas    int `json:"replicas"`
	Connections int `json:"connections"`
}

const (
	width, height = 720, 420
	left, bottom  = 70, 50
	right, top    = 20, 30
	maxX, maxY    = 3, 6 // powers of ten
)

// Plot draws the simulated results as a line, their bounds as another, and measurements as points,
// on logarithmic axes, as SVG.
func Plot(simulated []Result, measured []Point) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" `+
		`font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	for power := 0; power <= maxX; power++ {
		at := x(math.Pow10(power))
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>`+
			`<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n",
			at, top, at, height-bottom, at, height-bottom+18, int(math.Pow10(power)))
	}
	for power := 0; power <= maxY; power++ {
		at := y(math.Pow10(power))
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`+
			`<text x="%d" y="%.1f" text-anchor="end">%d</text>`+"\n",
			left, at, width-right, at, left-6, at+4, int(math.Pow10(power)))
	}
	bound := func(r Result) int { return r.Bound }
	line(&b, simulated, bound, "#b03030", "6 4")
	line(&b, simulated, Result.Total, "#2050a0", "none")
	for _, p := range measured {
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="5" fill="none" stroke="black" `+
			`stroke-width="2"/>`+"\n", x(float64(p.Replicas)), y(float64(p.Connections)))
	}
	for i, row := range []struct{ color, text string }{
		{"#b03030", "bound: replicas × (maxPoolSize + 2)"},
		{"#2050a0", "simulated, one load on all replicas"},
		{"black", "measured (circles)"},
	} {
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", left+12, top+18+i*17,
			row.color, row.text)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">replicas of the gateway</text>`+"\n",
		(left+width-right)/2, height-12)
	fmt.Fprintf(&b, `<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">`+
		"connections to one server</text>\n</svg>\n", (top+height-bottom)/2)
	return b.String()
}

func line(b *strings.Builder, results []Result, value func(Result) int, color, dash string) {
	var points []string
	for _, r := range results {
		points = append(points,
			fmt.Sprintf("%.1f,%.1f", x(float64(r.Replicas)), y(float64(value(r)))))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2" `+
		`stroke-dasharray="%s"/>`+"\n", strings.Join(points, " "), color, dash)
}

func x(replicas float64) float64 {
	return left + math.Log10(replicas)/maxX*(width-left-right)
}

func y(connections float64) float64 {
	return height - bottom - math.Log10(max(connections, 1))/maxY*(height-top-bottom)
}
