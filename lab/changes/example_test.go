package changes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/browser"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// listed is a page with the example of docs/change-streams.md, in a browser.
type listed struct {
	*scene
	page *browser.Page
}

// showList opens the page before a number of replicas, with two orders.
func showList(t *testing.T, replicas int) listed {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	chromium := browser.Start(t)
	d := deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0])
	key, line := suite.Key(t, "shop")
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, deployment: d}
	s.replicas = suite.StartReplicas(t, replicas, d.URI(false, nil), "--auth-api-keys-file", keys)
	s.web = newCable(s.replicas, restAddress)
	s.connect(d.URI(false, nil))
	s.run(`{"insert": "orders", "documents": [{"_id": 1, "customer": "Ada"}, {"_id": 2, "customer": "Ben", "status": "paid"}]}`)
	return listed{
		s, chromium.Open(startExample(t, s.web.serveHTTP(t, http.NotFoundHandler()), key)),
	}
}

// shows waits until the page shows these orders, in this order.
func (l listed) shows(want ...string) {
	l.t.Helper()
	gatewaytest.Eventually(l.t, patience, func() error {
		if text := l.list(); !slices.Equal(text, want) {
			return fmt.Errorf("the page shows %q, want %q", text, want)
		}
		return nil
	})
}

// list returns what the page shows.
func (l listed) list() (text []string) {
	l.page.Evaluate(`[...document.querySelectorAll("#orders li")].map(i => i.textContent)`, &text)
	return text
}

// state returns what the page says of its stream.
func (l listed) state() (text string) {
	l.page.Evaluate(`document.getElementById("state").textContent`, &text)
	return text
}

// TestLiveList has the list follow the collection, also through a gateway's restart, a dropped
// collection and lost history.
func TestLiveList(t *testing.T) {
	s := showList(t, 1)
	s.shows("Ada: new", "Ben: paid")
	s.run(`{"insert": "orders", "documents": [{"_id": {"$oid": "6b00520000000000000000aa"}, "customer": "Cid"}]}`)
	s.run(`{"update": "orders", "updates": [{"q": {"_id": 1}, "u": {"$set": {"status": "paid"}}}]}`)
	s.run(`{"delete": "orders", "deletes": [{"q": {"_id": 2}, "limit": 1}]}`)
	s.shows("Ada: paid", "Cid: new")
	s.replicas.Replace(t.Context(), 0, false)
	s.run(`{"insert": "orders", "documents": [{"_id": 4, "customer": "Dot"}]}`)
	s.shows("Ada: paid", "Cid: new", "Dot: new")
	s.run(`{"drop": "orders"}`)
	s.shows()
	s.run(`{"insert": "orders", "documents": [{"_id": 5, "customer": "Eve"}]}`)
	s.shows("Eve: new")
	s.loseHistory()
	s.replicas.Replace(t.Context(), 0, true)
	s.run(`{"insert": "orders", "documents": [{"_id": 6, "customer": "Fay"}]}`)
	s.shows("Eve: new", "Fay: new")
}

