package scale

import "github.com/mooringdb/mooring/lab/internal/plot"

// Point holds one measurement: the connections that a server held with so many replicas.
type Point struct {
	Replicas    int `json:"replicas"`
	Connections int `json:"connections"`
}

// Plot draws the simulated results as a line, their bounds as another, and measurements as circles,
// as SVG.
func Plot(simulated []Result, measured []Point) string {
	bound := plot.Line{
		Name: "bound: replicas × (maxPoolSize + 2)", Color: "#b03030", Dash: "6 4",
	}
	total := plot.Line{Name: "simulated, one load on all replicas", Color: "#2050a0"}
	for _, r := range simulated {
		n := float64(r.Replicas)
		bound.Points = append(bound.Points, plot.Point{X: n, Y: float64(r.Bound)})
		total.Points = append(total.Points, plot.Point{X: n, Y: float64(r.Total())})
	}
	circles := plot.Line{Name: "measured (circles)", Color: "black", Circles: true}
	for _, p := range measured {
		circles.Points = append(circles.Points,
			plot.Point{X: float64(p.Replicas), Y: float64(p.Connections)})
	}
	return plot.Chart{
		X: "replicas of the gateway", Y: "connections to one server",
		Lines: []plot.Line{bound, total, circles},
	}.SVG()
}
