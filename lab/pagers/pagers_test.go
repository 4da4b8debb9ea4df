package pagers_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/canned"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/haproxy"
	"github.com/mooringdb/mooring/lab/internal/proc"
	"github.com/mooringdb/mooring/lab/internal/prometheus"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

const (
	replicas   = 2
	database   = "lab"
	dataSource = "mongodb-atlas"
	// processSize is what docs/operations.md has a process take beside requests.
	processSize = 40 << 20
	// beyond is what may be in use beyond the budget: one reply at a time for which there is no
	// room, of at most 16 MiB, and pages that cursors keep, which are charged when they are there.
	beyond = 24 << 20
)

// scale says how large the experiment is.
type scale struct {
	pagers int
	time   time.Duration // in which pagers begin results
	every  time.Duration // between two restarts, the first of which comes after half of it
	linger time.Duration // drain.linger
	result int           // bytes of a collection
}

// measure returns the scale of LAB_PAGERS (make pagers), or a short one.
func measure(t *testing.T) scale {
	text := os.Getenv("LAB_PAGERS")
	if text == "" {
		return scale{50, 3 * time.Second, 3 * time.Second, 300 * time.Millisecond, 5 << 20}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return scale{100, d, time.Minute, 2 * time.Second, 20 << 20}
}

// TestPagers has clients read results of large documents, in pages over REST and gRPC, and as
// bodies of the Data API, from two replicas of which one is restarted at a time. Clients do what
// the `retry` of an error and Retry-After say. With any budget no result has a document twice, or
// too few of them; no cursor is lost, no body is cut off but by the end of a drain timeout, and the
// budget holds.
func TestPagers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	s := measure(t)
	var table strings.Builder
	table.WriteString("budget    API      pages   documents  MB      results  429    409  cut  " +
		"begun again  failed calls\n")
	for _, budget := range []string{"auto", "64MiB"} {
		t.Run(budget, func(t *testing.T) {
			w := newWorld(t, s, budget)
			w.run()
			w.report(&table)
		})
	}
	t.Logf("%d pagers, %v for each budget\n%s", s.pagers, s.time, table.String())
}

// collection holds what is in a collection of the server.
type collection struct {
	name       string
	bson, json [][]byte
}

// collections returns those that pagers read, each of about so many bytes.
func collections(t *testing.T, bytes int) (all []*collection) {
	for _, sizes := range [][]int{
		{10 << 10}, {100 << 10}, {1 << 20}, {10 << 10, 100 << 10, 1 << 20},
	} {
		total, suffix := 0, ""
		for _, size := range sizes {
			total += size
			suffix += "_" + strconv.Itoa(size)
		}
		kind, count := "docs", bytes/total*len(sizes)
		if len(sizes) > 1 {
			kind = "mix"
		}
		c := &collection{name: fmt.Sprintf("%s_%d%s", kind, count, suffix)}
		for i := range count {
			doc, err := canned.Document(c.name, i)
			if err != nil {
				t.Fatal(err)
			}
			pad := bytesOfPad(doc)
			c.bson = append(c.bson, doc)
			c.json = append(c.json, fmt.Appendf(nil, `{"_id":%d,"pad":"%s"}`, i, pad))
		}
		all = append(all, c)
	}
	return all
}

// bytesOfPad returns the text of a document, which stands behind the _id and its own name and
// length, and before two zeros.
func bytesOfPad(doc []byte) []byte {
	const before = len("....\x10_id\x00....\x02pad\x00....")
	return doc[before : len(doc)-2]
}

// world is what pagers read from.
type world struct {
	scale
	t        *testing.T
	budget   string
	replicas *gatewaytest.Replicas
	pagers   []*pager
	tallies  []*tally // one for each API
	restarts int
	drains   []drain // one for each restart
	memory   memory
}

// memory holds the most that one replica had at a time.
type memory struct {
	used, limit float64 // of mooring_admission_used and mooring_admission_limit
	resident    int64
}

func newWorld(t *testing.T, s scale, budget string) *world {
	server, err := canned.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	all := suite.StartReplicas(t, replicas, server.URI(), "--memory-budget", budget,
		"--data-api-sources", dataSource, "--drain-linger", s.linger.String(),
		"--drain-timeout", drainTimeout.String(),
		"--admin-address", "127.0.0.1:0")
	for i := range replicas {
		n, err := proc.RSS(all.Replica(i).Pid())
		if err != nil || n > processSize {
			t.Errorf("a replica takes %d bytes before its first request, of at most %d: %v",
				n, processSize, err)
		}
	}
	tr := &http.Transport{MaxIdleConnsPerHost: s.pagers}
	t.Cleanup(tr.CloseIdleConnections)
	over := overHTTP{
		"http://" + haproxy.StartHTTP(t, "/readyz", all.RESTAddresses()...).Address,
		&http.Client{Transport: tr},
	}
	w := &world{scale: s, t: t, budget: budget, replicas: all}
	apis := []api{overREST{over}, overGRPC{all}, overDataAPI{over}}
	for range apis {
		w.tallies = append(w.tallies, &tally{failed: map[string]int{}})
	}
	read := collections(t, s.result)
	for i := range s.pagers {
		k := i % len(apis)
		w.pagers = append(w.pagers, &pager{
			api: apis[k], tally: w.tallies[k], collection: read[i/len(apis)%len(read)],
		})
	}
	return w
}

