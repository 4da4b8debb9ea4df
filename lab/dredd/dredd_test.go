package dredd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/gen/openapi"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
	"github.com/mooringdb/mooring/lab/internal/registry"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// share is how many operations there are for each one that has to fail with a certain status,
// unless LAB_DREDD is set: these responses are much alike, and dredd takes its time.
const share = 6

// known lists what dredd finds wrong, each with the reason. "*" stands for every type. An entry
// that is not found is a failure, too.
var known = map[string]string{
	"aggregateDatabase 200 *":        "the embedded database has no aggregate on a database",
	"streamAggregateDatabase 200 *":  "the same",
	"explainAggregateDatabase 200 *": "the same",
	"bulkWriteNamespaces 200 *":      "the embedded database has no bulkWrite on many collections",
	"bulkWriteNamespaces 207 *":      "the same",
	"collMod 200 *":                  "the embedded database does not have the command",
	"renameCollection 200 *":         "the same",
	"listSearchIndexes 200 *":        "the embedded database has no search indexes",
	"createSearchIndexes 200 *":      "the same",
	"updateSearchIndex 200 *":        "the same",
	"dropSearchIndex 200 *":          "the same",
}

// judgement is what dredd says of one response.
type judgement struct {
	Operation string `json:"operation"`
	Status    string `json:"status"`
	Type      string `json:"type"`
	Judgement string `json:"judgement"`
	Message   string `json:"message"`
	Body      string `json:"body"`
}

// TestDredd has dredd make the requests of openapi.json: each operation with each type of a
// response when it succeeds, and some with each status when it fails (all, if LAB_DREDD is set).
func TestDredd(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	dir := install(t)
	key, line := suite.Key(t, "ann")
	args := []string{
		"--handle-keys-file", file(t, "handle-keys", suite.NewKey(t)),
		"--idempotency-key-file", file(t, "idempotency-key", suite.NewKey(t)), "--deployment-name", "dredd",
	}
	demo, uri := makeRun(t, args)
	guarded := suite.Start(t, uri, slices.Concat(args, []string{
		"--auth-api-keys-file", file(t, "keys", line),
		"--policy-file", file(t, "policy", "forbid (principal, action, resource);"),
	})...)
	nothing := gatewaytest.FreeAddresses(t, 1)[0]
	lost := suite.Start(t, "mongodb://"+nothing+"/?serverSelectionTimeoutMS=50",
		append(args, "--requests-max-size", "64KiB")...)

	every := share
	if os.Getenv("LAB_DREDD") != "" {
		every = 1
	}
	write(t, filepath.Join(dir, "whole.json"), string(openapi.JSON))
	trim := exec.CommandContext(t.Context(), "node", "trim.js", "whole.json", "openapi.json",
		strconv.Itoa(every))
	trim.Dir = dir
	if out, err := trim.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	results := filepath.Join(dir, "results.json")
	settings, err := json.Marshal(map[string]any{
		"gateways": map[string]string{"demo": demo, "guarded": guarded.REST, "lost": lost.REST},
		"key":      key, "results": results,
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join("node_modules", ".bin", "dredd"),
		"openapi.json", demo, "--hookfiles=hooks.js", "--loglevel=error")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "DREDD="+string(settings))
	out, runErr := cmd.CombinedOutput() // it fails if one response is wrong
	text, err := os.ReadFile(results)
	if err != nil {
		t.Fatalf("dredd has no results: %v: %v\n%s", err, runErr, out)
	}
	var judged []judgement
	if err := json.Unmarshal(text, &judged); err != nil {
		t.Fatal(err)
	}
	judge(t, judged, every)
}

// judge compares what dredd says with what is known.
func judge(t *testing.T, judged []judgement, every int) {
	t.Helper()
	operations, found, failed := map[string]bool{}, map[string]bool{}, 0
	for _, j := range judged {
		operations[j.Operation] = true
		if j.Judgement == "pass" {
			continue
		}
		failed++
		entry := ""
		for _, name := range []string{
			j.Operation + " " + j.Status + " " + j.Type, j.Operation + " " + j.Status + " *",
		} {
			if known[name] != "" {
				entry = name
			}
		}
		if found[entry] = true; entry == "" {
			t.Errorf("%s %s %s: %s: %s\n%s", j.Operation, j.Status, j.Type, j.Judgement, j.Message,
				j.Body)
		}
	}
	for _, entry := range slices.Sorted(maps.Keys(known)) {
		if !found[entry] {
			t.Errorf("dredd does not find what is known: %s: %s", entry, known[entry])
		}
	}
	t.Logf("%d responses of %d operations, %d failed; one in %d of the failures", len(judged),
		len(operations), failed, every)
	if want := described(t); len(operations) != want || len(judged) < 4*want {
		t.Errorf("%d responses of %d operations are too few of %d", len(judged), len(operations),
			want)
	}
}

// described returns how many operations openapi.json has.
func described(t *testing.T) (n int) {
	t.Helper()
	var all struct {
		Paths map[string]map[string]struct {
			ID string `json:"operationId"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(openapi.JSON, &all); err != nil {
		t.Fatal(err)
	}
	for _, methods := range all.Paths {
		for _, operation := range methods {
			if operation.ID != "" {
				n++
			}
		}
	}
	return n
}

var (
	banner = regexp.MustCompile(`^export MOORING_REST=(\S+) `)
	before = regexp.MustCompile(`before the embedded database (mongodb://\S+)`)
)

// makeRun starts what make run does. It returns where REST is, and the embedded database.
func makeRun(t *testing.T, args []string) (rest, uri string) {
	t.Helper()
	p, err := proc.Start(proc.Config{Path: suite.Command(t, "run"), Args: append([]string{
		"--gateway", suite.Gateway(t), "--embedded", suite.Embedded(t),
		"--port", "0", "--grpc-port", "0", "--",
	}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(time.Minute) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for rest == "" || uri == "" {
		text, err := p.Line(ctx)
		if err != nil {
			t.Fatalf("%v\n%s", err, p.Tail())
		}
		if parts := banner.FindStringSubmatch(text); parts != nil {
			rest = parts[1]
		}
		if parts := before.FindStringSubmatch(text); parts != nil {
			uri = parts[1]
		}
	}
	p.Drain()
	return rest, uri
}

// install returns a directory with dredd. It skips the test if npm or its registry is missing.
func install(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	dir := t.TempDir()
	for _, name := range []string{
		"package.json", "package-lock.json", ".npmrc", "hooks.js", "trim.js",
	} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(text))
	}
	registry.Fetch(t, dir, nil, "npm", "ci", "--ignore-scripts", "--no-progress", "--no-audit",
		"--no-fund")
	return dir
}

// file writes a file with a secret, and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	write(t, path, fmt.Sprintln(strings.TrimSpace(text)))
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
