package metrics_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/prometheus"
)

// mayBeZero lists the queries that show data but may show 0 only, with the reason.
var mayBeZero = map[string]string{
	"rate(mooring_seedlist_problems_total": "no mongodb+srv:// here: that needs a DNS server",
}

// TestQueries has a real Prometheus scrape two replicas and a gateway behind a load balancer, on
// which everything goes on that a gateway does, faults too, and a gateway that is stopping. Every
// query of the dashboard shows data: a number that is not 0.
func TestQueries(t *testing.T) {
	if !prometheus.Installed() {
		t.Skip(prometheus.Missing)
	}
	w := newWorld(t)
	var targets []string
	for _, g := range append(w.gateways(), w.startStopping()) {
		targets = append(targets, strings.TrimPrefix(g.Admin, "http://"))
	}
	p := prometheus.Start(t, prometheus.Config{Targets: targets})
	began := time.Now()
	stop := w.start()
	defer stop()

	waiting := dashboard(t)
	all := len(waiting)
	w.patiently(func() error {
		for _, q := range waiting {
			ok, err := hasData(t.Context(), p, q, began)
			if err != nil {
				return err
			}
			if ok {
				waiting = slices.DeleteFunc(slices.Clone(waiting), func(s string) bool {
					return s == q
				})
			}
		}
		if len(waiting) > 0 {
			return fmt.Errorf("no data of\n%s", strings.Join(waiting, "\n"))
		}
		return nil
	})
	t.Logf("%d queries show data after %v; sent: %v", all, time.Since(began).Round(time.Second),
		w.sent.all())
	for _, name := range slices.Sorted(maps.Keys(mayBeZero)) {
		t.Logf("may be 0: %s…: %s", name, mayBeZero[name])
	}
}

// dashboard returns the queries of the dashboard for all instances, with shorter ranges.
func dashboard(t *testing.T) []string {
	t.Helper()
	root, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy/grafana/mooring.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var queries []string
	for _, panel := range file.Panels {
		for _, target := range panel.Targets {
			q := strings.ReplaceAll(target.Expr, "$instance", ".*")
			queries = append(queries, prometheus.Faster(q))
		}
	}
	if len(queries) < 50 {
		t.Fatalf("the dashboard has %d queries", len(queries))
	}
	return queries
}

// hasData reports whether a query has had a value since a time that is not 0, or 0 if it may.
func hasData(
	ctx context.Context, p *prometheus.Server, query string, since time.Time,
) (bool, error) {
	zero := false
	for name := range mayBeZero {
		zero = zero || strings.HasPrefix(query, name)
	}
	all, err := p.Range(ctx, query, since)
	for _, series := range all {
		for _, v := range series.Values {
			if !math.IsNaN(v) && (v != 0 || zero) {
				return true, err
			}
		}
	}
	return false, err
}

// activity describes something that goes on again and again.
type activity struct {
	name string
	do   func(*world, context.Context) error
	// pause is the time between the end of one and the next.
	pause time.Duration
	// many is how many go on at a time; 0: one.
	many int
}

const often = 50 * time.Millisecond

// activities list what goes on. An error is logged if the test fails: faults make some.
var activities = []activity{
	{name: "insert", do: find(0, "watched", "insertOne", `{"document": {"a": 1}}`), pause: often},
	{name: "find", do: find(1, "many", "find", "{}"), pause: often},
	{name: "bad query", do: find(0, "many", "find", `{"filter": {"$nonsense": 1}}`), pause: often},
	{name: "stream", do: find(1, "many", "streamFind", "{}"), pause: often},
	{name: "slow find", do: find(0, "slow", "find", "{}"), pause: often, many: 4},
	{name: "cut", do: find(0, "cut", "find", "{}"), pause: 4 * often},
	{name: "overloaded", do: find(1, "overloaded", "find", "{}"), pause: 4 * often},
	{name: "watch", do: watch, pause: often},
	{name: "forwarded page", do: forward, pause: often},
	{name: "transaction", do: begin, pause: often},
	{name: "election", do: elect, pause: time.Second},
	{name: "server down", do: takeDown, pause: time.Second},
	{name: "pinned cursor", do: pin, pause: often},
	{name: "watches of health", do: watchHealth, pause: time.Second},
	{name: "too many finds", do: find(2, "slow", "find", "{}"), pause: often, many: 10},
}