// run has the pagers read, restarts replicas and looks at their memory.
func (w *world) run() {
	ctx, stop := context.WithTimeout(w.t.Context(), w.time)
	defer stop()
	measured, end := context.WithCancel(w.t.Context())
	var watch, readers sync.WaitGroup
	watch.Go(func() { w.watch(measured) })
	for _, p := range w.pagers {
		readers.Go(func() { p.run(ctx) })
	}
	next := time.NewTimer(w.every / 2)
	defer next.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-next.C:
			w.restart(ctx)
			next.Reset(w.every)
		}
	}
	readers.Wait()
	end()
	watch.Wait()
}

// restart replaces the next replica, and keeps what its end says.
func (w *world) restart(ctx context.Context) {
	old := w.replicas.Replica(w.restarts % replicas)
	over := time.Now().Add(w.linger + drainTimeout)
	w.replicas.Replace(ctx, w.restarts%replicas, false)
	w.drains = append(w.drains, drainOf(over, old.Tail()))
	w.restarts++
}

// watch looks at the memory of all replicas until ctx ends.
func (w *world) watch(ctx context.Context) {
	for ctx.Err() == nil {
		for i := range replicas {
			w.memory.sample(ctx, w.replicas.Replica(i))
		}
		pause(100 * time.Millisecond)
	}
}

// sample looks at a replica, which may have ended just now.
func (m *memory) sample(ctx context.Context, r *gatewaytest.Replica) {
	if n, err := proc.PeakRSS(r.Pid()); err == nil {
		m.resident = max(m.resident, n)
	}
	_, series, err := prometheus.Scrape(ctx, r.Admin+"/metrics")
	if err != nil {
		return
	}
	m.used = math.Max(m.used, series[`mooring_admission_used{resource="memory"}`])
	m.limit = math.Max(m.limit, series[`mooring_admission_limit{resource="memory"}`])
}

// report writes what has happened, and judges it.
func (w *world) report(table *strings.Builder) {
	var cuts []time.Time
	for i, name := range []string{"REST", "gRPC", "Data API"} {
		y := w.tallies[i]
		fmt.Fprintf(table, "%-9s %-8s %-7d %-10d %-7d %-8d %-6d %-4d %-4d %-12d %s\n",
			w.budget, name, y.pages, y.documents, y.bytes>>20, y.results, y.busy, y.conflicts,
			len(y.cuts), y.restarts, y.errors())
		for n, err := range y.lost {
			if w.t.Errorf("a result was lost: %v", err); n == 10 {
				break
			}
		}
		cuts = append(cuts, y.cuts...)
		if y.pages == 0 || y.conflicts > 0 {
			w.t.Errorf("%s: %d pages, of which there must be some; %d answers of 409, of which "+
				"there must be none", name, y.pages, y.conflicts)
		}
	}
	drained := 0
	for i, d := range w.drains {
		drained += d.cut
		if len(d.log) > 0 {
			w.t.Logf("restart %d:\n%s", i, strings.Join(d.log, "\n"))
		}
	}
	for i := range replicas {
		if log := failures(w.replicas.Replica(i).Tail()); len(log) > 0 {
			w.t.Logf("replica %d at the end:\n%s", i, strings.Join(log, "\n"))
		}
	}
	if n := unexplained(cuts, w.drains); n > 0 {
		w.t.Errorf("%d cut bodies that no drain timeout has cut, of which there must be none", n)
	}
	least := w.pagers[0].pages
	for _, p := range w.pagers {
		least = min(least, p.pages)
	}
	m := w.memory
	fmt.Fprintf(table, "%-9s restarts: %d, which cut %d calls; pages of the pager with the "+
		"fewest: %d; budget in use: %.0f of %.0f MiB; resident: %d MiB\n", w.budget, w.restarts,
		drained, least,
		m.used/(1<<20), m.limit/(1<<20), m.resident>>20)
	if w.restarts == 0 || m.limit == 0 {
		w.t.Errorf("%d restarts, a budget of %.0f bytes", w.restarts, m.limit)
	}
	most := int64(m.limit) + beyond
	if int64(m.used) > most {
		w.t.Errorf("%.0f bytes of a budget of %.0f were in use", m.used, m.limit)
	}
	if most = most/4*5 + processSize; m.resident > most {
		w.t.Errorf("%d bytes were resident, of at most %d", m.resident, most)
	}
}
