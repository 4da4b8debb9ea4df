package e2e

import (
	"errors"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// startProxy starts Debian's SOCKS5 proxy, which wants that user and password, and gives its port.
func startProxy(t *testing.T, user, password string) string {
	t.Helper()
	path, err := exec.LookPath("microsocks")
	if err != nil {
		t.Skip("microsocks is not installed (apt-get install microsocks)")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := proc.Start(proc.Config{
		Path: path, Args: []string{"-i", "127.0.0.1", "-p", port, "-u", user, "-P", password},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(time.Second) })
	gatewaytest.Eventually(t, 10*time.Second, func() error {
		nc, err := net.Dial("tcp", "127.0.0.1:"+port)
		return errors.Join(err, closed(nc))
	})
	return port
}

func closed(nc net.Conn) error {
	if nc == nil {
		return nil
	}
	return nc.Close()
}

// TestSOCKS5 sends a find to a real server through a real proxy, over TLS with a client
// certificate. The certificate is for the server's name, which the proxy looks up. The connection
// is a direct one, since the server has another name in its replica set.
func TestSOCKS5(t *testing.T) {
	port := startProxy(t, "user", "secret & more")
	ca := certtest.Authority(t, certtest.ECDSA)
	client := ca.Issue(t, "client")
	server := startEmbeddedTLS(t, ca, ca.Issue(t, "localhost"))
	server = strings.Replace(server, "127.0.0.1", "localhost", 1)
	if !strings.Contains(server, "localhost") {
		t.Fatalf("the server is at %s", server)
	}
	for _, tt := range []struct{ name, user, password, want string }{
		{"right", "user", "secret & more", ""},
		{"wrong password", "user", "another secret", "proxy did not connect"},
		{"none", "", "", "proxy did not connect: no acceptable authentication methods"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			query := url.Values{
				"tlsCAFile": {certtest.File(t, "ca.pem", ca.CertificateBlock())},
				"tlsCertificateKeyFile": {
					certtest.File(t, "client.pem", client.CertificateBlock(), client.KeyBlock(t)),
				},
				"proxyHost":        {"127.0.0.1"},
				"proxyPort":        {port},
				"directConnection": {"true"},
			}
			if tt.user != "" {
				query.Set("proxyUsername", tt.user)
				query.Set("proxyPassword", tt.password)
			}
			if tt.want != "" {
				query.Set("serverSelectionTimeoutMS", "500")
			}
			documents := suite.Start(t, server+"&"+strings.ReplaceAll(query.Encode(), "+", "%20")).
				Documents(t)
			ctx := t.Context()
			one := document(t, fields("_id", tt.name))
			_, err := documents.InsertOne(ctx,
				&mooringv1.InsertOneRequest{Database: "socks", Collection: "things", Document: one})
			if tt.want != "" {
				if status.Code(err) != codes.Unavailable ||
					!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), port) {
					t.Errorf("InsertOne() = %v, want Unavailable with %q and without the "+
						"proxy's port", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			found, err := documents.FindOne(ctx,
				&mooringv1.FindOneRequest{Database: "socks", Collection: "things"})
			if err != nil || string(found.GetDocument().GetBson()) != string(one.GetBson()) {
				t.Errorf("FindOne() = %v, %v, want what was inserted", found, err)
			}
		})
	}
}
