package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/app"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// rolling is one row of the experiment: how a deployment of three replicas is replaced.
type rolling struct {
	cursors int
	preStop time.Duration // between the removal from the load balancer and SIGTERM
	dns     time.Duration // how late DNS is
	linger  time.Duration
	// balancer is how long the load balancer still sends clients to a replica that is to go.
	balancer time.Duration
}

// TestRollingRestart replaces three replicas one after the other while clients read cursors in
// pages from all of them, and DNS learns late of the new addresses. No cursor is lost, and no
// call fails at the first try. MOORING_ROLLING=1 (make rolling) measures it in the times of a
// Kubernetes cluster, and prints a table.
func TestRollingRestart(t *testing.T) {
	rows := []rolling{
		{cursors: 20, preStop: 200 * time.Millisecond, dns: 2 * time.Second, linger: 200 * time.Millisecond},
	}
	if os.Getenv("MOORING_ROLLING") != "" {
		rows = nil
		for _, preStop := range []time.Duration{5 * time.Second, 0} {
			for _, dns := range []time.Duration{0, 5 * time.Second, 10 * time.Second} {
				rows = append(rows, rolling{200, preStop, dns, 2 * time.Second, time.Second / 2})
			}
		}
	}
	table := "preStop  DNS late  pages  failed first tries  cursors lost\n"
	for _, row := range rows {
		w := newRollingWorld(t, row)
		w.run()
		table += fmt.Sprintf("%-8s %-9s %-6d %-19d %d\n", row.preStop, row.dns, w.pages, w.failed,
			w.lost)
		if w.lost > 0 || w.failed > 0 {
			t.Errorf("preStop %s, DNS %s late: %d first tries failed, %d of %d cursors "+
				"were lost: %v",
				row.preStop, row.dns, w.failed, w.lost, row.cursors, w.reasons)
		}
	}
	t.Logf("\n%s", table)
}

// rollingWorld is a deployment of gateways, a load balancer, DNS, and the clients.
type rollingWorld struct {
	rolling
	t     *testing.T
	uri   string
	keys  string
	port  string // of all replicas
	lives int
	http  *http.Client

	mu        sync.Mutex
	endpoints []string // to which the load balancer sends clients
	names     []string // what DNS says
	pages     int
	failed    int
	lost      int
	reasons   map[string]int
}

// rollingPage is a page, or an error.
type rollingPage struct {
	Documents []struct {
		ID int `json:"_id"`
	}
	Cursor string
	Error  struct{ Reason string }
}

// replicaLife is one replica, in one of its lives.
type replicaLife struct {
	*app.App
	host string
}

const (
	rollingDocuments = 2000
	rollingBatch     = 4
)

func newRollingWorld(t *testing.T, row rolling) *rollingWorld {
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", fakemongo.Numbered(0, rollingDocuments, 10)...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(tr.CloseIdleConnections)
	return &rollingWorld{
		rolling: row, t: t, uri: mongo.URI(), keys: keys, port: port,
		http:    &http.Client{Transport: tr, Timeout: waitTime},
		reasons: map[string]int{},
	}
}

func (w *rollingWorld) lookup(context.Context, string) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.names), nil
}

