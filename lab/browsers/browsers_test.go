package browsers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/browser"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/registry"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// patience is how long the browser may need. EventSource waits for 3 s before it reconnects.
const patience = time.Minute

// install copies the npm project to a directory and installs what it needs. It skips the test
// where node or the registry is missing.
func install(t *testing.T) (dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the gateway, and installs npm packages")
	}
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
	dir = t.TempDir()
	for _, name := range []string{
		"package.json", "package-lock.json", ".npmrc", "page.js", "dataapi.mjs",
	} {
		text, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	registry.Fetch(t, dir, nil, "npm", "ci", "--ignore-scripts", "--no-progress", "--no-audit",
		"--no-fund")
	return dir
}

func run(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// newKey returns a new API key, and the file of keys with its line.
func newKey(t *testing.T) (key, file string) {
	t.Helper()
	out, err := run(t, ".", nil, suite.Gateway(t), "key", "api", "new", "--principal", "shop")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	first, second, _ := strings.Cut(strings.TrimSpace(out), "\n")
	file = filepath.Join(t.TempDir(), "keys")
	line := strings.TrimSpace(strings.TrimPrefix(second, "line"))
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(first, "key")), file
}

// TestDataAPIClients runs two client libraries of the Atlas Data API unchanged.
func TestDataAPIClients(t *testing.T) {
	dir := install(t)
	d := deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0])
	key, file := newKey(t)
	g := suite.Start(t, d.URI(false, nil), "--auth-api-keys-file", file, "--data-api-sources",
		"mongodb-atlas")
	out, err := run(t, dir, []string{
		"ENDPOINT=" + g.REST + "/app/data-abcde/endpoint/data/v1", "KEY=" + key,
	}, "node", "dataapi.mjs")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var report map[string]map[string]json.RawMessage
	if err := json.Unmarshal([]byte(out[max(0, strings.LastIndex(strings.TrimSpace(out), "\n")):]),
		&report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const email = `[400,"must specify some form of authentication (either email+password, api-key, or jwt) ` +
		`in the request header or body; email and password are not offered here"]`
	raw := map[string]string{ // as the API answers
		"insertOne": `{"insertedId":1}`, "insertMany": `{"insertedIds":[2,3]}`,
		"findOne": `{"document":{"_id":2,"n":2}}`, "noDocument": `{"document":null}`,
		"find":      `{"documents":[{"_id":3,"n":3},{"_id":2,"n":2}]}`,
		"updateOne": `{"matchedCount":1,"modifiedCount":1}`, "updateMany": `{"matchedCount":3,"modifiedCount":3}`,
		"upsert":     `{"matchedCount":0,"modifiedCount":0,"upsertedId":4}`,
		"replaceOne": `{"matchedCount":1,"modifiedCount":1}`, "aggregate": `{"documents":[{"_id":4,"n":5}]}`,
		"deleteOne": `{"deletedCount":1}`, "deleteMany": `{"deletedCount":3}`, "wrongKey": `401`, "wrongSource": `400`,
	}
	unwrapped := maps.Clone(raw) // this client takes the documents out
	maps.Copy(unwrapped, map[string]string{
		"findOne": `{"_id":2,"n":2}`, "noDocument": `null`, "find": `[{"_id":3,"n":3},{"_id":2,"n":2}]`,
		"aggregate": `[{"_id":4,"n":5}]`, "email": email,
	})
	for name, want := range map[string]map[string]string{
		"mongodb-data-api": raw, "@taskless/mongo-data-api": unwrapped,
	} {
		for call, text := range want {
			if got := string(report[name][call]); got != text {
				t.Errorf("%s %s = %s, want %s", name, call, got, text)
			}
		}
		if len(report[name]) != len(want) {
			t.Errorf("%s reports %v", name, slices.Sorted(maps.Keys(report[name])))
		}
	}
}

// cable passes connections on, and can cut those that are there.
type cable struct {
	net.Listener
	to string

	mu   sync.Mutex // guards open
	open []net.Conn
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{Listener: l, to: to}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			c.mu.Lock()
			c.open = append(c.open, near, far)
			c.mu.Unlock()
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				running.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_, _ = way[0].Close(), way[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.cut()
		running.Wait()
	})
	return c
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

// descriptors returns the files of the API, as pages read them.
func descriptors(t *testing.T) []byte {
	t.Helper()
	set, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i))
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	add(mooringv1.File_mooring_v1_document_service_proto)
	text, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// scene is what the tests of pages look at: the gateway behind a cable, a page whose origin may
