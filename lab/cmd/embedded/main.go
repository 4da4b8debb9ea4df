// Command embedded runs FerretDB v1 with SQLite, in a temporary directory, as a MongoDB server for
// demonstrations and tests.
//
// It prints one line, its connection string, when it accepts connections, and runs until SIGTERM
// or SIGINT. The directory is removed on the way out. With a certificate it listens with TLS, and
// with an authority's, too, it wants certificates of its clients. It is not for production, and it
// lacks much: lab/README.md names what.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "`address` to listen on; port 0 lets the kernel choose")
	var tls files
	flag.StringVar(&tls.certificate, "tls-certificate-file", "", "`path` of the certificate, PEM; with it, the listener speaks TLS")
	flag.StringVar(&tls.key, "tls-key-file", "", "`path` of the certificate's key, PEM")
	flag.StringVar(&tls.authority, "tls-ca-file", "", "`path` of the authority's certificate that clients have to be of, PEM")
	flag.Parse()
	if err := run(*listen, tls); err != nil {
		fmt.Fprintln(os.Stderr, "embedded:", err)
		os.Exit(1)
	}
}

// files names what TLS needs. Without a certificate there is no TLS.
type files struct{ certificate, key, authority string }

func listener(address string, tls files) ferretdb.ListenerConfig {
	if tls.certificate == "" {
		return ferretdb.ListenerConfig{TCP: address}
	}
	return ferretdb.ListenerConfig{
		TLS: address, TLSCertFile: tls.certificate, TLSKeyFile: tls.key, TLSCAFile: tls.authority,
	}
}

func run(listen string, tls files) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	dir, err := os.MkdirTemp("", "mooring-embedded-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	server, err := ferretdb.New(&ferretdb.Config{
		Listener: listener(listen, tls),
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Handler:  "sqlite",
		// The trailing slash is required; ?mode=memory deadlocks.
		SQLiteURL: "file:" + filepath.ToSlash(dir) + "/",
	})
	if err != nil {
		return err
	}

	done := make(chan error, 1) // one result, so that Run never waits for a reader
	go func() { done <- server.Run(ctx) }()
	// MongoDBURI waits until the listener has its address.
	uri := server.MongoDBURI()
	fmt.Println(uri)

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// FerretDB waits for its clients to go; a demonstration does not.
	select {
	case err := <-done:
		return err
	case <-time.After(2 * time.Second):
		return nil
	}
}
