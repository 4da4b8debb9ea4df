package changes_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	mooring "github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// liveFilters has fifty filters on the documents of the writer. The scripted deployment knows none
// that looks into arrays.
func liveFilters() (all []string) {
	all = append(all, `{}`)
	for i := range 49 {
		all = append(all, []string{
			fmt.Sprintf(`{"n": {"$gte": %d}}`, i%10),
			fmt.Sprintf(`{"n": %d, "in.s": {"$exists": true}}`, i%10),
			fmt.Sprintf(`{"$or": [{"n": {"$lt": %d}}, {"in.s": "t%d"}]}`, i%7, i%5),
			fmt.Sprintf(`{"in.s": {"$in": ["t%d", "t%d"]}}`, i%5, i%3),
			fmt.Sprintf(`{"n": {"$gt": %d}, "in.s": {"$lte": "t%d"}}`, i%4, i%5),
			fmt.Sprintf(`{"n": {"$nin": [%d, %d]}, "_id": {"$gt": %d}}`, i%4, i%10, i),
			fmt.Sprintf(`{"_id": {"$lt": %d}}`, 4*i),
		}[i%7])
	}
	return all
}

// viewer is a client of live documents.
type viewer struct {
	filter string
	slow   bool

	mu   sync.Mutex
	list map[string]string // documents as JSON, by the JSON of their _id
	next map[string]string // those of a new stream that is not ready; nil: there is none
	// opened counts the streams that the viewer sees, and ended is why the last has ended.
	opened int
	ended  error
}