// call it, and a page whose origin may not.
type scene struct {
	t          *testing.T
	deployment *deployment.Deployment
	cable      *cable
	base, key  string
	ours, evil *browser.Page
}

func newScene(t *testing.T) *scene {
	t.Helper()
	dir := install(t)
	chromium := browser.Start(t)
	if out, err := run(t, dir, nil, filepath.Join(dir, "node_modules", ".bin", "esbuild"),
		"page.js", "--bundle", "--format=esm",
		"--outfile=bundle.js"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	bundle, err := os.ReadFile(filepath.Join(dir, "bundle.js"))
	if err != nil {
		t.Fatal(err)
	}
	site := http.NewServeMux()
	serve := func(path, form string, text []byte) {
		site.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", form)
			_, _ = w.Write(text)
		})
	}
	serve("/bundle.js", "text/javascript", bundle)
	serve("/descriptors", "application/octet-stream", descriptors(t))
	serve("/{$}", "text/html",
		[]byte(`<!doctype html><link rel="icon" href="data:,"><script type="module" src="/bundle.js"></script>`))
	ours, evil := httptest.NewServer(site), httptest.NewServer(site)
	t.Cleanup(ours.Close)
	t.Cleanup(evil.Close)

	s := &scene{
		t: t, deployment: deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0]),
	}
	key, file := newKey(t)
	g := suite.Start(t, s.deployment.URI(false, nil), "--auth-api-keys-file", file,
		"--rest-cors-origins", ours.URL)
	s.cable = newCable(t, strings.TrimPrefix(g.REST, "http://"))
	s.base, s.key = "http://"+s.cable.Addr().String(), key
	s.ours, s.evil = s.open(chromium, ours.URL), s.open(chromium, evil.URL)
	return s
}

// open opens a page and waits until its script is there.
func (s *scene) open(b *browser.Browser, url string) *browser.Page {
	s.t.Helper()
	p := b.Open(url)
	s.eventually(func() error {
		var loaded bool
		if p.Evaluate(`typeof lab === "object"`, &loaded); !loaded {
			return fmt.Errorf("%s is not there yet: %v", url, p.Errors())
		}
		return nil
	})
	return p
}

func (s *scene) eventually(condition func() error) {
	s.t.Helper()
	gatewaytest.Eventually(s.t, patience, condition)
}

// quote returns a JavaScript string.
func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// call returns the text of a JavaScript call in the page, whose arguments are texts.
func call(function string, args ...string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = quote(a)
	}
	return function + "(" + strings.Join(quoted, ",") + ")"
}

const documents = "/v1/databases/shop/collections/orders/documents"

// insert inserts a document by REST, from the page.
func (s *scene) insert(id string) {
	s.t.Helper()
	var status int
	s.ours.Evaluate(fmt.Sprintf(`lab.post(%s, {document: {_id: %s}}, %s).then(r => r.status)`,
		quote(s.base+documents+":insertOne"), quote(id), quote(s.key)), &status)
	if status != http.StatusOK {
		s.t.Fatalf("insertOne: %d", status)
	}
}

// quiet checks that the page has no errors on its console.
func (s *scene) quiet(after string) {
	s.t.Helper()
	if errs := s.ours.Errors(); len(errs) > 0 {
		s.t.Errorf("after %s, the console has %q", after, errs)
	}
}

// TestPages has pages call the gateway in every way that they have: fetch with CORS, lines,
// gRPC-Web and Connect with the libraries of others, and EventSource through reconnects.
func TestPages(t *testing.T) {
	s := newScene(t)

	s.insert("first")
	var header struct {
		Status    int
		ID, Other string
	}
	s.ours.Evaluate(fmt.Sprintf(`fetch(%s, {headers: {Authorization: "Bearer " + %s}}).then(
		r => ({Status: r.status, ID: r.headers.get("Mooring-Request-Id"), Other: r.headers.get("X-Content-Type-Options") ?? ""}))`,
		quote(s.base+documents+"?limit=1"), quote(s.key)), &header)
	if header.Status != http.StatusOK || header.ID == "" || header.Other != "" {
		t.Errorf("a read of the page: %+v", header)
	}
	s.quiet("fetch")

	s.lines()
	s.quiet("lines")
	s.rpcs()
	s.follow()
	s.foreign()
}

