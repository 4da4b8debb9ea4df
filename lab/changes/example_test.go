package changes_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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

// TestLiveList runs the example of docs/change-streams.md in a browser: the list follows the
// collection, also through a gateway's restart, a dropped collection and lost history.
func TestLiveList(t *testing.T) {
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
	s.replicas = suite.StartReplicas(t, 1, d.URI(false, nil), "--auth-api-keys-file", keys)
	s.web = newCable(s.replicas, restAddress)
	s.connect(d.URI(false, nil))
	s.run(`{"insert": "orders", "documents": [{"_id": 1, "customer": "Ada"}, {"_id": 2, "customer": "Ben", "status": "paid"}]}`)
	page := chromium.Open(startExample(t, s.web.serveHTTP(t, http.NotFoundHandler()), key))
	shows := func(want ...string) {
		t.Helper()
		gatewaytest.Eventually(t, patience, func() error {
			var text string
			page.Evaluate(`[...document.querySelectorAll("#orders li")].map(i => i.textContent).join(", ")`, &text)
			if text != strings.Join(want, ", ") {
				return fmt.Errorf("the page shows %q, want %q", text, want)
			}
			return nil
		})
	}
	shows("Ada: new", "Ben: paid")
	s.run(`{"insert": "orders", "documents": [{"_id": {"$oid": "6b00520000000000000000aa"}, "customer": "Cid"}]}`)
	s.run(`{"update": "orders", "updates": [{"q": {"_id": 1}, "u": {"$set": {"status": "paid"}}}]}`)
	s.run(`{"delete": "orders", "deletes": [{"q": {"_id": 2}, "limit": 1}]}`)
	shows("Ada: paid", "Cid: new")
	s.replicas.Replace(t.Context(), 0, false)
	s.run(`{"insert": "orders", "documents": [{"_id": 4, "customer": "Dot"}]}`)
	shows("Ada: paid", "Cid: new", "Dot: new")
	s.run(`{"drop": "orders"}`)
	shows()
	s.run(`{"insert": "orders", "documents": [{"_id": 5, "customer": "Eve"}]}`)
	shows("Eve: new")
	s.loseHistory()
	s.replicas.Replace(t.Context(), 0, true)
	s.run(`{"insert": "orders", "documents": [{"_id": 6, "customer": "Fay"}]}`)
	shows("Eve: new", "Fay: new")
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
		String("codeName", "ChangeStreamHistoryLost").String("errmsg", "the log begins later").Finish()
	s.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "aggregate" && cmd.Body.Has("pipeline") {
			if _, resumes := cmd.Body.Lookup("pipeline", "0", "$changeStream", "startAfter"); resumes {
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
