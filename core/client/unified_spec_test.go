package client_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mooringdb/mooring/internal/unified"
	"github.com/mooringdb/mooring/internal/unified/deployment"
)

// TestUnified runs the specifications' tests in the unified test format.
func TestUnified(t *testing.T) {
	// MONGODB-OIDC's environment "test" reads the token from a file.
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(deployment.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OIDC_TOKEN_FILE", token)
	for _, suite := range []unified.Suite{
		{
			Name: "connection-monitoring-and-pooling", Folder: "connection-monitoring-and-pooling/tests/logging",
			Skip: map[[2]string]string{
				{"connection-logging.json", "Create a client, run a command, and close the client"}: "needs sessions: closing the client runs endSessions",
			},
		},
		{
			Name: "server-discovery-and-monitoring", Folder: "server-discovery-and-monitoring/tests/unified",
			Later: map[[2]string]string{
				{"pool-clear-min-pool-size-error.json", "Pool is cleared on handshake error during minPoolSize population"}: "the pool closes what has " +
					"become stale as soon as it is cleared, as it should, the first connection included",
			},
		},
		{Name: "server-selection", Folder: "server-selection/tests/logging"},
		{Name: "load-balancers", Folder: "load-balancers/tests"},
		{Name: "read-write-concern", Folder: "read-write-concern/tests/operation"},
		{
			Name: "command-logging-and-monitoring", Folder: "command-logging-and-monitoring/tests/monitoring",
			Skip: map[[2]string]string{
				{"writeConcernError.json", "A retryable write with write concern errors publishes success event"}: "needs retryable writes",
			},
		},
		{Name: "auth", Folder: "auth/tests/unified"},
		{Name: "mongodb-handshake", Folder: "mongodb-handshake/tests/unified"},
		{Name: "run-command", Folder: "run-command/tests/unified"},
	} {
		t.Run(suite.Name, func(t *testing.T) { unified.Run(t, suite) })
	}
}
