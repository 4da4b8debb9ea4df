package app_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// traffic sends requests until it is stopped: over HTTP with a connection for each, over HTTP on
// connections that stay, and over gRPC.
type traffic struct {
	t     *testing.T
	key   atomic.Pointer[string]
	sent  [3]atomic.Int64
	stop  context.CancelFunc
	group sync.WaitGroup
}

func (l *traffic) run(
	ctx context.Context, kind int, one func(ctx context.Context, key string) error,
) {
	l.group.Go(func() {
		for ctx.Err() == nil {
			if err := one(context.WithoutCancel(ctx), *l.key.Load()); err != nil {
				l.t.Errorf("a request of kind %d failed: %v", kind, err)
				return
			}
			l.sent[kind].Add(1)
		}
	})
}

// progress waits until each kind has sent some more requests.
func (l *traffic) progress() {
	l.t.Helper()
	late := time.After(waitTime)
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for kind := range l.sent {
		for goal := l.sent[kind].Load() + 5; l.sent[kind].Load() < goal && !l.t.Failed(); {
			select {
			case <-again.C:
			case <-late:
				l.t.Fatalf("kind %d makes no progress", kind)
			}
		}
	}
}

func newTraffic(t *testing.T, g *gateway, key string, trust *tls.Config) *traffic {
	t.Helper()
	l := &traffic{t: t}
	l.key.Store(&key)
	var ctx context.Context
	ctx, l.stop = context.WithCancel(t.Context())
	for kind, tr := range []*http.Transport{
		{DisableKeepAlives: true, TLSClientConfig: trust.Clone()}, {TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true},
	} {
		t.Cleanup(tr.CloseIdleConnections)
		c := &http.Client{Transport: tr, Timeout: waitTime}
		l.run(ctx, kind, func(ctx context.Context, key string) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+g.Addresses().REST+"/v1/databases/db:runCommand", strings.NewReader(`{"command":{"ping":1}}`))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Api-Key", key)
			resp, err := c.Do(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%d %s", resp.StatusCode, text)
			}
			return err
		})
	}
	cc, err := grpc.NewClient("passthrough:///"+g.Addresses().GRPC, grpc.WithTransportCredentials(credentials.NewTLS(trust.Clone())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	l.run(ctx, 2, func(ctx context.Context, key string) error {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
		_, err := mooringv1.NewDocumentServiceClient(cc).
			Find(ctx, &mooringv1.FindRequest{Database: "db", Collection: "c"})
		return err
	})
	return l
}

// logs waits until the log has a text n times.
func (g *gateway) logs(text string, n int) {
	g.t.Helper()
	late := time.After(waitTime)
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for strings.Count(g.log.String(), text) < n {
		select {
		case <-again.C:
		case <-late:
			g.t.Fatalf("the log has no %q %d times:\n%s", text, n, g.log.String())
		}
	}
}

// TestRotationUnderLoad changes API keys and certificates while requests arrive, and checks that
// none is lost, that new handshakes get the new certificate, and that an old key ends.
func TestRotationUnderLoad(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	first, second := ca.Issue(t, "127.0.0.1"),
		certtest.Authority(t, certtest.RSA).Issue(t, "127.0.0.1")
	crt, key := certtest.File(t, "crt", first.CertificateBlock()),
		certtest.File(t, "key", first.KeyBlock(t))
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	oldKey, oldLine := newKey(t, "shop", time.Time{})
	newKey, newLine := newKey(t, "shop", time.Time{})
	keys := secretFile(t, "keys", oldLine)
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", documents(3, 10)...)
	g := start(t, mongo.URI(), "--auth-api-keys-file", keys, "--tls-certificate-file", crt,
		"--tls-key-file", key, "--connections-max-age=1s")

	pool := ca.Pool()
	pool.AddCert(second.Chain()[1])
	trust := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	l := newTraffic(t, g, oldKey, trust)
	l.progress()

	write(keys, oldLine+"\n"+newLine+"\n")
	g.Reload()
	g.logs("API keys read", 1)
	l.progress()
	l.key.Store(&newKey)
	l.progress() // no request with the old key is on its way any more
	write(keys, newLine)
	g.Reload()
	g.logs("API keys read", 2)
	l.progress()
	write(keys, "nonsense")
	g.Reload()
	g.logs("keeping the old ones", 1)
	l.progress()

	write(crt, string(pem.EncodeToMemory(second.CertificateBlock()))) // the key does not fit yet
	g.Reload()
	g.logs("keeping the old one", 1)
	l.progress()
	write(key, string(pem.EncodeToMemory(second.KeyBlock(t))))
	g.Reload()
	g.logs("certificate read", 1)
	l.progress()
	conn, err := (&tls.Dialer{Config: trust.Clone()}).
		DialContext(t.Context(), "tcp", g.Addresses().REST)
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.(*tls.Conn).
		ConnectionState().PeerCertificates[0]; !got.Equal(second.Certificate) {
		t.Error("a new connection gets the old certificate")
	}
	conn.Close()
	l.progress()
	l.stop()
	l.group.Wait()

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+g.Addresses().REST+"/v1/deployment/pools", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Api-Key", oldKey)
	tr := &http.Transport{TLSClientConfig: trust.Clone()}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the old key: %d, want 401", resp.StatusCode)
	}
	g.stop()
}

