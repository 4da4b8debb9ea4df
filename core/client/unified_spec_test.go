package client_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/unified"
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
		},
		{
			Name: "server-discovery-and-monitoring", Folder: "server-discovery-and-monitoring/tests/unified",
			Later: map[[2]string]string{
				{
					"pool-clear-min-pool-size-error.json", "Pool is cleared on handshake error during minPoolSize population",
				}: "the pool closes what has " +
					"become stale as soon as it is cleared, as it should, the first " +
					"connection included",
			},
		},
		{Name: "server-selection", Folder: "server-selection/tests/logging"},
		{Name: "load-balancers", Folder: "load-balancers/tests"},
		{Name: "read-write-concern", Folder: "read-write-concern/tests/operation"},
		{
			Name: "command-logging-and-monitoring", Folder: "command-logging-and-monitoring/tests/monitoring",
		},
		{
			Name: "command-logging-and-monitoring", Folder: "command-logging-and-monitoring/tests/logging",
		},
		{Name: "retryable-reads", Folder: "retryable-reads/tests/unified"},
		{Name: "retryable-writes", Folder: "retryable-writes/tests/unified"},
		{Name: "client-backpressure", Folder: "client-backpressure/tests"},
		{Name: "auth", Folder: "auth/tests/unified"},
		{Name: "mongodb-handshake", Folder: "mongodb-handshake/tests/unified"},
		{
			Name: "client-side-operations-timeout", Folder: "client-side-operations-timeout/tests",
			Skip: timeoutSkips,
		},
		{Name: "run-command", Folder: "run-command/tests/unified"},
		{Name: "sessions", Folder: "sessions/tests"},
		{Name: "change-streams", Folder: "change-streams/tests/unified"},
		{Name: "open-telemetry", Folder: "open-telemetry/tests"},
		{Name: "transactions", Folder: "transactions/tests/unified"},
		{Name: "transactions-convenient-api", Folder: "transactions-convenient-api/tests/unified"},
		{Name: "versioned-api", Folder: "versioned-api/tests"},
		{Name: "crud", Folder: "crud/tests/unified"},
		{Name: "collection-management", Folder: "collection-management/tests"},
		{Name: "index-management", Folder: "index-management/tests"},
	} {
		t.Run(suite.Name, func(t *testing.T) { unified.Run(t, suite) })
	}
}

// timeoutSkips are the cases of client-side-operations-timeout that do not run, or that the driver
// departs from; docs/conformance.md lists the latter.
var timeoutSkips = map[[2]string]string{
	{"cursors.json", "find errors if timeoutMode is set and timeoutMS is not"}:                 modeWithoutTimeout,
	{"cursors.json", "collection aggregate errors if timeoutMode is set and timeoutMS is not"}: modeWithoutTimeout,
	{"cursors.json", "database aggregate errors if timeoutMode is set and timeoutMS is not"}:   modeWithoutTimeout,
	{"cursors.json", "listCollections errors if timeoutMode is set and timeoutMS is not"}:      modeWithoutTimeout,
	{"cursors.json", "listIndexes errors if timeoutMode is set and timeoutMS is not"}:          modeWithoutTimeout,
	{"runCursorCommand.json", "errors if timeoutMode is set without timeoutMS"}:                modeWithoutTimeout,

	{"non-tailable-cursors.json", "aggregate with $out errors if timeoutMode is iteration"}:   iterationOfOutput,
	{"non-tailable-cursors.json", "aggregate with $merge errors if timeoutMode is iteration"}: iterationOfOutput,

	{"runCursorCommand.json", "Non-tailable cursor iteration timeoutMS is refreshed for getMore if timeoutMode is iteration - failure"}: nothingExpires,
	{"runCursorCommand.json", "Tailable cursor iteration timeoutMS is refreshed for getMore - failure"}:                                 nothingExpires,
	{"runCursorCommand.json", "Tailable cursor awaitData iteration timeoutMS is refreshed for getMore - failure"}:                       nothingExpires,

	{
		"tailable-awaitData.json", "apply remaining timeoutMS if less than maxAwaitTimeMS",
	}: "each call of Next sends one getMore and has a " +
		"timeoutMS of its own",
	{
		"close-cursors.json", "timeoutMS is refreshed for close",
	}: "behind a load balancer, the connection that a getMore broke cannot " +
		"carry killCursors; elsewhere TestTimeOfKillCursors shows it",
	{
		"command-execution.json", "short-circuit is not enabled with only 1 RTT measurement",
	}: "in fake time the second measurement " +
		"has always ended when the pool is filled",
}

const (
	modeWithoutTimeout = "a timeout mode applies to the deadline of a context as well, so it " +
		"needs no timeoutMS"
	iterationOfOutput = "with $out and $merge no cursor stays open, so that both timeout modes " +
		"mean the same"
	nothingExpires = "the getMore is blocked for 60 ms, and the case gives it 100 ms or no " +
		"timeoutMS at all"
)
