package client_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func TestNewRefusesContradictions(t *testing.T) {
	tests := map[string]connstring.Config{
		"tags with primary":      {ReadPreference: "primary", ReadPreferenceTags: []connstring.TagSet{{{Name: "a", Value: "b"}}}},
		"unknown mode":           {ReadPreference: "first"},
		"w 0 with journal":       {WriteConcern: client.WriteConcern{Nodes: new(int32(0)), Journal: new(true)}},
		"X.509 without TLS":      {HasCredential: true, AuthMechanism: "MONGODB-X509", TLS: connstring.TLS{Enabled: new(false), CertificateKeyFile: "c.pem"}},
		"X.509, no certificate":  {HasCredential: true, AuthMechanism: "MONGODB-X509", TLS: connstring.TLS{Enabled: new(true)}},
		"no password":            {HasCredential: true, Username: "app"},
		"an unknown mechanism":   {HasCredential: true, AuthMechanism: "MONGODB-MAGIC"},
		"a file that is missing": {TLS: connstring.TLS{Enabled: new(true), CAFile: "/nonexistent"}},
	}
	for name, cfg := range tests {
		t.Run(name, func(t *testing.T) {
			cfg.Hosts = []address.Address{"a:27017"}
			if _, err := client.New(cfg, client.Options{}); err == nil {
				t.Error("New() = nil, want an error")
			}
			cfg.SRV, cfg.SRVHost, cfg.Hosts = true, "db.example.test", nil
			if _, err := client.New(cfg, client.Options{}); err == nil && cfg.HasCredential {
				t.Error("New() for mongodb+srv = nil, want an error before DNS is asked")
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	c, err := client.New(connstring.Config{
		Hosts: []address.Address{"a:27017"}, RetryWrites: new(true), RetryReads: new(false),
		Warnings: []connstring.Warning{{Option: "ssl", Problem: "Old."}},
	}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range c.Warnings() {
		got = append(got, w.Option)
	}
	if len(got) != 1 || got[0] != "ssl" {
		t.Errorf("Warnings() = %v, want ssl", got)
	}
}

// certificate makes a self-signed certificate for example.com, and a PEM file of it and its key.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"example.com"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...)
	file := filepath.Join(t.TempDir(), "cert.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func TestTLS(t *testing.T) {
	tests := []struct {
		name string
		tls  func(file string) connstring.TLS
		ok   bool
	}{
		{"unknown root", func(string) connstring.TLS { return connstring.TLS{} }, false},
		{"another name", func(f string) connstring.TLS { return connstring.TLS{CAFile: f} }, false},
		{"any name", func(f string) connstring.TLS { return connstring.TLS{CAFile: f, AllowInvalidHostnames: true} }, true},
		{"any name, unknown root", func(string) connstring.TLS { return connstring.TLS{AllowInvalidHostnames: true} }, false},
		{"insecure", func(string) connstring.TLS { return connstring.TLS{Insecure: true} }, true},
		{"client certificate", func(f string) connstring.TLS {
			return connstring.TLS{Insecure: true, CertificateKeyFile: f}
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cert, file := certificate(t)
				srv := fakemongo.NewServer(t, nil)
				conf := &tls.Config{Certificates: []tls.Certificate{cert}}
				if tt.name == "client certificate" {
					conf.ClientAuth = tls.RequireAnyClientCert
				}
				srv.UseTLS(conf)
				cfg := connstring.Config{
					TLS: tt.tls(file), ServerSelectionTimeout: new(time.Second),
				}
				cfg.TLS.Enabled = new(true)
				c := start(t, srv, cfg, client.Options{})
				if err := c.Ping(t.Context()); err == nil != tt.ok {
					t.Errorf("Ping() = %v, want success %v", err, tt.ok)
				}
			})
		})
	}
}

func TestTopologyAndPing(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		if err := c.Ping(t.Context()); err != nil {
			t.Fatalf("Ping() = %v", err)
		}
		if s := c.Topology().Server(srv.Address()); s == nil || !s.IsAvailable() {
			t.Errorf("Topology() = %v, want the server in it", c.Topology())
		}
	})
}
