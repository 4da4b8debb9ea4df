package rest_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/caller"
)

// TestNoSecretInPaths checks that no log has a ticket, a key or a token, at any level and in any
// spelling of a path.
func TestNoSecretInPaths(t *testing.T) {
	keys, err := caller.ParseKeys(nil)
	if err != nil {
		t.Fatal(err)
	}
	var log, lines bytes.Buffer
	audited := audit.New(audit.Config{Handler: slog.NewTextHandler(&lines, nil)})
	h := newHandler(t, &fake{}, func(c *config) {
		c.Callers, c.REST.Tickets = caller.New(caller.Config{Keys: keys}), tickets{}
		c.Refusals.Logger = slog.New(slog.NewTextHandler(&log,
			&slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Refusals.Audit = audited
	})
	const secret = "mooring_q1Jd3KZ0_5sW0aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	encoded := func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&b, "%%%02X", c)
		}
		return b.String()
	}
	parents := []string{"/v1/changeStreams/", "/v1/cursors/", "/v1/databases/", "/"}
	for _, parent := range parents {
		for _, p := range []string{
			parent, strings.ToUpper(parent), strings.ToLower(parent), strings.Title(parent), //nolint:staticcheck // ASCII
			strings.ReplaceAll(parent, "/", "//"), "/" + encoded(strings.Trim(parent, "/")) + "/",
			strings.ReplaceAll(parent, "e", "%65"), strings.ReplaceAll(parent, "e", "%2565"), parent + "./", parent + "x/../",
		} {
			for _, s := range []string{
				secret, encoded(secret), strings.ReplaceAll(secret, "a", "%2561"), secret + "/", secret + "/x", "/" + secret, secret + ":next",
			} {
				for _, method := range []string{"GET", "POST", "DELETE", "ODD"} {
					do(h, method, p+s, "")
				}
			}
		}
	}
	if err := audited.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := log.String() + lines.String()
	if strings.Contains(all, "q1Jd3KZ0") || strings.Contains(all, "5sW0") ||
		strings.Count(all, "path=") < 1000 {
		at := strings.Index(all, "q1Jd3KZ0")
		t.Errorf("a log has a secret: %s", all[max(0, at-200):min(len(all), max(0, at)+200)])
	}
}
