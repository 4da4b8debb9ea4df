package main

import (
	"strings"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/gateway"
)

// TestGRPCLinesAreNotSilent checks that the first line that has Go compile something says so, and
// that Go shows what it compiles.
func TestGRPCLinesAreNotSilent(t *testing.T) {
	said := false
	for _, l := range lines(&gateway.Gateway{REST: "http://127.0.0.1:1", GRPC: "127.0.0.1:2"}) {
		if !strings.HasPrefix(l.command, "go run ") {
			continue
		}
		said = said || strings.Contains(l.what, "compiles")
		if !said || !strings.HasPrefix(l.command, "go run -v ") {
			t.Errorf("%s: %s", l.what, l.command)
		}
	}
	if !said {
		t.Error("there is no line with go run")
	}
}