// TestPolicyRotationUnderLoad changes the policy's file while requests arrive, and checks that none
// is lost: neither while rules change that all permit the requests, nor while the file cannot be
// used. Rules that forbid the requests count in the end.
func TestPolicyRotationUnderLoad(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	own := ca.Issue(t, "127.0.0.1")
	key, line := newKey(t, "shop", time.Time{})
	rules := []string{
		`@commands("ping") permit (principal == Principal::"key:shop", action, resource);`,
		`@commands("ping, hello") permit (principal, action == Action::"RunCommand", resource)
			when { principal.kind == "key" };
		permit (principal, action == Action::"Find", resource in Database::"db");
		forbid (principal, action in Action::"operate", resource);`,
	}
	file := secretFile(t, "policy", rules[0])
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", documents(3, 10)...)
	g := start(t, mongo.URI(), "--auth-api-keys-file", secretFile(t, "keys", line),
		"--tls-certificate-file", certtest.File(t, "crt", own.CertificateBlock()),
		"--tls-key-file", certtest.File(t, "key", own.KeyBlock(t)), "--policy-file", file)
	change := func(text, logged string, times int) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		g.Reload()
		g.logs(logged, times)
	}
	trust := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	l := newTraffic(t, g, key, trust)
	const changes = 10
	for i := range changes {
		l.progress()
		change(rules[(i+1)%2], "policy read", i+1)
	}
	l.progress()
	change("permit (", "keeping the old rules", 1)
	l.progress()
	change(`forbid (principal, action == Action::"read", resource);`, "keeping the old rules", 2)
	l.progress()
	l.stop()
	l.group.Wait()

	change("forbid (principal, action, resource);", "policy read", changes+1)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"https://"+g.Addresses().REST+"/v1/databases/db/collections/c/documents", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Api-Key", key)
	tr := &http.Transport{TLSClientConfig: trust.Clone()}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a request that the last rules forbid: %d, want 403", resp.StatusCode)
	}
	g.stop()
}

// TestClientCertificates checks that a client certificate is a credential, on both ports.
func TestClientCertificates(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	own := ca.Issue(t, "127.0.0.1")
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", documents(3, 10)...)
	g := start(t, mongo.URI(), "--tls-certificate-file",
		certtest.File(t, "crt", own.CertificateBlock()),
		"--tls-key-file", certtest.File(t, "key", own.KeyBlock(t)), "--tls-client-authority-file",
		certtest.File(t, "ca", ca.CertificateBlock()),
		"--auth-certificate-name=commonName")
	for name, want := range map[string]int{"client": http.StatusOK, "": http.StatusUnauthorized} {
		trust := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
		if name != "" {
			trust.Certificates = []tls.Certificate{ca.Issue(t, name).TLS(nil)}
		}
		tr := &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true}
		resp, err := (&http.Client{Transport: tr}).Get("https://" + g.Addresses().REST + "/v1/databases/db/collections/c/documents")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		tr.CloseIdleConnections()
		if resp.StatusCode != want || resp.ProtoMajor != 2 {
			t.Errorf("REST with the certificate %q: %s %d, want %d", name, resp.Proto,
				resp.StatusCode, want)
		}
		cc, err := grpc.NewClient("passthrough:///"+g.Addresses().GRPC, grpc.WithTransportCredentials(credentials.NewTLS(trust.Clone())))
		if err != nil {
			t.Fatal(err)
		}
		_, err = mooringv1.NewDocumentServiceClient(cc).
			Find(t.Context(), &mooringv1.FindRequest{Database: "db", Collection: "c"})
		if (err == nil) != (want == http.StatusOK) {
			t.Errorf("gRPC with the certificate %q: %v", name, err)
		}
		_ = cc.Close()
	}
	if !strings.Contains(g.log.String(), "principal=cert:client") {
		t.Error("the log does not name the principal")
	}
	g.stop()
}
