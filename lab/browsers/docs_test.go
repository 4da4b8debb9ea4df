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

// TestDocs opens the pages of docs/browsers.md in a browser, before what `make run` starts with the
// option that the pages need. They show what the documentation says.
func TestDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	chromium := browser.Start(t)
	pages := documented(t)

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
	rest := restOf(t, p)
	for i, page := range pages {
		html = strings.Replace(page.html, "http://127.0.0.1:8080", rest, 1)
		opened := chromium.Open(site.URL + "/index.html")
		changed := i == 0 // the second page shows a change that is made while it is open
		gatewaytest.Eventually(t, patience, func() error {
			var text string
			opened.Evaluate(`document.getElementById("out")?.textContent ?? ""`, &text)
			if !changed && strings.Contains(text, "2: ") {
				changed = true
				patch(t, rest+"/v1/databases/shop/collections/orders/documents/2")
			}
			if strings.TrimSpace(text) != page.shown {
				return fmt.Errorf("page %d shows %q, want %q; its console has %q",
					i, text, page.shown, opened.Errors())
			}
			return nil
		})
	}
}

// patch makes the change of docs/browsers.md.
func patch(t *testing.T, url string) {
	t.Helper()
	body := strings.NewReader(`{"$set": {"total": 12.5}}`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode/100 != 2 {
		t.Fatalf("PATCH: %s", res.Status)
	}
}

// documentedPage is a page of docs/browsers.md, and the text that it shows.
type documentedPage struct{ html, shown string }

// documented returns the pages.
func documented(t *testing.T) (pages []documentedPage) {
	t.Helper()
	root, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "browsers.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, rest := range strings.Split(string(text), "```html\n")[1:] {
		html, rest, _ := strings.Cut(rest, "```\n")
		_, rest, _ = strings.Cut(rest, " shows\n\n")
		shown, _, _ := strings.Cut(rest, "\n\n")
		shown = strings.ReplaceAll("\n"+shown, "\n    ", "\n")
		pages = append(pages, documentedPage{html, strings.TrimSpace(shown)})
	}
	if len(pages) != 2 || !strings.Contains(pages[0].shown+pages[1].shown, "1: ") {
		t.Fatalf("docs/browsers.md has no two pages, or does not say what they show: %q", pages)
	}
	return pages
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
