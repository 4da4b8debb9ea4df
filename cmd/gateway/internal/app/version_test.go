package app_test

import (
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/build"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestServersSeeTheBuildsVersion checks driver.version in the handshakes.
func TestServersSeeTheBuildsVersion(t *testing.T) {
	server := fakemongo.NewTCPServer(t, nil)
	g := start(t, server.URI())
	g.ready()
	g.stop()
	handshakes := 0
	for _, cmd := range server.Commands() {
		if v, ok := cmd.Body.Lookup("client", "driver", "version"); ok {
			handshakes++
			if got, _ := v.Str(); got != build.Version() {
				t.Errorf("driver.version = %q, want %q", got, build.Version())
			}
		}
	}
	if handshakes == 0 {
		t.Error("there was no handshake")
	}
}