// lines checks that lines come while the stream is open, and that the last one is its end.
func (s *scene) lines() {
	s.t.Helper()
	body := `{batchSize: 1}`
	s.ours.Evaluate(fmt.Sprintf(`globalThis.found = lab.lines(%s, %s, %s); 0`,
		quote(s.base+documents+":streamFind"), body, quote(s.key)), new(int))
	s.eventually(func() error {
		var got []string
		s.ours.Evaluate(`found.lines`, &got)
		if len(got) != 2 || got[0] != `{"document":{"_id":"first"}}` || got[1] != `{"end":{}}` {
			return fmt.Errorf("the lines are %q", got)
		}
		return nil
	})
	watch := strings.TrimSuffix(documents, "/documents") + ":watch"
	s.ours.Evaluate(fmt.Sprintf(`globalThis.seen = lab.lines(%s, {}, %s); 0`, quote(s.base+watch),
		quote(s.key)), new(int))
	s.eventually(func() error { // the stream is open when its first token is there
		var n int
		if s.ours.Evaluate(`seen.lines.length`, &n); n == 0 {
			return errors.New("the stream of changes has no line")
		}
		return nil
	})
	s.insert("second")
	s.eventually(func() error {
		var open bool
		if s.ours.Evaluate(`seen.lines.some(l => l.includes('"second"')) && !seen.done`,
			&open); !open {
			return errors.New("the change has not come")
		}
		return nil
	})
	s.ours.Evaluate(`seen.stop().then(() => 0)`, new(int))
}

// rpcs makes calls with the libraries of Connect, and with that of gRPC-Web.
func (s *scene) rpcs() {
	s.t.Helper()
	for _, kind := range []string{"connect-json", "connect-proto", "grpc-web"} {
		var got struct {
			One, Code string
			Rows      int
			Details   []string
		}
		s.ours.Evaluate(call("lab.rpc", kind, s.base, s.key), &got)
		if got.One != `{"_id":"`+kind+`"}` || got.Rows != 1 || got.Code != "AlreadyExists" ||
			!slices.Contains(got.Details, "google.rpc.ErrorInfo") {
			s.t.Errorf("%s: %+v", kind, got)
		}
	}
	var read []struct {
		One  string
		Code int
	}
	s.ours.Evaluate(call("lab.text", s.base, s.key), &read)
	if len(read) != 2 || read[0].One != `{"_id":"grpc-web"}` || read[1].Code == 0 {
		s.t.Errorf("gRPC-Web in base64: %+v", read)
	}
	// Chromium notes the status of the two calls of Connect that fail as they should.
	s.complains(s.ours, "gRPC-Web and Connect", complaint{
		"network", "Failed to load resource: the server responded with a status of 409",
		s.base + "/mooring.v1.DocumentService/",
	})
}

// follow checks that EventSource goes on after its connection is cut, that a failure is readable,
// and that it does not reconnect after the end.
func (s *scene) follow() {
	s.t.Helper()
	follow := func(name string) {
		s.t.Helper()
		var ticket string
		s.ours.Evaluate(fmt.Sprintf(`lab.post(%s, {watch: {database: "shop", collection: "orders"}}, %s).then(r => r.json()).then(t => t.url)`,
			quote(s.base+"/v1/changeStreams:ticket"), quote(s.key)), &ticket)
		s.ours.Evaluate(fmt.Sprintf(`globalThis.%s = lab.follow(%s); 0`, name,
			quote(s.base+ticket)), new(int))
		s.eventually(func() error { return s.wants(name, "opened", "1") })
	}
	follow("one")
	follow("two")
	s.insert("a")
	for _, name := range []string{"one", "two"} {
		s.eventually(func() error { return s.wants(name, "ids", `["a"]`) })
	}
	s.cable.cut()
	s.insert("b") // while the pages wait
	for _, name := range []string{"one", "two"} {
		s.eventually(func() error { return s.wants(name, "ids", `["a","b"]`) })
	}
	// The collection goes away, which ends the streams.
	s.drop()
	for _, name := range []string{"one", "two"} {
		s.eventually(func() error { return s.wants(name, "ends", `["end"]`) })
		s.eventually(func() error { return s.wants(name, "state()", "2") }) // closed by 204
		var opened int
		s.ours.Evaluate(name+".opened", &opened)
		if opened != 2 {
			s.t.Errorf("%s was opened %d times, want 2", name, opened)
		}
	}
	s.lose(follow)
	s.complains(s.ours, "EventSource",
		complaint{"network", "Failed to load resource: net::ERR_", s.base + "/v1/changeStreams/"})
}

