package changes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/internal/browser"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

const (
	database, collection = "shop", "orders"

	path = "/v1/databases/" + database + "/collections/" + collection + ":watch"
	// patience is how long a follower may need after an interruption. EventSource waits for 3 s
	// before it reconnects.
	patience = time.Minute
)

var quiet = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

// plan says how much happens.
type plan struct{ events, cuts, restarts int }

// planned returns the plan: LAB_CHANGES=full, or a short one.
func planned() plan {
	if os.Getenv("LAB_CHANGES") == "full" {
		return plan{events: 10_000, cuts: 50, restarts: 5}
	}
	return plan{events: 600, cuts: 2, restarts: 1}
}

// scene is what followers look at: a deployment, two replicas, and the cables to them.
type scene struct {
	t          *testing.T
	deployment *deployment.Deployment
	replicas   *gatewaytest.Replicas
	writer     *client.Client
	web, rpc   *cable
	followers  map[string]follower
	written    int
}

// newStage starts everything but followers, for which it returns a key.
func newStage(t *testing.T, serve func(*deployment.Deployment)) (s *scene, key string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	s = &scene{
		t: t, deployment: deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0]),
	}
	serve(s.deployment)
	key, line := suite.Key(t, "shop")
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	uri := s.deployment.URI(false, nil)
	s.replicas = suite.StartReplicas(t, 2, uri, "--auth-api-keys-file", keys)
	s.connect(uri)
	s.web = newCable(s.replicas, restAddress)
	s.rpc = newCable(s.replicas, func(r *gatewaytest.Replica) string { return r.GRPC })
	return s, key
}

// newScene starts everything, and a follower for each transport. It returns once all follow.
func newScene(t *testing.T, serve func(*deployment.Deployment)) *scene {
	t.Helper()
	s, key := newStage(t, serve)
	ticket := s.ticket(key)
	url := s.web.serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, following, ticket)
	}))
	ndjson, rpc := lines(t, url, key), messages(t, s.rpc.serveTCP(t), key)
	s.followers = map[string]follower{"lines": ndjson, "messages": rpc}
	ndjson.follow()
	rpc.follow()
	if browser.Installed() {
		p := page{browser.Start(t).Open(url)}
		s.followers["events"] = p
		gatewaytest.Eventually(t, patience, p.opened)
	}
	gatewaytest.Eventually(t, patience, func() error {
		if ndjson.last() == nil || rpc.last() == nil {
			return errors.New("a stream is not open")
		}
		return nil
	})
	return s
}

// untold skips the rest of a test that has told all but what a browser sees, if there is none.
func (s *scene) untold() {
	s.t.Helper()
	if !browser.Installed() {
		s.t.Skip(browser.Missing)
	}
}

func restAddress(r *gatewaytest.Replica) string { return strings.TrimPrefix(r.REST, "http://") }

func (s *scene) connect(uri string) {
	s.t.Helper()
	cfg, err := connstring.Parse(uri)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.writer, err = client.New(cfg, client.Options{}); err != nil {
		s.t.Fatal(err)
	}
	if err := s.writer.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = s.writer.Close(s.t.Context()) })
}

