// Package ferret runs FerretDB v1 on SQLite in this process: a server for MongoDB's protocol that
// finds and changes documents, and knows neither transactions nor change streams.
package ferret

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"

	"github.com/FerretDB/FerretDB/ferretdb"
)

// Start starts a server whose data are in a directory. It returns its host and port, and a channel
// that gets one error when it has ended, which it does some time after ctx.
func Start(ctx context.Context, dir string) (address string, ended <-chan error, err error) {
	server, err := ferretdb.New(&ferretdb.Config{
		Listener: ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{
			Level: slog.LevelError,
		})),
		Handler: "sqlite",
		// The trailing slash is required; ?mode=memory deadlocks.
		SQLiteURL: "file:" + filepath.ToSlash(dir) + "/",
	})
	if err != nil {
		return "", nil, err
	}
	done := make(chan error, 1) // one result, so that Run never waits for a reader
	go func() { done <- server.Run(ctx) }()
	// MongoDBURI waits until the listener has its address.
	backend, err := url.Parse(server.MongoDBURI())
	if err != nil {
		return "", nil, err
	}
	return backend.Host, done, nil
}
