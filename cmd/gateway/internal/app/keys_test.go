package app_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/app"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// lines passes on each line of a log, as long as there is room.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default:
	}
	return len(b), nil
}

// TestKeysOfOneReplica checks that a gateway without other replicas reads its key file again.
func TestKeysOfOneReplica(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	cfg := load(t, "--uri", fakemongo.NewTCPServer(t, nil).URI(), "--handle-keys-file", file,
		"--idempotency-key", handleKey,
		"--grpc-address=127.0.0.1:0", "--rest-address=127.0.0.1:0")
	log := make(lines, 1000)
	g, err := app.New(cfg, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.Reload()
	for line := range log {
		if strings.Contains(line, `msg="handle keys read"`) {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	if err := g.Stop(ctx); err != nil {
		t.Errorf("Stop = %v", err)
	}
}