func (v *viewer) apply(kind string, document []byte) error {
	if v.slow {
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // a slow reader
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	to := v.list
	if v.next != nil {
		to = v.next
	}
	if kind == "ready" {
		v.list, v.next = to, nil
		v.opened++
		return nil
	}
	d, err := extjson.Parse(nil, document)
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	id, text, err := written(d)
	switch {
	case err != nil:
		return err
	case kind == "removed":
		delete(to, id)
	default:
		to[id] = text
	}
	return nil
}

func written(d bson.Raw) (id, text string, err error) {
	v, _ := d.Lookup("_id")
	key, err := extjson.AppendValue(nil, v, extjson.Relaxed)
	if err != nil {
		return "", "", err
	}
	all, err := extjson.Append(nil, d, extjson.Relaxed)
	return string(key), string(all), err
}

func (v *viewer) end(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = err
}

func (v *viewer) has(want map[string]string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next == nil && maps.Equal(v.list, want) {
		return nil
	}
	return fmt.Errorf("%s: the client has %d documents, and a find %d (%v and %v); its last "+
		"stream has ended with %w",
		v.filter, len(v.list), len(want), first(v.list, want), first(want, v.list), v.ended)
}

// first returns a document of a that b does not have.
func first(a, b map[string]string) string {
	for id, text := range a {
		if b[id] != text {
			return text
		}
	}
	return ""
}

// byLines follows over NDJSON, and opens another stream whenever one ends.
func (v *viewer) byLines(ctx context.Context, url, key string) {
	for ctx.Err() == nil {
		v.end(v.lines(ctx, url, key)) // it goes on
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (v *viewer) lines(ctx context.Context, url, key string) error {
	at := url + strings.TrimSuffix(path, ":watch") + "/documents:live"
	body := strings.NewReader(`{"filter": ` + v.filter + `}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/x-ndjson")
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, why)
	}
	v.mu.Lock()
	v.next = map[string]string{}
	v.mu.Unlock()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		if len(line) == 1 {
			continue // nothing has changed for a while
		}
		var said map[string]json.RawMessage
		if err := json.Unmarshal(line, &said); err != nil {
			return err
		}
		for kind, document := range said {
			if kind == "error" {
				return errors.New(string(document))
			}
			if err := v.apply(kind, document); err != nil {
				return err
			}
		}
	}
}

// byClient follows with the client for Go.
func (v *viewer) byClient(ctx context.Context, orders *mooring.Collection[bson.Raw]) {
	for ctx.Err() == nil {
		v.mu.Lock()
		v.next = map[string]string{}
		v.mu.Unlock()
		for live, err := range orders.Live(ctx, mooring.JSON(v.filter)) {
			if err != nil {
				v.end(err)
				break // the first stream of all was refused
			}
			var text bytes.Buffer
			if live.Document != nil {
				all, err := extjson.Append(nil, live.Document, extjson.Canonical)
				if err != nil {
					break
				}
				text.Write(all)
			}
			if err := v.apply(string(live.Kind), text.Bytes()); err != nil {
				break
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLiveDocuments has clients follow live documents, over gRPC, Connect, gRPC-Web and NDJSON,
// each with a filter of its own, while a writer changes them, connections are cut, replicas are
// killed, primaries step down and events fall out of the gateway's memory. After each pause each
// client has what a find returns.
//
// LAB_LIVE=500 says how many clients, and LAB_LIVE_FOR=20m how long.
func TestLiveDocuments(t *testing.T) { testLiveDocuments(t, scripted) }

// TestLiveDocumentsOnEngine does it with the snapshots and changes of PostgreSQL with DocumentDB.
func TestLiveDocumentsOnEngine(t *testing.T) {
	testLiveDocuments(t, func(d *deployment.Deployment) { docdb.Serve(t, d) })
}

func testLiveDocuments(t *testing.T, serve func(*deployment.Deployment)) {
	viewers := number(t, "LAB_LIVE", 60)
	lasts, _ := time.ParseDuration(os.Getenv("LAB_LIVE_FOR"))
	s, key := newStage(t, serve)
	url, target := s.web.serveHTTP(t, http.NotFoundHandler()), s.rpc.serveTCP(t)
	seed := number(t, "LAB_LIVE_SEED", 1)
	w := &liveWriter{scene: s, rand: rand.New(rand.NewPCG(uint64(seed), 1))} //nolint:gosec // a test
	w.write(100)

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var all []*viewer
	var orders *mooring.Collection[bson.Raw]
	filters := liveFilters()
	for i := range viewers {
		if i%100 == 0 { // a connection for each hundred
			cc, err := grpc.NewClient(target,
				grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cc.Close() }()
			orders = mooring.In[bson.Raw](mooring.New(cc, mooring.Options{Token: key}), database,
				collection)
		}
		v := &viewer{
			filter: filters[i%len(filters)], slow: i%10 == 9,
			list: map[string]string{}, next: map[string]string{},
		}
		all = append(all, v)
		of := orders
		running.Go(func() {
			switch i % 4 {
			case 0:
				v.byLines(ctx, url, key)
			case 1:
				v.byClient(ctx, of)
			case 2:
				v.byFrames(ctx, url, key, overConnect)
			default:
				v.byFrames(ctx, url, key, overGRPCWeb)
			}
		})
	}
	begun := time.Now()
	rounds := 0
	for ; rounds < 8 || time.Since(begun) < lasts; rounds++ {
		w.write(40)
		switch rounds % 8 {
		case 1, 5:
			s.web.cut(side(rounds / 4 % 2))
			s.rpc.cut(side(rounds / 4 % 2))
		case 2:
			s.replicas.Replace(t.Context(), rounds/8%2, true)
		case 3:
			w.large(8)
		case 4:
			s.deployment.FailOver()
		case 6:
			s.replicas.Replace(t.Context(), rounds/8%2, false)
		case 7:
			s.run(`{"drop": "orders"}`)
		}
		w.write(40)
		wants := map[string]map[string]string{}
		for _, filter := range filters {
			wants[filter] = w.find(filter)
		}
		gatewaytest.Eventually(t, patience, func() error {
			for _, v := range all {
				if err := v.has(wants[v.filter]); err != nil {
					return fmt.Errorf("round %d, seed %d: %w", rounds, seed, err)
				}
			}
			return nil
		})
	}
	opened := 0
	for _, v := range all {
		opened += v.opened
	}
	t.Logf("%d clients with %d filters over %d streams: %d writes in %d rounds, %s",
		len(all), len(filters), opened, w.writes, rounds, time.Since(begun).Round(time.Second))
}

// liveWriter changes documents.
type liveWriter struct {
	scene  *scene
	rand   *rand.Rand
	writes int
}

func (w *liveWriter) write(n int) {
	w.scene.t.Helper()
	for range n {
		id := w.rand.IntN(200)
		if w.rand.IntN(4) == 0 {
			w.scene.run(fmt.Sprintf(
				`{"delete": "orders", "deletes": [{"q": {"_id": %d}, "limit": 1}]}`, id))
		} else {
			w.scene.run(fmt.Sprintf(
				`{"update": "orders", "updates": [{"q": {"_id": %d}, "u": {"$set": {"n": %d, "in": {"s": "t%d"}, "list": [%d, %d]}}, "upsert": true}]}`,
				id, w.rand.IntN(10), w.rand.IntN(5), w.rand.IntN(4), w.rand.IntN(4)))
		}
		w.writes++
	}
}

// large writes documents of 1 MiB, and deletes them, so that events fall out of a ring of 4 MiB.
func (w *liveWriter) large(n int) {
	w.scene.t.Helper()
	text := strings.Repeat("x", 1<<20)
	for i := range n {
		w.scene.run(fmt.Sprintf(`{"insert": "orders", "documents": [{"_id": %d, "text": %q}]}`,
			1000+i, text))
		w.scene.run(fmt.Sprintf(`{"delete": "orders", "deletes": [{"q": {"_id": %d}, "limit": 1}]}`,
			1000+i))
		w.writes += 2
	}
}

// find returns what a find returns: documents by the JSON of their _id.
func (w *liveWriter) find(filter string) map[string]string {
	t := w.scene.t
	t.Helper()
	f, err := extjson.Parse(nil, []byte(filter))
	if err != nil {
		t.Fatal(err)
	}
	cur, err := w.scene.writer.Find(t.Context(),
		client.Namespace{Database: database, Collection: collection}, client.FindOptions{Filter: f})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for !cur.Done() {
		batch, err := cur.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range batch.Documents {
			id, text, err := written(d)
			if err != nil {
				t.Fatal(err)
			}
			found[id] = text
		}
	}
	return found
}
