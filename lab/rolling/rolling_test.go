package rolling_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/haproxy"
)

const (
	replicas  = 3
	documents = 2000
	batchSize = 20
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// scale says how large the experiment is.
type scale struct {
	clients int           // of which one half reads pages, the other streams
	linger  time.Duration // drain.linger
	settle  time.Duration // between two replacements
}

// TestReplacement has clients read pages and streams through haproxy while three replicas are
// restarted one after the other, while each is stopped once its successor is ready, and while one
// is killed. Clients do what the `retry` of an error says: no result is lost, and none has a gap or
// a repetition. A replica that stops loses no cursor. LAB_ROLLING=full (make rolling) takes 200
// clients and the times of an installation.
func TestReplacement(t *testing.T) { testReplacement(t, scripted) }

// TestReplacementOnEngine has the cursors of PostgreSQL with DocumentDB.
func TestReplacementOnEngine(t *testing.T) { testReplacement(t, onEngine) }

func testReplacement(t *testing.T, serve func(*testing.T) (uri string)) {
	s := scale{clients: 30, linger: 300 * time.Millisecond, settle: 300 * time.Millisecond}
	if os.Getenv("LAB_ROLLING") == "full" {
		s = scale{clients: 200, linger: 2 * time.Second, settle: 5 * time.Second}
	}
	table := "what happened            replicas  pages   streams  first tries that failed, " +
		"by error\n"
	for _, row := range []struct {
		name    string
		count   int
		crash   bool
		replace func(w *world, i int)
	}{
		{"restart, one by one", replicas, false, (*world).restart},
		{"successor first", replicas, false, (*world).succeed},
		{"SIGKILL of one", 1, true, (*world).kill},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, s, serve(t))
			w.run(func() {
				for i := range row.count {
					row.replace(w, i)
					pause(s.settle)
				}
			})
			w.mu.Lock()
			defer w.mu.Unlock()
			table += fmt.Sprintf("%-24s %-9d %-7d %-8d %s; results lost: %d\n",
				row.name, row.count, w.pages, w.streams, w.errors(), w.lost)
			if w.lost > 0 || w.pages == 0 || w.streams == 0 {
				t.Errorf("%d results were lost, of %d pages and %d streams: %s", w.lost, w.pages,
					w.streams, w.errors())
			}
			if n := w.failed["CursorPositionUnknown"]; n > 0 && !row.crash {
				t.Errorf("%d cursors were not handed over", n)
			}
		})
	}
	t.Logf("%d clients\n%s", s.clients, table)
}

// world is what clients read from, and what they count.
type world struct {
	scale
	t        *testing.T
	url      string
	replicas *gatewaytest.Replicas
	http     *http.Client

	mu      sync.Mutex
	pages   int
	streams int
	lost    int
	failed  map[string]int
}

// scripted starts a scripted replica set with the documents.
func scripted(t *testing.T) (uri string) {
	cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{TCP: true, Discard: true},
		fakemongo.Primary, fakemongo.Secondary, fakemongo.Secondary)
	for _, h := range cluster.Hosts() {
		h.SetDocuments("db.c", fakemongo.Numbered(0, documents, 500)...)
	}
	return cluster.URI("replicaSet=rs")
}

// onEngine starts PostgreSQL with DocumentDB behind a scripted deployment.
func onEngine(t *testing.T) (uri string) {
	d := deployment.ListenUnrecorded(t, deployment.ReplicaSet, "7.0.0")
	docdb.Serve(t, d)
	if err := d.SetCollection("db", "c", nil, fakemongo.Numbered(0, documents, 500)); err != nil {
		t.Fatal(err)
	}
	return d.URI(false, nil)
}

func newWorld(t *testing.T, s scale, uri string) *world {
	all := suite.StartWithSpares(t, replicas, uri, "--drain-linger", s.linger.String())
	tr := &http.Transport{MaxIdleConnsPerHost: s.clients}
	t.Cleanup(tr.CloseIdleConnections)
	w := &world{
		scale: s, t: t, replicas: all, failed: map[string]int{},
		url:  "http://" + haproxy.StartHTTP(t, "/readyz", all.RESTAddresses()...).Address,
		http: &http.Client{Transport: tr, Timeout: time.Minute},
	}
	for i := range replicas {
		w.ready(t, i)
	}
	pause(5 * haproxy.CheckInterval) // until haproxy knows which addresses are not in use
	return w
}

// restart stops a replica, and starts it again at the same addresses.
func (w *world) restart(i int) {
	w.replicas.Replace(w.t.Context(), i, false)
	w.ready(w.t, i)
}

// kill kills a replica, and starts it again.
func (w *world) kill(i int) {
	w.replicas.Replace(w.t.Context(), i, true)
	w.ready(w.t, i)
}

// succeed starts a successor, and stops the replica once the successor is ready and haproxy may
// know it, as a rolling update of Kubernetes with maxSurge 1 and maxUnavailable 0 does.
func (w *world) succeed(i int) {
	old := w.replicas.Succeed(w.t.Context(), i)
	w.ready(w.t, i)
	pause(2 * haproxy.CheckInterval)
	_ = old.Stop(gateway.StartTime) // it may take its time
}

// ready waits until a replica has found the deployment.
func (w *world) ready(t *testing.T, i int) {
	t.Helper()
	late := time.Now().Add(time.Minute)
	for {
		resp, err := http.Get(w.replicas.Replica(i).REST + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(late) {
			t.Fatalf("replica %d is not ready after a minute: %v", i, err)
		}
		pause(20 * time.Millisecond)
	}
}

// run runs the clients while do replaces replicas.
func (w *world) run(do func()) {
	ctx, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for i := range w.clients {
		c := &client{world: w}
		if i%2 == 0 {
			clients.Go(func() { c.readPages(ctx) })
		} else {
			clients.Go(func() { c.readStreams(ctx) })
		}
	}
	pause(w.settle)
	do()
	stop()
	clients.Wait()
}

// errors lists the errors with their numbers.
func (w *world) errors() string {
	if len(w.failed) == 0 {
		return "none"
	}
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(w.failed)) {
		list = append(list, fmt.Sprintf("%d %s", w.failed[reason], reason))
	}
	return strings.Join(list, ", ")
}

func pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// short returns an error of the network without addresses.
func short(err error) string {
	text := err.Error()
	return strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:])
}
