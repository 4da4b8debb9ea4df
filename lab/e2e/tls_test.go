package e2e

import (
	"context"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/youmark/pkcs8"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// startEmbeddedTLS starts an embedded database that wants certificates of its clients, and gives
// its connection string.
func startEmbeddedTLS(t *testing.T, ca, server *certtest.Pair) string {
	t.Helper()
	p, err := proc.Start(proc.Config{Path: suite.Embedded(t), Args: []string{
		"--tls-certificate-file", certtest.File(t, "server.pem", server.CertificateBlock()),
		"--tls-key-file", certtest.File(t, "server.key", server.KeyBlock(t)),
		"--tls-ca-file", certtest.File(t, "ca.pem", ca.CertificateBlock()),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(10 * time.Second) })
	ctx, cancel := context.WithTimeout(t.Context(), gateway.StartTime)
	defer cancel()
	uri, err := p.Line(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return uri
}

// TestMutualTLS sends a find to a real server over TLS, with a client certificate.
func TestMutualTLS(t *testing.T) {
	ca, stranger := certtest.Authority(t, certtest.ECDSA),
		certtest.ForeignAuthority(t, certtest.ECDSA)
	client := ca.Issue(t, "client")
	const password = "a secret & more"
	der, err := pkcs8.MarshalPrivateKey(client.Key, []byte(password), nil)
	if err != nil {
		t.Fatal(err)
	}
	encrypted := &pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: der}
	uri := startEmbeddedTLS(t, ca, ca.Issue(t, "127.0.0.1"))
	for _, tt := range []struct {
		name   string
		ca     *certtest.Pair
		client []*pem.Block
		secret string
		want   string // in the error; "" for success
	}{
		{"key in the clear", ca, []*pem.Block{client.CertificateBlock(), client.KeyBlock(t)}, "", ""},
		{"key with a password", ca, []*pem.Block{client.CertificateBlock(), encrypted}, password, ""},
		{"no client certificate", ca, nil, "", "certificate required"},
		{"another authority", stranger, []*pem.Block{client.CertificateBlock(), client.KeyBlock(t)}, "", "signed by unknown authority"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			query := url.Values{"tlsCAFile": {certtest.File(t, "ca.pem", tt.ca.CertificateBlock())}}
			if tt.client != nil {
				query.Set("tlsCertificateKeyFile", certtest.File(t, "client.pem", tt.client...))
			}
			if tt.secret != "" {
				query.Set("tlsCertificateKeyFilePassword", tt.secret)
			}
			if tt.want != "" {
				query.Set("serverSelectionTimeoutMS", "500")
			}
			// The server's own string says tls=true. In a query a space is %20: a plus is one for
			// MongoDB.
			documents := suite.Start(t, uri+"&"+strings.ReplaceAll(query.Encode(), "+", "%20")).
				Documents(t)
			ctx := t.Context()
			one := document(t, fields("_id", tt.name, "n", int32(1)))
			_, err := documents.InsertOne(ctx,
				&mooringv1.InsertOneRequest{Database: "tls", Collection: "things", Document: one})
			if tt.want != "" {
				if status.Code(err) != codes.Unavailable ||
					!strings.Contains(err.Error(), tt.want) {
					t.Errorf("InsertOne() = %v, want Unavailable with %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			found, err := documents.FindOne(ctx, &mooringv1.FindOneRequest{
				Database: "tls", Collection: "things", Filter: document(t, fields("_id", tt.name)),
			})
			if err != nil || string(found.GetDocument().GetBson()) != string(one.GetBson()) {
				t.Errorf("FindOne() = %v, %v, want what was inserted", found, err)
			}
		})
	}
}
