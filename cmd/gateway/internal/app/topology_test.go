package app_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
)

// A watch of the topology has no end of its own: it ends when the gateway begins to stop, and
// does not delay that.
func TestTopologyIsWatchedUntilTheGatewayStops(t *testing.T) {
	g := start(t, fakemongo.NewTCPServer(t, nil).URI(), "--drain-timeout=20s")
	g.ready()
	if code := g.status("/v1/deployment/topology"); code != http.StatusOK {
		t.Errorf("GET topology = %d", code)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+g.Addresses().REST+"/v1/deployment/topology:watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := g.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"kind":"Standalone"`) {
	}
	began := time.Now()
	g.stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stopping took %v", took)
	}
	last := ""
	for lines.Scan() {
		last += lines.Text() + "\n"
	}
	if lines.Err() != nil || !strings.Contains(last, "event: failure") ||
		!strings.Contains(last, "ShuttingDown") {
		t.Errorf("the watch ended with %q, %v", last, lines.Err())
	}
}
