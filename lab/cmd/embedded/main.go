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
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	address := flag.String("listen", "127.0.0.1:0",
		"`address` to listen on; port 0 lets the kernel choose")
	var secure files
	flag.StringVar(&secure.certificate, "tls-certificate-file", "",
		"`path` of the certificate, PEM; with it, the listener speaks TLS")
	flag.StringVar(&secure.key, "tls-key-file", "", "`path` of the certificate's key, PEM")
	flag.StringVar(&secure.authority, "tls-ca-file", "",
		"`path` of the authority's certificate that clients have to be of, PEM")
	flag.Parse()
	if err := run(*address, secure); err != nil {
		fmt.Fprintln(os.Stderr, "embedded:", err)
		os.Exit(1)
	}
}

// files names what TLS needs. Without a certificate there is no TLS.
type files struct{ certificate, key, authority string }

// listen opens the front's listener and returns its connection string.
func listen(address string, f files) (net.Listener, string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", err
	}
	uri := "mongodb://" + l.Addr().String() + "/"
	if f.certificate == "" {
		return l, uri, nil
	}
	cfg, err := f.config()
	if err != nil {
		return nil, "", errors.Join(err, l.Close())
	}
	return tls.NewListener(l, cfg), uri + "?tls=true", nil
}

// config reads the files.
func (f files) config() (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(f.certificate, f.key)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	if f.authority == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(f.authority)
	if err != nil {
		return nil, err
	}
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in " + f.authority)
	}
	return cfg, nil
}

func run(address string, secure files) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	dir, err := os.MkdirTemp("", "mooring-embedded-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

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
		return err
	}

	done := make(chan error, 1) // one result, so that Run never waits for a reader
	go func() { done <- server.Run(ctx) }()
	// MongoDBURI waits until the listener has its address.
	backend, err := url.Parse(server.MongoDBURI())
	if err != nil {
		return err
	}
	l, uri, err := listen(address, secure)
	if err != nil {
		return err
	}
	ended := make(chan error, 1) // one result, as above
	go func() { ended <- front(ctx, l, backend.Host) }()
	fmt.Println(uri)

	select {
	case err := <-done:
		return err
	case err := <-ended:
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
