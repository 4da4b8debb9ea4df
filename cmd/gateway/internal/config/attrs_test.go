package config_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestAttrs checks that the log has the options that were set, and no secret.
func TestAttrs(t *testing.T) {
	c, err := load(t, []string{"--uri", "mongodb://u:geheim@db.example/", "--log-level", "debug"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("starting", c.Attrs())
	text := out.String()
	if !strings.Contains(text, "options.log.level=debug") ||
		!strings.Contains(text, "options.uri=") ||
		strings.Contains(text, "geheim") || strings.Contains(text, "rest.address") {
		t.Errorf("%s", text)
	}
}
