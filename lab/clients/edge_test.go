package clients_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// maxClientSize limits the code of the TypeScript client, in gzip, as it is installed.
const maxClientSize = 20 << 10

// ofNode matches what only Node has, and not ArrayBuffer.
var ofNode = regexp.MustCompile(`\b(node:|require\(|process\.|Buffer\b)`)

// TestClientSize measures what an edge function has to load.
func TestClientSize(t *testing.T) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"index.js", "operations.js"} {
		text, err := os.ReadFile(filepath.Join(root(t), "clients", "typescript", name))
		if err != nil {
			t.Fatal(err)
		}
		if of := ofNode.Find(text); of != nil {
			t.Errorf("%s uses %q: it is for every runtime that has fetch", name, of)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes in gzip", packed.Len())
	if packed.Len() > maxClientSize {
		t.Errorf("the client has %d bytes in gzip, want at most %d", packed.Len(), maxClientSize)
	}
}

// TestWorkerd runs the tests of the TypeScript client in workerd, and the example there as
// docs/serverless.md says.
func TestWorkerd(t *testing.T) {
	program := installWorkerd(t)
	on := server{startScripted(t), "clients", true}
	t.Run("tests", func(t *testing.T) { testsInWorkerd(t, program, on) })
	t.Run("example", func(t *testing.T) {
		url := serveWorkerd(t, program, installServerless(t), "workerd.capnp", on)
		order := `{"customer": "Eve", "total": 7.5}`
		if got := post(t, url+"/orders", order); !strings.Contains(got, `201 {"id"`) {
			t.Errorf("POST /orders: %s", got)
		}
		if got := get(t, url+"/orders?customer=Eve"); !strings.Contains(got, `"total":7.5`) {
			t.Errorf("GET /orders: %s", got)
		}
	})
}

func testsInWorkerd(t *testing.T, program string, on server) {
	dir := t.TempDir()
	source := filepath.Join(root(t), "clients", "typescript")
	if err := os.CopyFS(dir, files(source)); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join("testdata", "edge", "tests.capnp"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tests.capnp"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	var report []string
	url := serveWorkerd(t, program, dir, "tests.capnp", on)
	if err := json.Unmarshal([]byte(body(t, url)), &report); err != nil {
		t.Fatal(err)
	}
	skipped := 0
	for _, line := range report {
		if strings.HasPrefix(line, "skip ") {
			skipped++
		} else if !strings.HasPrefix(line, "ok ") {
			t.Error(line)
		}
	}
	t.Logf("%d tests, %d skipped", len(report), skipped)
	if len(report) < 20 || skipped > 4 {
		t.Errorf("%d of %d tests were skipped", skipped, len(report))
	}
}

// TestLambda calls the example as AWS Lambda does, with events of payload format 2.0.
func TestLambda(t *testing.T) {
	on := server{startScripted(t), "clients", true}
	dir := installServerless(t)
	script := `
		import { handler } from './lambda.js';
		const event = (method, query, body, isBase64Encoded = false) => ({
			version: '2.0', rawPath: '/orders', rawQueryString: query, body, isBase64Encoded,
			headers: { host: 'f.example', 'content-type': 'application/json' },
			requestContext: { domainName: 'f.example', http: { method } },
		});
		const order = JSON.stringify({ customer: 'Lam', total: 3 });
		console.log(await handler(event('POST', '', order)));
		console.log(await handler(event('POST', '', btoa(order), true)));
		console.log(await handler(event('GET', 'customer=Lam')));
		console.log(await handler(event('POST', '', '{}')));`
	if err := os.WriteFile(filepath.Join(dir, "call.mjs"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	out := run(t, dir, on.env(), "node", "call.mjs")
	want(t, out, "statusCode: 201", "statusCode: 200", "statusCode: 400",
		"'content-type': 'application/json'")
	if n := strings.Count(out, `"customer":"Lam"`); n != 2 {
		t.Errorf("%d orders, want 2:\n%s", n, out)
	}
}

// installServerless returns a copy of examples/serverless with the client installed.
func installServerless(t *testing.T) string {
	t.Helper()
	base := t.TempDir() // nothing is installed in the checkout
	for _, name := range []string{"examples/serverless", "clients/typescript"} {
		to, from := filepath.Join(base, name), files(filepath.Join(root(t), name))
		if err := os.CopyFS(to, from); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(base, "examples", "serverless")
	run(t, dir, nil, "npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund")
	return dir
}

// serveWorkerd starts workerd in a directory, and returns the URL of its socket.
func serveWorkerd(t *testing.T, program, dir, config string, on server) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, program, "serve", config, "--control-fd=1",
		"--socket-addr=http=127.0.0.1:0")
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.Env = dir, &said, on.env("MOORING_KEY=")
	events, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() }) // it was killed
	decoder := json.NewDecoder(events)
	for {
		var event struct {
			Event, Socket string
			Port          int
		}
		if err := decoder.Decode(&event); err != nil {
			cancel()
			_ = cmd.Wait()
			t.Fatalf("workerd: %v\n%s", err, said.String())
		}
		if event.Event == "listen" && event.Socket == "http" {
			return fmt.Sprintf("http://127.0.0.1:%d", event.Port)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	return exchange(t, http.MethodGet, url, "")
}

func post(t *testing.T, url, body string) string {
	t.Helper()
	return exchange(t, http.MethodPost, url, body)
}

// body returns the body of an answer, which must be a success.
func body(t *testing.T, url string) string {
	t.Helper()
	text, ok := strings.CutPrefix(get(t, url), "200 ")
	if !ok {
		t.Fatalf("GET %s: %s", url, text)
	}
	return text
}

// exchange returns the status and the body of an answer.
func exchange(t *testing.T, method, url, body string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", response.StatusCode, text)
}