// start begins the activities, and returns what ends them and waits for their ends.
func (w *world) start() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	for _, a := range activities {
		for range max(1, a.many) {
			w.running.Go(func() {
				for ctx.Err() == nil {
					if err := a.do(w, ctx); err != nil && ctx.Err() == nil {
						w.failed.add(fmt.Sprintf("%s: %v", a.name, err))
					} else {
						w.sent.add(a.name)
					}
					select {
					case <-ctx.Done():
					case <-time.After(a.pause):
					}
				}
			})
		}
	}
	return func() {
		cancel()
		w.running.Wait()
	}
}

// find returns what sends a call about a collection of the database shop to a gateway. Whether it
// succeeds depends on the faults.
func find(gateway int, collection, verb, body string) func(*world, context.Context) error {
	return func(w *world, ctx context.Context) error {
		_, err := w.post(ctx, gateway, gatewaytest.Documents("shop", collection, verb), body)
		return err
	}
}

// watch reads a change stream until it is cut, or for a second.
func watch(w *world, ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := w.post(ctx, 0, "/v1/databases/shop/collections/watched:watch", "{}")
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// open returns the token of a cursor that has read one document.
func (w *world) open(ctx context.Context, gateway int) (string, error) {
	page, err := w.post(ctx, gateway, gatewaytest.Documents("shop", "many", "find"),
		`{"batchSize": 1}`)
	if err != nil {
		return "", err
	}
	var opened struct{ Cursor string }
	if err := json.Unmarshal(page, &opened); err != nil || opened.Cursor == "" {
		return "", fmt.Errorf("no cursor: %s, %w", page, err)
	}
	return opened.Cursor, nil
}

// forward opens a cursor on one replica and has another read its next page. The other then asks a
// replica that is gone, for a cursor of that replica.
func forward(w *world, ctx context.Context) error {
	cursor, err := w.open(ctx, 0)
	if err != nil {
		return err
	}
	_, err = w.post(ctx, 1, "/v1/cursors:next", `{"cursor":"`+cursor+`"}`)
	_, orphan := w.post(ctx, 1, "/v1/cursors:next", `{"cursor":"`+w.orphan+`"}`)
	if orphan == nil {
		err = errors.New("the page of a replica that is gone")
	}
	return err
}

// begin begins a transaction and ends it later.
func begin(w *world, ctx context.Context) error {
	b, err := w.post(ctx, 0, "/v1/transactions:begin", "{}")
	if err != nil {
		return err
	}
	var begun struct{ Transaction string }
	if err := json.Unmarshal(b, &begun); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	_, err = w.post(ctx, 0, "/v1/transactions:abort", `{"transaction":"`+begun.Transaction+`"}`)
	return err
}

// elect makes the next of the first two members primary.
func elect(w *world, _ context.Context) error {
	w.elections++
	w.set.Cluster().Host(w.elections % 2).Elect()
	return nil
}

// takeDown ends the third member for a second.
func takeDown(w *world, ctx context.Context) error {
	w.set.Cluster().Host(2).SetDown(true)
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	w.set.Cluster().Host(2).SetDown(false)
	return nil
}

// pin opens a cursor behind the load balancer, which keeps its connection, and closes it later.
func pin(w *world, ctx context.Context) error {
	cursor, err := w.open(ctx, 2)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	_, err = w.post(ctx, 2, "/v1/cursors:close", `{"cursor":"`+cursor+`"}`)
	return err
}

// watchHealth asks for more watches of the health of a replica than a connection may have.
func watchHealth(w *world, ctx context.Context) error {
	conn, err := grpc.NewClient(w.replicas[0].GRPC,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for range 40 {
		stream, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			return err
		}
		if _, err := stream.Recv(); status.Code(err) == codes.Unimplemented {
			return nil
		}
	}
	return errors.New("40 watches are open")
}

// post sends a request to a gateway, and returns the body of a response of 200.
func (w *world) post(ctx context.Context, gateway int, path, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.rest[gateway]+path,
		strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := w.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %.200s", resp.StatusCode, b)
	}
	return b, err
}
