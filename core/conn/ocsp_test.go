package conn_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	xocsp "golang.org/x/crypto/ocsp"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/conn/ocsp"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// dialURI connects by a connection string, to which it adds the server's address and the
// authority's file.
func dialURI(t *testing.T, addr address.Address, ca *certtest.Pair, options string) error {
	t.Helper()
	return ping(t.Context(), addr, uriConfig(t, addr, ca, options))
}

func uriConfig(t *testing.T, addr address.Address, ca *certtest.Pair, options string) conn.Config {
	t.Helper()
	cs, err := connstring.Parse(fmt.Sprintf("mongodb://%s/?%s&tlsCAFile=%s", addr, options, url.QueryEscape(caFile(t, ca))))
	if err != nil {
		t.Fatal(err)
	}
	secure, err := conn.NewTLS(cs.TLS)
	if err != nil {
		t.Fatal(err)
	}
	return conn.Config{TLS: secure.Config, Revocation: secure.Revocation()}
}

// unreachable returns the URL of a port without a listener.
func unreachable(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return "http://" + l.Addr().String()
}

// TestOCSPMatrix runs the table of the specification's test plan. Each column is a server and a
// responder, with keys of either kind and, where there is a responder, with responses signed by
// the authority and by a delegate; each row is a connection string.
func TestOCSPMatrix(t *testing.T) {
	columns := []struct {
		name       string
		status     int
		mustStaple bool
		staples    bool
		responder  bool // it runs
		ok         bool // with tls=true
	}{
		{"Test 1: valid, staples", xocsp.Good, true, true, true, true},
		{"Test 2: revoked, staples", xocsp.Revoked, true, true, true, false},
		{"Test 3: valid, does not staple", xocsp.Good, false, false, true, true},
		{"Test 4: revoked, does not staple", xocsp.Revoked, false, false, true, false},
		{"Soft Fail Test", xocsp.Good, false, false, false, true},
		{"Malicious Server Test 1: revoked, must staple and does not", xocsp.Revoked, true, false, true, false},
		{"Malicious Server Test 2: must staple and does not, no responder", xocsp.Good, true, false, false, false},
	}
	rows := []struct {
		options string
		relaxed bool
	}{
		{"tls=true", false},
		{"tls=true&tlsInsecure=true", true},
		{"tls=true&tlsAllowInvalidCertificates=true", true},
	}
	for _, column := range columns {
		for _, algorithm := range []certtest.Algorithm{certtest.RSA, certtest.ECDSA} {
			for _, delegated := range []bool{false, true} {
				if delegated && !column.responder {
					continue
				}
				ca := certtest.Authority(t, algorithm)
				signer, signedBy := ca, "CA"
				if delegated {
					signer, signedBy = ca.Delegate(t), "delegate"
				}
				responder := &certtest.Responder{
					Authority: ca, Signer: signer, Response: xocsp.Response{Status: column.status},
				}
				asked := unreachable(t)
				if column.responder {
					s := httptest.NewServer(responder)
					t.Cleanup(s.Close)
					asked = s.URL
				}
				options := []certtest.Option{certtest.Responders(asked)}
				if column.mustStaple {
					options = append(options, certtest.MustStaple)
				}
				cert := ca.Issue(t, "127.0.0.1", options...)
				var staple []byte
				if column.staples {
					staple = cert.Respond(t, signer, responder.Response)
				}
				server := fakemongo.NewTCPServer(t, nil)
				server.UseTLS(&tls.Config{Certificates: []tls.Certificate{cert.TLS(staple)}})
				for _, row := range rows {
					t.Run(fmt.Sprintf("%s/%v/%s/%s", column.name, algorithm, signedBy, row.options),
						func(
							t *testing.T,
						) {
							before := len(responder.Methods())
							err := dialURI(t, server.Address(), ca, row.options)
							if want := column.ok || row.relaxed; (err == nil) != want {
								t.Errorf("Dial() = %v, want success: %v", err, want)
							}
							wantAsked := column.responder && !column.mustStaple && !row.relaxed
							if asked := len(responder.Methods()) > before; asked != wantAsked {
								t.Errorf("the responder was asked: %v, want %v", asked, wantAsked)
							}
						})
				}
			}
		}
	}
}