// ticket returns the URL of a ticket, which the first replica makes.
func (s *scene) ticket(key string) string {
	s.t.Helper()
	body := strings.NewReader(fmt.Sprintf(`{"watch": {"database": %q, "collection": %q}}`, database,
		collection))
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost,
		s.replicas.Replica(0).REST+"/v1/changeStreams:ticket", body)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var ticket struct {
		URL string `json:"url"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&ticket); err != nil || ticket.URL == "" {
		s.t.Fatalf("no ticket: %d, %v", resp.StatusCode, err)
	}
	return ticket.URL
}

// write inserts n documents, whose _ids count on: half of them in a transaction. Before it, the
// same documents are in a transaction that aborts.
func (s *scene) write(n int) {
	s.t.Helper()
	plain := n / 2
	s.insert(nil, plain)
	s.written += plain
	s.transaction(n-plain, func(session *client.Session) error {
		return session.AbortTransaction(s.t.Context(), client.EndTransactionOptions{})
	})
	s.transaction(n-plain, func(session *client.Session) error {
		return session.CommitTransaction(s.t.Context(), client.EndTransactionOptions{})
	})
	s.written += n - plain
}

// transaction inserts the next n documents in a transaction, which end ends.
func (s *scene) transaction(n int, end func(*client.Session) error) {
	s.t.Helper()
	session, err := s.writer.StartSession(session.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer session.End(s.t.Context())
	if err := session.StartTransaction(client.TransactionOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.insert(session, n)
	if err := end(session); err != nil {
		s.t.Fatal(err)
	}
}

// insert inserts the next n documents.
func (s *scene) insert(session *client.Session, n int) {
	s.t.Helper()
	if n == 0 {
		return
	}
	docs := make([]bson.Raw, n)
	for i := range docs {
		docs[i] = bson.NewBuilder(nil).Int32("_id", int32(s.written+i)).Finish()
	}
	ns := client.Namespace{Database: database, Collection: collection}
	opt := client.InsertManyOptions{}
	opt.Session = session
	if _, err := s.writer.InsertMany(s.t.Context(), ns, docs, opt); err != nil {
		s.t.Fatal(err)
	}
}

// caughtUp waits until all followers have seen as many events.
func (s *scene) caughtUp(events int) {
	s.t.Helper()
	gatewaytest.Eventually(s.t, patience, func() error {
		for name, f := range s.followers {
			if n := len(f.story().Events); n < events {
				return fmt.Errorf("%s has %d of %d events", name, n, events)
			}
		}
		return nil
	})
}

// closed waits until no follower opens another stream.
func (s *scene) closed() {
	s.t.Helper()
	gatewaytest.Eventually(s.t, patience, func() error {
		for name, f := range s.followers {
			if story := f.story(); !story.Closed {
				return fmt.Errorf("%s goes on after %q", name, story.Ends)
			}
		}
		return nil
	})
}

// TestChanges has a browser, a client of lines and a client of gRPC follow a collection while
// connections are cut on either side and replicas are restarted. Each gets each event once and in
// order. An invalidate event ends them all.
func TestChanges(t *testing.T) { testChanges(t, scripted) }

// TestChangesOnEngine follows the changes of PostgreSQL with DocumentDB, by its resume tokens.
func TestChangesOnEngine(t *testing.T) {
	testChanges(t, func(d *deployment.Deployment) { docdb.Serve(t, d) })
}

// scripted leaves a deployment its own data.
func scripted(*deployment.Deployment) {}

func testChanges(t *testing.T, serve func(*deployment.Deployment)) {
	s, p := newScene(t, serve), planned()
	acts := p.cuts + p.restarts
	for act := range acts {
		n := p.events*(act+1)/acts - s.written
		s.write(n / 2)
		if every := acts / p.restarts; act%every == every-1 {
			i := act / every % 2
			s.replicas.Replace(t.Context(), i, act%4 >= 2)
		} else {
			s.web.cut(side(act % 2))
			s.rpc.cut(side(act % 2))
		}
		s.write(n - n/2)
		s.caughtUp(s.written)
	}
	drop := bson.NewBuilder(nil).String("drop", collection).Finish()
	if _, err := s.writer.RunCommand(t.Context(), database, drop,
		client.RunCommandOptions{}); err != nil {
		t.Fatal(err)
	}
	s.closed()
	want := make([]any, p.events, p.events+2)
	for i := range want {
		want[i] = float64(i)
	}
	want = append(want, "drop", "invalidate")
	for name, f := range s.followers {
		got := f.story()
		if !slices.Equal(got.Events, want) {
			t.Errorf("%s: %d events, want %d: %s", name, len(got.Events), len(want),
				difference(got.Events, want))
		}
		if n := len(got.Ends); n == 0 || got.Ends[n-1] != "end" {
			t.Errorf("%s: it ends with %q", name, got.Ends)
		}
		t.Logf("%s: %d events over %d streams, which ended with %v", name, len(got.Events),
			got.Opened, counts(got.Ends))
	}
	s.untold()
}

// difference returns the first place where two lists differ.
func difference(got, want []any) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("event %d is %v, want %v", i, got[i], want[i])
		}
	}
	return "the beginning is right"
}

func counts(texts []string) map[string]int {
	n := map[string]int{}
	for _, text := range texts {
		n[text]++
	}
	return n
}

// TestHistoryLost lets the deployment forget what comes after the tokens of interrupted streams.
// Each follower learns it by an event of its own, and opens no further stream.
func TestHistoryLost(t *testing.T) {
	s := newScene(t, scripted)
	s.write(5)
	s.caughtUp(5)
	lost, err := extjson.Parse(nil, []byte(
		`{"ok": 0, "code": 286, "codeName": "ChangeStreamHistoryLost", "errmsg": "the log begins later"}`))
	if err != nil {
		t.Fatal(err)
	}
	s.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "aggregate" || cmd.Name == "getMore" { // else they go on from memory
			return fakemongo.Document(lost)
		}
		return next(cmd)
	})
	s.web.cut(clients)
	s.rpc.cut(clients)
	s.closed()
	for name, f := range s.followers {
		got := f.story()
		if n := len(got.Ends); len(got.Events) != 5 || n == 0 ||
			got.Ends[n-1] != "ChangeStreamHistoryLost" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	s.untold()
}
