// Package certificate holds the TLS configuration of the public listeners. It can be replaced while
// they serve: connections that exist go on, new ones get the new one. The package reads files when
// it is made, and watches none.
package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
)

// Holder holds the configuration. Its methods are safe for concurrent use.
type Holder struct {
	files   config.TLS
	sum     string // watch.Sum of the texts that New has read
	current atomic.Pointer[tls.Config]
}

// New reads the files. It returns nil without an error if there is no certificate.
func New(files config.TLS) (*Holder, error) {
	if !files.Enabled() {
		return nil, nil
	}
	h := &Holder{files: files}
	var texts []string
	options := [...]string{"tls.certificateFile", "tls.keyFile", "tls.clientAuthorityFile"}
	for i, path := range h.Paths() {
		text, err := watch.Read(path)
		if err != nil {
			return nil, &config.Error{Option: options[i], Problem: err.Error()}
		}
		texts = append(texts, text)
	}
	if err := h.Use(texts); err != nil {
		return nil, err
	}
	h.sum = watch.Sum(texts...)
	return h, nil
}

// Paths returns the files: the certificate's, its key's, and that of the clients' authorities if
// there are any.
func (h *Holder) Paths() []string {
	paths := []string{h.files.CertificateFile, h.files.KeyFile}
	if h.files.ClientAuthorityFile != "" {
		paths = append(paths, h.files.ClientAuthorityFile)
	}
	return paths
}

// Sum returns watch.Sum of the texts that New has read.
func (h *Holder) Sum() string { return h.sum }

// NotAfter returns the time at which the certificate ends.
func (h *Holder) NotAfter() time.Time { return h.current.Load().Certificates[0].Leaf.NotAfter }

// Use replaces the configuration by one of the texts of Paths. If they cannot be used, the old one
// stays.
func (h *Holder) Use(texts []string) error {
	pair, err := tls.X509KeyPair([]byte(texts[0]), []byte(texts[1]))
	if err != nil {
		return fmt.Errorf("options tls.certificateFile and tls.keyFile: %w", err)
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		NextProtos: []string{"h2", "http/1.1"},
	}
	if len(texts) > 2 {
		if c.ClientCAs, err = authorities(texts[2]); err != nil {
			return err
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven
		if h.files.RequireClient {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
		// A session that is resumed would count by the authorities of its beginning.
		c.SessionTicketsDisabled = true
	}
	h.current.Store(c)
	return nil
}

func authorities(text string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(text)) {
		return nil, errors.New(
			"option tls.clientAuthorityFile: there is no certificate in the file")
	}
	return pool, nil
}

// TLS returns the configuration of a listener. Each handshake gets the newest.
func (h *Holder) TLS() *tls.Config {
	if h == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return h.current.Load(), nil
		},
		SessionTicketsDisabled: h.files.ClientAuthorityFile != "",
	}
}