// TestOCSPInvalidConfigurations runs the test plan's list of options that exclude each other.
func TestOCSPInvalidConfigurations(t *testing.T) {
	for _, options := range []string{
		"tlsInsecure=true&tlsDisableOCSPEndpointCheck=true",
		"tlsInsecure=true&tlsDisableOCSPEndpointCheck=false",
		"tlsInsecure=false&tlsDisableOCSPEndpointCheck=true",
		"tlsInsecure=true&tlsDisableCertificateRevocationCheck=true",
		"tlsInsecure=true&tlsDisableCertificateRevocationCheck=false",
		"tlsAllowInvalidCertificates=true&tlsDisableOCSPEndpointCheck=true",
		"tlsAllowInvalidCertificates=true&tlsDisableCertificateRevocationCheck=true",
		"tlsAllowInvalidCertificates=true&tlsDisableCertificateRevocationCheck=false",
		"tlsDisableCertificateRevocationCheck=true&tlsDisableOCSPEndpointCheck=true",
	} {
		if _, err := connstring.Parse("mongodb://localhost/?tls=true&" + options); err == nil {
			t.Errorf("Parse(%s) = nil, want an error", options)
		}
	}
}

// TestOCSPOptions checks what the options that relax the checks leave.
func TestOCSPOptions(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	revoked := xocsp.Response{Status: xocsp.Revoked}
	s := httptest.NewServer(&certtest.Responder{Authority: ca, Response: revoked})
	t.Cleanup(s.Close)
	cert := ca.Issue(t, "127.0.0.1", certtest.Responders(s.URL))
	elsewhere := ca.Issue(t, "other.example", certtest.Responders(s.URL))
	must := ca.Issue(t, "127.0.0.1", certtest.MustStaple)
	staple := cert.Respond(t, ca, revoked)
	foreign := must.Respond(t, ca, xocsp.Response{})
	for _, tt := range []struct {
		name    string
		cert    *certtest.Pair
		staple  []byte
		options string
		want    string
	}{
		{"no endpoints, staple", cert, staple, "tlsDisableOCSPEndpointCheck=true", "was revoked"},
		{"no endpoints, no staple", cert, nil, "tlsDisableOCSPEndpointCheck=true", ""},
		{"no endpoints, must staple", must, nil, "tlsDisableOCSPEndpointCheck=true", "must-staple"},
		{"no revocation check, staple", cert, staple, "tlsDisableCertificateRevocationCheck=true", ""},
		{"no revocation check, no staple", cert, nil, "tlsDisableCertificateRevocationCheck=true", ""},
		{"no revocation check, must staple", must, nil, "tlsDisableCertificateRevocationCheck=true", ""},
		{"any name, staple", elsewhere, elsewhere.Respond(t, ca, revoked), "tlsAllowInvalidHostnames=true", "was revoked"},
		{"any name, no staple", elsewhere, nil, "tlsAllowInvalidHostnames=true", "was revoked"},
		{"any name, no endpoints", elsewhere, nil, "tlsAllowInvalidHostnames=true&tlsDisableOCSPEndpointCheck=true", ""},
		{"explicit defaults", cert, nil, "tlsDisableOCSPEndpointCheck=false", "was revoked"},
		{"another certificate's staple", cert, foreign, "tlsDisableOCSPEndpointCheck=true", "the OCSP response that the server stapled is invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := fakemongo.NewTCPServer(t, nil)
			server.UseTLS(&tls.Config{Certificates: []tls.Certificate{tt.cert.TLS(tt.staple)}})
			check(t, dialURI(t, server.Address(), ca, "tls=true&"+tt.options), tt.want)
		})
	}
}