// start starts a replica at an address of its own, which DNS learns late.
func (w *rollingWorld) start() *replicaLife {
	w.lives++
	host := fmt.Sprintf("127.0.2.%d", w.lives)
	cfg := load(w.t, "--uri", w.uri, "--grpc-address=127.0.0.1:0", "--rest-address=127.0.0.1:0",
		"--handle-keys-file", w.keys, "--idempotency-key-file", w.keys,
		"--replica-address", host+":"+w.port, "--replica-peers", "replicas.test:"+w.port,
		"--drain-linger", w.linger.String())
	gateway, err := app.NewWithLookup(cfg, slog.New(slog.DiscardHandler), w.lookup)
	if err == nil {
		err = gateway.Start(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	rest := "http://" + gateway.Addresses().REST
	for { // it is ready once it has found the deployment
		resp, err := w.http.Get(rest + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		w.wait(10 * time.Millisecond)
	}
	w.mu.Lock()
	w.endpoints = append(w.endpoints, rest)
	w.mu.Unlock()
	w.later(w.dns, func() { w.names = append(w.names, host) })
	return &replicaLife{gateway, host}
}

// replace starts a replica, and ends another one, as Kubernetes does for a Deployment of three
// (maxSurge 1, maxUnavailable 0).
func (w *rollingWorld) replace(old *replicaLife) *replicaLife {
	young := w.start()
	rest := "http://" + old.Addresses().REST
	w.later(w.balancer, func() {
		w.endpoints = slices.DeleteFunc(w.endpoints, func(e string) bool { return e == rest })
	})
	w.later(w.dns, func() {
		w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == old.host })
	})
	w.wait(w.preStop)
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	if err := old.Stop(ctx); err != nil {
		w.t.Errorf("Stop = %v", err)
	}
	return young
}

// later does something under the lock after a while.
func (w *rollingWorld) later(d time.Duration, do func()) {
	locked := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		do()
	}
	if d == 0 {
		locked()
		return
	}
	time.AfterFunc(d, locked)
}

func (w *rollingWorld) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

func (w *rollingWorld) run() {
	replicas := []*replicaLife{w.start(), w.start(), w.start()}
	w.mu.Lock()
	for _, r := range replicas { // DNS knows the first ones
		if !slices.Contains(w.names, r.host) {
			w.names = append(w.names, r.host)
		}
	}
	w.mu.Unlock()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range w.cursors {
		clients.Go(func() { w.read(stop) })
	}
	for i, old := range replicas {
		replicas[i] = w.replace(old)
	}
	w.wait(w.linger)
	close(stop)
	clients.Wait()
	for _, r := range replicas {
		ctx, cancel := context.WithTimeout(context.Background(), waitTime)
		_ = r.Stop(ctx) // it has nothing to hand over to the last ones
		cancel()
	}
}

// read reads a cursor, a page now and then, until stop is closed.
func (w *rollingWorld) read(stop chan struct{}) {
	want := 0
	page := w.call("/v1/databases/db/collections/c/documents:find",
		map[string]any{"batchSize": rollingBatch})
	for {
		for _, doc := range page.Documents {
			if doc.ID != want {
				w.t.Errorf("document %d came where %d was due", doc.ID, want)
			}
			want++
		}
		if page.Error.Reason != "" || page.Cursor == "" {
			return
		}
		select {
		case <-stop:
			return
		default:
			w.wait(time.Duration(50+rand.IntN(300)) * time.Millisecond)
		}
		page = w.call("/v1/cursors:next",
			map[string]any{"cursor": page.Cursor, "batchSize": rollingBatch})
	}
}

// call calls a replica that the load balancer chooses, and other ones if that fails.
func (w *rollingWorld) call(path string, body map[string]any) rollingPage {
	text, _ := json.Marshal(body)
	reason := ""
	for try := range 20 {
		page, err := w.post(path, text)
		w.mu.Lock()
		switch {
		case err != nil:
			reason = err.Error()
		case page.Error.Reason != "":
			reason = page.Error.Reason
		default:
			w.pages++
			w.mu.Unlock()
			return page
		}
		if try == 0 {
			w.failed++
			w.reasons[reason]++
		}
		w.mu.Unlock()
		w.wait(50 * time.Millisecond)
	}
	w.mu.Lock()
	w.lost++
	w.mu.Unlock()
	page := rollingPage{}
	page.Error.Reason = reason
	return page
}

func (w *rollingWorld) post(path string, text []byte) (rollingPage, error) {
	w.mu.Lock()
	endpoint := w.endpoints[rand.IntN(len(w.endpoints))]
	w.mu.Unlock()
	resp, err := w.http.Post(endpoint+path, "application/json", bytes.NewReader(text))
	if err != nil {
		return rollingPage{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return rollingPage{}, err
	}
	var page rollingPage
	return page, json.Unmarshal(b, &page)
}