// TestLiveListOffline has the page's replica killed, and the page offline for a while, as a closed
// laptop is, in which documents change. Afterwards the list equals a find.
//
// LAB_OFFLINE=1m says how long.
func TestLiveListOffline(t *testing.T) {
	lasts := 3 * time.Second
	if text := os.Getenv("LAB_OFFLINE"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := showList(t, 2)
	s.page.SetOffline(false) // requests from now on can be cut
	s.page.Reload()
	s.shows("Ada: new", "Ben: paid")
	for round := range 2 { // of which one has a replica less
		id := 10 * (round + 1)
		s.page.SetOffline(true)
		s.web.cut(clients) // which Chromium does not do to a stream in which nothing comes
		gatewaytest.Eventually(t, patience, func() error {
			if state := s.state(); !strings.HasPrefix(state, "connecting") {
				return fmt.Errorf("the page is offline, and says %q", state)
			}
			return nil
		})
		if round == 1 {
			s.replicas.Replace(t.Context(), 0, true)
			s.replicas.Replace(t.Context(), 1, true)
		}
		before := s.list()
		for begun := time.Now(); time.Since(begun) < lasts; {
			id++
			s.run(fmt.Sprintf(`{"insert": "orders", "documents": [{"_id": %d, "customer": "c%d"}]}`,
				id, id))
			s.run(fmt.Sprintf(`{"update": "orders", "updates": [{"q": {"_id": 1}, "u": {"$set": {"status": "s%d"}}}]}`, id))
			s.run(fmt.Sprintf(`{"delete": "orders", "deletes": [{"q": {"_id": %d}, "limit": 1}]}`,
				id-2))
			<-time.After(lasts / 20)
		}
		if now := s.list(); !slices.Equal(now, before) {
			t.Errorf("the page is offline, and shows %q after %q", now, before)
		}
		s.page.SetOffline(false)
		begun := time.Now()
		want := s.orders()
		gatewaytest.Eventually(t, patience, func() error {
			if now := slices.Sorted(slices.Values(s.list())); !slices.Equal(now, want) {
				return fmt.Errorf("the page shows %q, and a find has %q", now, want)
			}
			return nil
		})
		t.Logf("offline for %v: %d orders, as a find has them, %v after coming back", lasts,
			len(want), time.Since(begun).Round(10*time.Millisecond))
		s.run(fmt.Sprintf(`{"insert": "orders", "documents": [{"_id": %d, "customer": "late"}]}`,
			id+5))
		gatewaytest.Eventually(t, patience, func() error {
			if now := s.list(); !slices.Contains(now, "late: new") {
				return fmt.Errorf("the list does not go on: %q", now)
			}
			return nil
		})
		s.run(fmt.Sprintf(`{"delete": "orders", "deletes": [{"q": {"_id": %d}, "limit": 1}]}`,
			id+5))
	}
}

// orders returns what a find has, as the page shows it, sorted.
func (l listed) orders() (all []string) {
	w := &liveWriter{scene: l.scene}
	for _, text := range w.find(`{}`) {
		order := struct{ Customer, Status string }{Status: "new"}
		if err := json.Unmarshal([]byte(text), &order); err != nil {
			l.t.Fatal(err)
		}
		all = append(all, order.Customer+": "+order.Status)
	}
	return slices.Sorted(slices.Values(all))
}

// run runs a command on the database.
func (s *scene) run(json string) {
	s.t.Helper()
	command, err := extjson.Parse(nil, []byte(json))
	if err == nil {
		_, err = s.writer.RunCommand(s.t.Context(), database, command, client.RunCommandOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// loseHistory lets the deployment refuse every stream that begins after a token.
func (s *scene) loseHistory() {
	lost := bson.NewBuilder(nil).Int32("ok", 0).Int32("code", 286).
		String("codeName", "ChangeStreamHistoryLost").String("errmsg", "the log begins later").
		Finish()
	s.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "aggregate" && cmd.Body.Has("pipeline") {
			if _, resumes := cmd.Body.Lookup("pipeline", "0", "$changeStream",
				"startAfter"); resumes {
				return fakemongo.Document(lost)
			}
		}
		return next(cmd)
	})
}

// startExample builds and starts the example's server, and returns the page's URL.
func startExample(t *testing.T, gateway, key string) string {
	t.Helper()
	root, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "browser")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./examples/browser")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p, err := proc.Start(proc.Config{Path: binary, Env: []string{
		"MOORING_REST=" + gateway, "MOORING_KEY=" + key, "LISTEN=127.0.0.1:0",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(time.Second) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	line, err := p.Line(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, url, found := strings.Cut(line, "http://")
	if !found {
		t.Fatal(errors.New(line))
	}
	return "http://" + url
}