// complaint describes what a browser itself notes of a request that does not succeed.
type complaint struct{ Source, Text, URL string }

// complains checks that a page's console has complaints of these kinds, each at least once, and
// nothing else. Texts and addresses are the beginnings of theirs.
func (s *scene) complains(page *browser.Page, after string, want ...complaint) {
	s.t.Helper()
	seen := make([]bool, len(want))
	for _, text := range page.Errors() {
		var e struct{ Entry complaint }
		_ = json.Unmarshal([]byte(text), &e) // an exception has no entry, and is like none
		i := slices.IndexFunc(want, func(w complaint) bool {
			return e.Entry.Source == w.Source && strings.HasPrefix(e.Entry.Text, w.Text) &&
				strings.HasPrefix(e.Entry.URL, w.URL)
		})
		if i < 0 {
			s.t.Errorf("after %s, the console has %s", after, text)
			continue
		}
		seen[i] = true
	}
	for i, w := range want {
		if !seen[i] {
			s.t.Errorf("after %s, the console has nothing like %+v", after, w)
		}
	}
}

// lose lets the deployment forget what comes after a token. The page can read why.
func (s *scene) lose(follow func(name string)) {
	s.t.Helper()
	follow("three")
	s.insert("c")
	s.eventually(func() error { return s.wants("three", "ids", `["c"]`) })
	lost := bson.NewBuilder(nil).Int32("ok", 0).Int32("code", 286).
		String("codeName", "ChangeStreamHistoryLost").String("errmsg", "the log begins later").
		Finish()
	s.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "aggregate" || cmd.Name == "getMore" { // else it goes on from memory
			return fakemongo.Document(lost)
		}
		return next(cmd)
	})
	s.cable.cut()
	s.eventually(func() error { return s.wants("three", "ends", `["ChangeStreamHistoryLost"]`) })
	s.eventually(func() error { return s.wants("three", "state()", "2") })
}

// wants compares the JSON of a part of what a stream has seen.
func (s *scene) wants(name, part, want string) error {
	var got json.RawMessage
	s.ours.Evaluate(name+"."+part, &got)
	if string(got) != want {
		return fmt.Errorf("%s.%s is %s, want %s", name, part, got, want)
	}
	return nil
}

func (s *scene) drop() {
	s.t.Helper()
	var status int
	s.ours.Evaluate(fmt.Sprintf(`lab.post(%s, {}, %s).then(r => r.status)`,
		quote(s.base+strings.TrimSuffix(documents, "/documents")+":drop"), quote(s.key)), &status)
	if status != http.StatusOK {
		s.t.Fatalf("drop: %d", status)
	}
}

// foreign checks that a page of another origin can neither read nor write, in any protocol.
func (s *scene) foreign() {
	s.t.Helper()
	before := len(s.deployment.Sorted("shop.orders"))
	var outcomes []string
	s.evil.Evaluate(fmt.Sprintf(`Promise.all([
		lab.post(%[1]s, {document: {_id: "evil"}}, %[3]s),
		fetch(%[2]s, {headers: {Authorization: "Bearer " + %[3]s}}),
		lab.rpc("connect-json", %[4]s, %[3]s), lab.rpc("connect-proto", %[4]s, %[3]s), lab.rpc("grpc-web", %[4]s, %[3]s),
	].map(p => p.then(() => "done", e => e.message)))`,
		quote(s.base+documents+":insertOne"), quote(s.base+documents), quote(s.key), quote(s.base)),
		&outcomes)
	if len(outcomes) != 5 || slices.ContainsFunc(outcomes, func(o string) bool {
		return !strings.Contains(o, "Failed to fetch")
	}) {
		s.t.Errorf("a page of another origin: %q", outcomes)
	}
	if after := len(s.deployment.Sorted("shop.orders")); after != before {
		s.t.Errorf("a page of another origin has written: %d documents, %d before", after, before)
	}
	s.complains(s.evil, "requests of another origin",
		complaint{"javascript", "Access to fetch at '" + s.base + documents, ""},
		complaint{
			"javascript", "Access to fetch at '" + s.base + "/mooring.v1.DocumentService/", "",
		},
		complaint{"network", "Failed to load resource: net::ERR_FAILED", s.base + documents},
		complaint{
			"network", "Failed to load resource: net::ERR_FAILED",
			s.base + "/mooring.v1.DocumentService/",
		})
	s.quiet("all")
}
