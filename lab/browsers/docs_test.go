package browsers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/browser"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// TestDocs opens the page of docs/browsers.md in a browser, before what `make run` starts with the
// option that the page needs. The page shows what the documentation says.
func TestDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	chromium := browser.Start(t)
	page, shown := documented(t)

	var html string
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(html))
	}))
	t.Cleanup(site.Close)
	p, err := proc.Start(proc.Config{Path: suite.Command(t, "run"), Args: []string{
		"--gateway", suite.Gateway(t), "--embedded", suite.Embedded(t),
		"--port", "0", "--grpc-port", "0", "--", "--rest-cors-origins=" + site.URL,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(time.Minute) })
	html = strings.Replace(page, "http://127.0.0.1:8080", restOf(t, p), 1)

	opened := chromium.Open(site.URL + "/index.html")
	gatewaytest.Eventually(t, patience, func() error {
		var text string
		if opened.Evaluate(`document.getElementById("out")?.textContent ?? ""`, &text); text != shown {
			return fmt.Errorf("the page shows %q, want %q; its console has %q", text, shown, opened.Errors())
		}
		return nil
	})
}

// documented returns the page of docs/browsers.md, and what it shows.
func documented(t *testing.T) (page, shown string) {
	t.Helper()
	root, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "browsers.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```html\n")
	page, rest, _ = strings.Cut(rest, "```\n")
	_, rest, _ = strings.Cut(rest, " shows\n\n")
	rest, _, _ = strings.Cut(rest, "\n\n")
	for line := range strings.Lines(rest + "\n") {
		shown += strings.TrimPrefix(line, "    ")
	}
	if page == "" || !strings.Contains(shown, "1: ") {
		t.Fatalf("docs/browsers.md has no page, or does not say what it shows: %q", shown)
	}
	return page, shown
}

// restOf returns the URL of the gateway from the banner.
func restOf(t *testing.T, p *proc.Process) string {
	t.Helper()
	for {
		line, err := p.Line(t.Context())
		if err != nil {
			t.Fatalf("%v\n%s", err, p.Tail())
		}
		if _, rest, ok := strings.Cut(line, "export MOORING_REST="); ok {
			p.Drain()
			url, _, _ := strings.Cut(rest, " ")
			return url
		}
	}
}
