package docdb

import (
	"testing"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/docdb/engine"
	"github.com/mooringdb/mooring/lab/internal/rawconn"
)

// Start starts an engine and a front for a test, which end with it. LAB_DOCDB names the directory
// of the packages, which are unpacked there if they are not yet. The test is skipped without it,
// or if the packages cannot be had. It fails if they are there and do not start.
func Start(t testing.TB, cfg Config) *Front {
	t.Helper()
	e, err := engine.Start(t.Context(), engine.Directory(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	f, err := Listen(t.Context(), e.DSN(), cfg)
	if err != nil {
		t.Fatalf("%v\n%s", err, e.Log())
	}
	t.Cleanup(func() {
		f.Close()
		if t.Failed() {
			t.Logf("end of the engine's log:\n%s", e.Log())
		}
	})
	return f
}

// Serve has a front serve a deployment, which has elections and drops connections. It ends with the
// test, and skips it as Start does.
func Serve(t testing.TB, d *deployment.Deployment) {
	t.Helper()
	e := rawconn.NewEngine(Start(t, Config{}).Address())
	t.Cleanup(e.Close)
	d.UseServer(e)
}
