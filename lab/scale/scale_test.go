package scale_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/lab/scale"
)

// load is the load of the table and of the measurement. The server holds each request for 20 ms, so
// that the machine's own delays matter little.
var load = scale.Load{Rate: 400, Service: 0.020, Seconds: 30, MaxPool: 100}

var counts = []int{1, 3, 8, 10, 30, 100, 300, 1000}

func TestSimulate(t *testing.T) {
	// With one replica and no limit the pool is an M/M/∞ queue: 8 connections are in use on
	// average, and the most in a minute is a few standard deviations above.
	r := scale.Simulate(scale.Load{Rate: 400, Service: 0.020, Seconds: 60, MaxPool: 1000}, 1, 1)
	if mean := 8.0; float64(r.Held) < mean+2*math.Sqrt(mean) ||
		float64(r.Held) > mean+7*math.Sqrt(mean) {
		t.Errorf("one replica holds %d connections", r.Held)
	}
	if r.Waited != 0 {
		t.Errorf("%v of the requests waited for one of 1000 connections", r.Waited)
	}
	// A pool that is too small is full, and requests wait.
	if r := scale.Simulate(scale.Load{Rate: 400, Service: 0.020, Seconds: 60, MaxPool: 9}, 1,
		1); r.Held != 9 || r.Waited < 0.3 {
		t.Errorf("a small pool gives %+v", r)
	}
	for _, n := range counts {
		a, b := scale.Simulate(load, n, 1), scale.Simulate(load, n, 1)
		if a != b {
			t.Errorf("the same seed gives %+v and %+v", a, b)
		}
		if a.Total() > a.Bound || a.Bound != n*102 {
			t.Errorf("%d replicas: %+v", n, a)
		}
	}
}

// TestErlang compares the share of requests that wait with Erlang's formula C, for a balancer that
// gives each replica its part of the load.
func TestErlang(t *testing.T) {
	for _, row := range []struct{ replicas, pool int }{{1, 9}, {1, 12}, {2, 6}, {4, 3}, {8, 2}} {
		l := scale.Load{Rate: 400, Service: 0.020, Seconds: 3000, MaxPool: row.pool}
		got := scale.Simulate(l, row.replicas, 1).Waited
		want := erlangC(l.Rate*l.Service/float64(row.replicas), row.pool)
		if math.Abs(got-want) > 0.02 {
			t.Errorf("%d replicas with pools of %d: %.3f of the requests wait, want %.3f",
				row.replicas, row.pool, got, want)
		}
	}
}

// erlangC returns the share that waits for one of so many servers, at a load in erlangs.
func erlangC(load float64, servers int) float64 {
	term, sum := 1.0, 0.0 // load^k / k!
	for k := range servers {
		sum += term
		term *= load / float64(k+1)
	}
	all := term * float64(servers) / (float64(servers) - load)
	return all / (sum + all)
}

// TestMeasured compares the simulation with what was measured on real replicas.
func TestMeasured(t *testing.T) {
	points := measured(t)
	if len(points) < 3 {
		t.Fatalf("there are %d measured points", len(points))
	}
	for _, p := range points {
		got := scale.Simulate(load, p.Replicas, 1).Total()
		if off := math.Abs(float64(got-p.Connections)) / float64(p.Connections); off > 0.3 {
			t.Errorf("%d replicas: %d connections are simulated, and %d measured", p.Replicas, got,
				p.Connections)
		}
	}
}

func measured(t *testing.T) (points []scale.Point) {
	t.Helper()
	text, err := os.ReadFile("testdata/measured.json")
	if err == nil {
		err = json.Unmarshal(text, &points)
	}
	if err != nil {
		t.Fatal(err)
	}
	return points
}

// TestPage compares the table and the plot of docs/scaling.md with the simulation and the points in
// testdata. To rewrite them: MOORING_REWRITE=1 go test ./scale
func TestPage(t *testing.T) {
	all, points := measured(t), map[int]string{}
	for _, p := range all {
		points[p.Replicas] = fmt.Sprint(p.Connections)
	}
	var results []scale.Result
	table := "| replicas | simulated | of them monitors | measured | bound " +
		"|\n|---|---|---|---|---|\n"
	for _, n := range counts {
		r := scale.Simulate(load, n, 1)
		results = append(results, r)
		table += fmt.Sprintf("| %d | %d | %d | %s | %d |\n", n, r.Total(), n*scale.Monitors,
			points[n], r.Bound)
	}
	const page, begin, end = "../../docs/scaling.md", "<!-- simulation begin -->\n",
		"<!-- simulation end -->\n"
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(old), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines %q and %q", page, begin, end)
	}
	same(t, page, head+begin+"\n"+table+"\n"+end+tail)
	same(t, "../../docs/scaling.svg", scale.Plot(results, all))
}

// same compares a file with its text, or writes it.
func same(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err == nil && string(got) == want {
		return
	}
	if os.Getenv("MOORING_REWRITE") == "" {
		t.Errorf("%s is not what the simulation gives; MOORING_REWRITE=1 rewrites it (%v)", path,
			err)
		return
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
