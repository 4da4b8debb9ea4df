package rest_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/caller"
)

// TestLog checks how requests are logged that reach no interceptor: those without a credential at
// info, where the log limits lines of the same method and reason, and others at debug.
func TestLog(t *testing.T) {
	var log bytes.Buffer
	secured := func(c *config) {
		c.Callers = caller.New(caller.Config{})
		c.Refusals.Logger = slog.New(slog.NewTextHandler(&log,
			&slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	open := func(c *config) {
		secured(c)
		c.Callers = nil
	}
	for _, row := range []struct {
		configure    func(*config)
		method, path string
		want         []string
	}{
		{secured, "GET", "/v1/databases/d/collections", []string{`level=INFO msg="request refused"`, "method=GET path=/v1/databases/d/collections status=401 reason=Unauthenticated"}},
		{open, "GET", "/v1/nothing", []string{`level=DEBUG msg="request refused"`, "method=GET path=/v1/nothing status=404"}},
		{open, "BREW", "/v1/databases", []string{"method=other path=/v1/databases status=405"}},
	} {
		log.Reset()
		w := do(newHandler(t, &fake{}, row.configure), row.method, row.path, "")
		for _, want := range row.want {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s %s = %d, log %q, want %q", row.method, row.path, w.Code, &log, want)
			}
		}
	}
}