func TestOCSPWithTLS12(t *testing.T) {
	ca := certtest.Authority(t, certtest.RSA)
	cert := ca.Issue(t, "127.0.0.1", certtest.MustStaple)
	for status, want := range map[int]string{xocsp.Good: "", xocsp.Revoked: "was revoked"} {
		server := fakemongo.NewTCPServer(t, nil)
		staple := cert.Respond(t, ca, xocsp.Response{Status: status})
		server.UseTLS(&tls.Config{
			Certificates: []tls.Certificate{cert.TLS(staple)}, MaxVersion: tls.VersionTLS12,
		})
		check(t, dialURI(t, server.Address(), ca, "tls=true"), want)
	}
}

// TestOCSPConnectionsShareTheCache checks that a client asks once.
func TestOCSPConnectionsShareTheCache(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	responder := &certtest.Responder{Authority: ca}
	s := httptest.NewServer(responder)
	t.Cleanup(s.Close)
	server := fakemongo.NewTCPServer(t, nil)
	server.UseTLS(presents(ca.Issue(t, "127.0.0.1", certtest.Responders(s.URL))))
	cfg := uriConfig(t, server.Address(), ca, "tls=true")
	for range 3 {
		check(t, ping(t.Context(), server.Address(), cfg), "")
	}
	if n := len(responder.Methods()); n != 1 {
		t.Errorf("three connections asked %d times, want once", n)
	}
}

// TestOCSPEndsWithTheDial checks that the end of the dial ends the wait for a responder that does
// not answer, and that the error has the cause.
func TestOCSPEndsWithTheDial(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client has gone")
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		cancel(gone)
		<-req.Context().Done()
	}))
	t.Cleanup(s.Close)
	server := fakemongo.NewTCPServer(t, nil)
	server.UseTLS(presents(ca.Issue(t, "127.0.0.1", certtest.Responders(s.URL))))
	err := ping(ctx, server.Address(), uriConfig(t, server.Address(), ca, "tls=true"))
	if !errors.Is(err, gone) || !errors.Is(err, context.Canceled) {
		t.Errorf("Dial() = %v, want the cause of its end", err)
	}
}

// TestOCSPWithinAShortTimeout checks that responders which do not answer cost no connection, also
// where ConnectTimeout is shorter than the time that they have, and are not asked each time.
func TestOCSPWithinAShortTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := certtest.Authority(t, certtest.ECDSA)
		server := fakemongo.NewServer(t, nil)
		server.UseTLS(presents(ca.Issue(t, "server", certtest.Responders("http://dropped"))))
		var asked atomic.Int32
		hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
			asked.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		cfg := conn.Config{
			Dialer: server.Dial, ConnectTimeout: 3 * time.Second,
			TLS: func() *tls.Config {
				return &tls.Config{RootCAs: ca.Pool(), ServerName: "server"}
			},
			Revocation: ocsp.New(ocsp.Config{Transport: &http.Transport{DialContext: hang}}),
		}
		check(t, ping(t.Context(), server.Address(), cfg), "")
		first := asked.Load()
		check(t, ping(t.Context(), server.Address(), cfg), "")
		if n := asked.Load(); first == 0 || n != first {
			t.Errorf("the responder was asked %d times, then %d times in all", first, n)
		}
	})
}

// TestOCSPTimeoutIsNotTheServers checks that a timeout while asking a responder is not taken for
// a sign of an overloaded server.
func TestOCSPTimeoutIsNotTheServers(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	ctx := &expiring{Context: t.Context(), done: make(chan struct{})}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		close(ctx.done)
		<-req.Context().Done()
	}))
	t.Cleanup(s.Close)
	server := fakemongo.NewTCPServer(t, nil)
	server.UseTLS(presents(ca.Issue(t, "127.0.0.1", certtest.Responders(s.URL))))
	err := ping(ctx, server.Address(), uriConfig(t, server.Address(), ca, "tls=true"))
	if !mongoerr.IsNetwork(err) || !mongoerr.IsTimeout(err) || len(mongoerr.Labels(err)) > 0 {
		t.Errorf("Dial() = %v with the labels %v, want a timeout without labels", err,
			mongoerr.Labels(err))
	}
}

