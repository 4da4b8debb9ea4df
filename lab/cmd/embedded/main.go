// Command embedded runs FerretDB v1 with SQLite, in a temporary directory, as a replica set of one
// member for demonstrations and tests. FerretDB finds and changes documents; transactions, change
// streams and sessions are of lab/internal/replicaset, before it.
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
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mooringdb/mooring/lab/internal/ferret"
	"github.com/mooringdb/mooring/lab/internal/rawconn"
	"github.com/mooringdb/mooring/lab/internal/replicaset"
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

// config reads the files. It returns nil if there is no certificate.
func (f files) config() (*tls.Config, error) {
	if f.certificate == "" {
		return nil, nil
	}
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

	cfg, err := secure.config()
	if err != nil {
		return err
	}
	backend, done, err := ferret.Start(ctx, dir)
	if err != nil {
		return err
	}
	engine := rawconn.NewEngine(backend)
	defer engine.Close()
	set, err := replicaset.Listen(address, engine, replicaset.Config{TLS: cfg})
	if err != nil {
		return err
	}
	defer set.Close()
	uri := "mongodb://" + string(set.Address()) + "/"
	if cfg != nil {
		uri += "?tls=true"
	}
	fmt.Println(uri)

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	set.Close()
	engine.Close()
	// FerretDB waits for its clients to go; a demonstration does not.
	select {
	case err := <-done:
		return err
	case <-time.After(2 * time.Second):
		return nil
	}
}
