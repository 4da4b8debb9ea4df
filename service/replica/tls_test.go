package replica_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"strings"
	"testing"
	"time"
)

func yes() *fake {
	return &fake{answer: func(context.Context) error { return nil }}
}

// TestWhoIsAReplica: each side presents its first key and accepts all its keys.
func TestWhoIsAReplica(t *testing.T) {
	for _, row := range []struct {
		asks, answers string
		ok            bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"ab", "ba", true},
		{"a", "ab", true},
		{"ab", "a", true},
		{"ba", "ab", true},
		{"ba", "a", false}, // the asker presents b, which the owner does not know
		{"a", "ba", false},
	} {
		asker, owner := start(t, row.asks, nil), start(t, row.answers, yes())
		err := asker.ask(t.Context(), owner.Advertised())
		if (err == nil) != row.ok {
			t.Errorf("%s asks %s: %v, want ok %v", row.asks, row.answers, err, row.ok)
		}
		if row.ok {
			continue
		}
		for name, n := range map[string]*node{"asks": asker, "answers": owner} {
			said := n.log.String
			// its own handshake succeeded; the call's error has the cause
			if row.asks == "ba" && name == "asks" {
				continue
			}
			eventually(t, "a clear line in the log of who "+name, func() bool {
				return strings.Contains(said(), "level=WARN") &&
					strings.Contains(said(), "a replica was refused") &&
					strings.Contains(said(), "handle keys")
			})
		}
	}
}

// TestRefusedOnceAWhile: a peer that retries does not fill the log.
func TestRefusedOnceAWhile(t *testing.T) {
	owner := start(t, "a", yes())
	stranger := certificate(t, ring(t, "b").TransportKeys()[0], time.Now().Add(-time.Hour),
		time.Now().Add(time.Hour))
	const tries = 5
	for range tries {
		greets(t, owner.Advertised(), &tls.Config{
			InsecureSkipVerify: true, Certificates: []tls.Certificate{stranger},
			NextProtos: []string{"h2"},
		})
	}
	if n := strings.Count(owner.log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings of %d tries, want 1", n, tries)
	}
}

// TestStrangers: a peer without a certificate, with another one, with an older TLS, or without TLS
// gets no response.
func TestStrangers(t *testing.T) {
	owner := start(t, "a", yes())
	_, foreign, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own := ring(t, "a").TransportKeys()[0]
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, row := range []struct {
		name string
		cfg  *tls.Config
		ok   bool
	}{
		{"no certificate", &tls.Config{}, false},
		{"another key", &tls.Config{Certificates: []tls.Certificate{certificate(t, foreign, past, future)}}, false},
		{"our key", &tls.Config{Certificates: []tls.Certificate{certificate(t, own, past, future)}}, true},
		{"our key, expired", &tls.Config{Certificates: []tls.Certificate{certificate(t, own, past.Add(-time.Hour), past)}}, true},
		{"our key, not yet valid", &tls.Config{Certificates: []tls.Certificate{certificate(t, own, future, future.Add(time.Hour))}}, true},
		{"our certificate, another key", &tls.Config{Certificates: []tls.Certificate{{
			Certificate: certificate(t, own, past, future).Certificate, PrivateKey: foreign,
		}}}, false},
		{"TLS 1.2", &tls.Config{Certificates: []tls.Certificate{certificate(t, own, past, future)}, MaxVersion: tls.VersionTLS12}, false},
		{"another protocol", &tls.Config{Certificates: []tls.Certificate{certificate(t, own, past, future)}, NextProtos: []string{"http/1.1"}}, false},
	} {
		cfg := row.cfg
		cfg.InsecureSkipVerify = true
		if cfg.NextProtos == nil {
			cfg.NextProtos = []string{"h2"}
		}
		if got := greets(t, owner.Advertised(), cfg); got != row.ok {
			t.Errorf("%s: greeted %v, want %v", row.name, got, row.ok)
		}
	}
}

// greets reports whether a replica sends anything after the handshake.
func greets(t *testing.T, address string, cfg *tls.Config) bool {
	t.Helper()
	c, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(waitTime))
	if _, err := c.Write([]byte(
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		return false
	}
	_, err = c.Read(make([]byte, 9))
	return err == nil
}

