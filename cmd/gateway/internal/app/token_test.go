package app_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestTokenFile checks that the gateway logs in with the token in the file when the deployment
// asks for one.
func TestTokenFile(t *testing.T) {
	mongo, tokens := fakemongo.NewTCPServer(t, nil), new(fakemongo.OIDC)
	tokens.Accept("hunter2-second", "gateway")
	mongo.RequireAuth(&fakemongo.Auth{SASL: map[string]func(*fakemongo.Command) fakemongo.SASL{
		"MONGODB-OIDC": tokens.SASL,
	}})
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("hunter2-first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	uri := mongo.URI() + "&authMechanism=MONGODB-OIDC"
	g := start(t, uri, "--mongodb-token-file", file)
	const path, find = "/v1/databases/db/collections/c/documents:find", "{}"
	status, body := g.post(path, find)
	if status < 400 || !strings.Contains(body, "AuthenticationFailed") ||
		strings.Contains(body, "hunter2-first") {
		t.Errorf("find with a token that is refused = %d %s", status, body)
	}
	if err := os.WriteFile(file, []byte("hunter2-second\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, body := g.post(path, find); status != http.StatusOK {
		t.Errorf("find = %d %s", status, body)
	}
	if got := mongo.LoggedIn(); len(got) == 0 || got[0] != "$external.gateway" {
		t.Errorf("logged in are %q", got)
	}
	g.stop()
}
