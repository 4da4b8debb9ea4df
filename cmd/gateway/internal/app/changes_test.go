package app_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

// TestChangeStreamsEndWithTheGateway opens a ticket of one replica at another, as a page does that
// has nothing else, until that replica stops, which the stream does not delay. No log shows the
// ticket.
func TestChangeStreamsEndWithTheGateway(t *testing.T) {
	key, line := newKey(t, "shop", time.Time{})
	uri := deployment.Listen(t, deployment.ReplicaSet, "7.0.0").URI(false, nil)
	begin := func() *gateway {
		g := start(t, uri, "--auth-api-keys", line, "--handle-keys", handleKey, "--idempotency-key",
			handleKey, "--drain-timeout=20s")
		g.ready()
		return g
	}
	first, second := begin(), begin()
	request := func(g *gateway, method, path, body, key string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+g.Addresses().REST+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream, application/json")
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := g.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := request(first, http.MethodPost, "/v1/changeStreams:ticket",
		`{"watch": {"database": "shop"}}`, key)
	var ticket struct{ URL string }
	err := json.NewDecoder(resp.Body).Decode(&ticket)
	_ = resp.Body.Close()
	if err != nil || ticket.URL == "" {
		t.Fatalf("no ticket: %d, %v", resp.StatusCode, err)
	}
	wrong := request(second, http.MethodGet, ticket.URL+"A", "", "")
	_ = wrong.Body.Close()
	if wrong.StatusCode != http.StatusUnauthorized {
		t.Errorf("a wrong ticket: %d", wrong.StatusCode)
	}
	stream := request(second, http.MethodGet, ticket.URL, "", "")
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	if !lines.Scan() || lines.Text() != ": shared" || !lines.Scan() ||
		!strings.HasPrefix(lines.Text(), "id: ") {
		t.Fatalf("the stream begins with %q, %v", lines.Text(), lines.Err())
	}
	began := time.Now()
	second.stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stopping took %v", took)
	}
	last := ""
	for lines.Scan() {
		last += lines.Text() + "\n"
	}
	if lines.Err() != nil || !strings.Contains(last, "retry: 1000\nevent: failure\ndata: ") ||
		!strings.Contains(last, "ShuttingDown") {
		t.Errorf("the stream ended with %q, %v", last, lines.Err())
	}
	first.stop()
	secret := strings.TrimPrefix(ticket.URL, "/v1/changeStreams/")
	for _, g := range []*gateway{first, second} {
		if strings.Contains(g.log.String(), secret) {
			t.Error("the log has the ticket")
		}
	}
	if log := second.log.String(); strings.Contains(log, "request failed") {
		t.Error("the end of the stream is logged as a failure")
	} else if n := strings.Count(log,
		`level=INFO msg="request ended by the shutdown" method=/mooring.v1.ChangeStreamService/Watch`); n != 1 {
		t.Errorf("%d lines about the stream's end", n)
	}
	if !strings.Contains(second.log.String(), "path=/v1/changeStreams/…") ||
		!strings.Contains(second.log.String(), "key:shop") {
		t.Error("the log has neither the refused path nor the principal of the ticket")
	}
}
