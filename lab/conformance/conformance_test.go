package conformance_test

import (
	"os"
	"testing"

	"github.com/mooringdb/mooring/internal/unified"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/rawconn"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// TestOnEngine runs the suites that are about data on the server that MOORING_TEST_URI names. The
// scripted deployment is in front of it.
func TestOnEngine(t *testing.T) {
	if suite.IsEmbedded() {
		t.Skip("MOORING_TEST_URI names no server")
	}
	e := rawconn.NewEngine(suite.Address(t))
	t.Cleanup(e.Close)
	for _, s := range []unified.Suite{
		{Name: "crud", Folder: "crud/tests/unified"},
		{Name: "collection-management", Folder: "collection-management/tests"},
		{Name: "index-management", Folder: "index-management/tests"},
		{Name: "versioned-api", Folder: "versioned-api/tests"},
		{Name: "read-write-concern", Folder: "read-write-concern/tests/operation"},
	} {
		s.Engine, s.Skip = e, lacking[s.Name]
		t.Run(s.Name, func(t *testing.T) { unified.Run(t, s) })
	}
}
