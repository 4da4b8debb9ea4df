package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/gateway"
)

// TestTakenPort checks that a taken port is replaced, and that the banner says which port it is
// instead, and why.
func TestTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := net.SplitHostPort(l.Addr().String())
	n, _ := strconv.Atoi(text)

	p := choose(t.Context(), "PORT", uint(n))
	if p.address != "127.0.0.1:0" {
		t.Errorf("a taken port gives %s, want a port of the kernel's choice", p.address)
	}
	want := "Port " + text + " cannot be used (address already in use), so it is http://127.0.0.1:9 " +
		"instead. Choose another with make run PORT=..."
	if got := p.notes("http://127.0.0.1:9"); got != want {
		t.Errorf("notes = %q, want %q", got, want)
	}
	_ = l.Close()
	if p := choose(t.Context(), "PORT", uint(n)); p.address != l.Addr().String() ||
		p.notes("x") != "" {
		t.Errorf("a free port gives %s and %q", p.address, p.notes("x"))
	}

	var banner bytes.Buffer
	g := &gateway.Gateway{REST: "http://127.0.0.1:9", GRPC: "127.0.0.1:10"}
	printLines(&banner, g, "mongodb://h", "", want)
	for _, line := range []string{"\n" + want + "\nThe console: http://127.0.0.1:9/console/\n", "\nexport MOORING_REST=http://127.0.0.1:9 MOORING_GRPC=127.0.0.1:10 "} {
		if !strings.Contains(banner.String(), line) {
			t.Errorf("the banner lacks %q: %s", line, &banner)
		}
	}
}

// TestCredentials checks that the banner says so if the gateway asks for a credential.
func TestCredentials(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusOK: "",
		http.StatusUnauthorized: "The gateway asks for a credential: " +
			"add -H 'Authorization: Bearer KEY' to these lines.",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
		}))
		if got := credentials(t.Context(), s.URL); got != want {
			t.Errorf("status %d: %q, want %q", status, got, want)
		}
		s.Close()
	}
}