// expiring is a context whose deadline passes when done is closed.
type expiring struct {
	context.Context //nolint:containedctx // it is a context
	done            chan struct{}
}

func (e *expiring) Done() <-chan struct{} { return e.done }

func (e *expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestOCSPErrorCanBeTold(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	cert := ca.Issue(t, "127.0.0.1")
	server := fakemongo.NewTCPServer(t, nil)
	server.UseTLS(&tls.Config{
		Certificates: []tls.Certificate{
			cert.TLS(cert.Respond(t, ca, xocsp.Response{Status: xocsp.Revoked})),
		},
	})
	err := dialURI(t, server.Address(), ca, "tls=true")
	revoked, ok := errors.AsType[*ocsp.RevokedError](err)
	if !ok || !revoked.Certificate.Equal(cert.Certificate) {
		t.Errorf("Dial() = %v, want a *RevokedError of the server's certificate", err)
	}
}

// TestOCSPWithOpenSSL asks `openssl ocsp`, for a good and for a revoked certificate, with
// responses signed by the authority and by a delegate.
func TestOCSPWithOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	for _, algorithm := range []certtest.Algorithm{certtest.RSA, certtest.ECDSA} {
		for _, signer := range []string{"CA", "delegate"} {
			t.Run(algorithm.String()+" "+signer, func(t *testing.T) {
				ca := certtest.Authority(t, algorithm)
				signedBy := ca
				if signer == "delegate" {
					signedBy = ca.Delegate(t)
				}
				url := startOpenSSL(t, openssl, ca, signedBy)
				for serial, want := range map[int64]string{
					goodSerial: "", revokedSerial: "was revoked",
				} {
					server := fakemongo.NewTCPServer(t, nil)
					server.UseTLS(presents(ca.Issue(t, "127.0.0.1", certtest.Responders(url), func(
						c *x509.Certificate,
					) {
						c.SerialNumber = big.NewInt(serial)
					})))
					check(t, dialURI(t, server.Address(), ca, "tls=true"), want)
				}
			})
		}
	}
}

// The entries of OpenSSL's responder.
const (
	goodSerial    = 0xA1
	revokedSerial = 0xA2
)

// startOpenSSL runs `openssl ocsp` until the end of the test and returns its URL.
func startOpenSSL(t *testing.T, openssl string, ca, signer *certtest.Pair) string {
	t.Helper()
	const stamp = "060102150405Z"
	now := time.Now().UTC()
	index := fmt.Sprintf("V\t%s\t\t%X\tunknown\t/CN=good\n"+
		"R\t%[1]s\t%[3]s,keyCompromise\t%[4]X\tunknown\t/CN=revoked\n",
		now.Add(time.Hour).Format(stamp), goodSerial, now.Add(-time.Hour).Format(stamp),
		revokedSerial)
	file := filepath.Join(t.TempDir(), "index.txt")
	if err := os.WriteFile(file, []byte(index), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(openssl, "ocsp", "-port", "0", "-index", file, "-CA", caFile(t, ca),
		"-nmin", "60",
		"-rsigner", certtest.File(t, "signer.pem", signer.CertificateBlock()),
		"-rkey", certtest.File(t, "signer.key", signer.KeyBlock(t)))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = io.Copy(&log, stdout)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("openssl wrote:\n%s", log.String())
		}
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		fmt.Fprintln(&log, lines.Text())
		// ACCEPT [::]:46559 PID=12791
		if rest, ok := strings.CutPrefix(lines.Text(), "ACCEPT "); ok {
			_, port, err := net.SplitHostPort(strings.Fields(rest)[0])
			if err != nil || port == "0" {
				break
			}
			return "http://127.0.0.1:" + port
		}
	}
	t.Skip("this openssl does not say where it listens")
	return ""
}
