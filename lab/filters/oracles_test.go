package filters_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/256dpi/lungo/bsonkit"
	"github.com/256dpi/lungo/mongokit"
	obson "go.mongodb.org/mongo-driver/bson"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
)

// enforcer returns a policy of one rule with a filter.
func enforcer(filter bson.Raw) (*policy.Enforcer, error) {
	text, err := extjson.Append(nil, filter, extjson.Canonical)
	if err != nil {
		return nil, err
	}
	// Cedar writes " and \ within a text with a \ before them.
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(string(text))
	p, err := policy.Parse([]byte(`@filter("` + quoted +
		`") permit (principal, action, resource);`))
	if err != nil {
		return nil, err
	}
	return policy.NewEnforcer(policy.Config{Policy: p}), nil
}

// inserts reports whether a rule's filter lets a document be inserted.
func inserts(t *testing.T, e *policy.Enforcer, document bson.Raw) bool {
	call := e.Begin(&caller.Identity{Principal: "key:ann"},
		"/mooring.v1.DocumentService/InsertOne", false)
	return call.Check(t.Context(), &mooringv1.InsertOneRequest{
		Database: "shop", Collection: "orders", Document: payload.NewDocument(document),
	}) == nil
}

// shows reports whether it lets an event about a document through.
func shows(e *policy.Enforcer, document bson.Raw) bool {
	event := bson.NewBuilder(nil).String("operationType", "insert").OpenDocument("ns").
		String("db", "shop").String("coll", "orders").Close().Document("fullDocument", document).
		Finish()
	_, shown := e.Event(&caller.Identity{Principal: "key:ann"}, event)
	return shown
}

// lungo asks lungo's mongokit. It has no answer about types that mongokit does not know, with which
// it panics.
func lungo(p pair) (matches bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	var filter, document obson.D
	if err := obson.Unmarshal(p.filter, &filter); err != nil {
		return false, err
	}
	if err := obson.Unmarshal(p.document, &document); err != nil {
		return false, err
	}
	return mongokit.Match(bsonkit.Doc(&document), bsonkit.Doc(&filter))
}

// mingo asks npm's mingo about pairs, in one process. It returns its answers: "true", "false" or
// an error.
func mingo(t *testing.T, pairs []pair) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "oracle.mjs")
	cmd.Dir, cmd.Stderr = install(t), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		w := bufio.NewWriter(in)
		for _, p := range pairs {
			_, _ = fmt.Fprintln(w, p)
		}
		err := w.Flush()
		_ = in.Close()
		written <- err
	}()
	var answers []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		answers = append(answers, lines.Text())
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || len(answers) != len(pairs) {
		t.Fatalf("%d answers to %d pairs: %v", len(answers), len(pairs), err)
	}
	return answers
}

// String returns a pair as a line of Extended JSON.
func (p pair) String() string {
	text, err := extjson.Append(nil, bson.NewBuilder(nil).Document("filter", p.filter).
		Document("document", p.document).Finish(), extjson.Canonical)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// install copies the npm project to a directory and installs what it needs. It skips the test where
// node or the registry is missing.
func install(t *testing.T) (dir string) {
	t.Helper()
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
	dir = t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "oracle.mjs"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-progress",
		"--no-audit", "--no-fund")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	for _, cause := range []string{
		"ENOTFOUND", "EAI_AGAIN", "ETIMEDOUT", "ECONNREFUSED", "ECONNRESET",
	} {
		if err != nil && strings.Contains(string(out), cause) {
			t.Skipf("the npm registry cannot be reached: %s", cause)
		}
	}
	if err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}