func certificate(t *testing.T, key ed25519.PrivateKey, from, to time.Time) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(7), NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestCertificate: any reader of X.509 accepts it, and it reveals only the key.
func TestCertificate(t *testing.T) {
	owner := start(t, "a", yes())
	c, err := tls.Dial("tcp", owner.Advertised(),
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	cert := c.ConnectionState().PeerCertificates[0]
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	if _, err := cert.Verify(x509.VerifyOptions{
		Roots: roots, DNSName: "mooring-replica",
	}); err != nil {
		t.Errorf("Verify = %v", err)
	}
	if cert.NotAfter.Year() != 9999 || cert.NotBefore.After(time.Now()) {
		t.Errorf("valid from %s to %s, want always", cert.NotBefore, cert.NotAfter)
	}
}

// TestRotation: a new key is added last on all replicas, then moved first, then left alone, and no
// question fails. The connections of the old key are closed then, and a replica that has only the
// old key is refused.
func TestRotation(t *testing.T) {
	nodes := []*node{start(t, "a", yes()), start(t, "a", yes()), start(t, "a", yes())}
	late := start(t, "a", yes())
	all := func(when string) {
		t.Helper()
		for i, asker := range nodes {
			for k, owner := range nodes {
				if i == k {
					continue
				}
				if err := asker.ask(t.Context(), owner.Advertised()); err != nil {
					t.Fatalf("%s: replica %d asks %d: %v", when, i, k, err)
				}
			}
		}
	}
	if err := late.ask(t.Context(), nodes[0].Advertised()); err != nil {
		t.Fatal(err)
	}
	all("before")
	for _, step := range []string{"ab", "ba", "b"} {
		for i, n := range nodes {
			n.rotate(step)
			all(step + " at replica " + string(rune('0'+i)))
		}
	}
	for i, n := range nodes {
		eventually(t, "only connections of the new key are left", func() bool {
			_, links := n.Connections()
			return links == 2*(len(nodes)-1)
		})
		if strings.Contains(n.log.String(), "level=WARN") {
			t.Errorf("replica %d warned: %s", i, n.log)
		}
	}
	if err := late.ask(t.Context(), nodes[0].Advertised()); err == nil {
		t.Error("a replica whose only key is gone was answered")
	}
}

// TestKeyIsGone: a call over a connection whose key leaves the ring is cut, and a replica of that
// key is not asked any more.
func TestKeyIsGone(t *testing.T) {
	asked := make(chan struct{})
	owner := start(t, "ab", &fake{answer: func(ctx context.Context) error {
		close(asked)
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	asker := start(t, "b", nil)
	done := make(chan error, 1)
	// The owner does not present its own first key: the asker has to know a as well.
	asker.rotate("ba")
	go func() {
		err := asker.ask(t.Context(), owner.Advertised())
		done <- err
	}()
	<-asked
	owner.rotate("a")
	select {
	case err := <-done:
		if err == nil {
			t.Error("a call = nil over a connection whose key is gone")
		}
	case <-time.After(waitTime):
		t.Fatal("the connection is still there")
	}
}

// TestRotationSparesCalls: a call that runs while the first key changes ends normally.
func TestRotationSparesCalls(t *testing.T) {
	asked, answer := make(chan struct{}, 2), make(chan struct{})
	owner := start(t, "ab", &fake{answer: func(context.Context) error {
		asked <- struct{}{}
		<-answer
		return nil
	}})
	asker := start(t, "ab", nil)
	done := make(chan error, 2)
	ask := func() {
		err := asker.ask(t.Context(), owner.Advertised())
		done <- err
	}
	go ask()
	<-asked
	asker.rotate("ba")
	owner.rotate("ba")
	go ask()
	<-asked
	if _, links := asker.Connections(); links != 2 {
		t.Errorf("%d connections, want the old one and a new one", links)
	}
	close(answer)
	for range 2 {
		if err := <-done; err != nil {
			t.Errorf("a call = %v", err)
		}
	}
	eventually(t, "the old connection is closed", func() bool {
		_, links := asker.Connections()
		return links == 1
	})
}
