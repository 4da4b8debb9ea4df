package conn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// useTLS returns the Config of the options, without OCSP.
func useTLS(t *testing.T, opt connstring.TLS) conn.Config {
	t.Helper()
	secure, err := conn.NewTLS(opt)
	if err != nil {
		t.Fatal(err)
	}
	return conn.Config{TLS: secure.Config}
}

func caFile(t *testing.T, ca *certtest.Pair) string {
	t.Helper()
	return certtest.File(t, "ca.pem", ca.CertificateBlock())
}

func presents(cert *certtest.Pair) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{cert.TLS(nil)}}
}

// ping dials, sends a command and closes.
func ping(ctx context.Context, addr address.Address, cfg conn.Config) error {
	c, err := conn.Dial(ctx, addr, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = c.RoundTrip(ctx, message("ping", 0))
	return err
}

func check(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("Dial() = %v, want %q", err, want)
	}
}

func TestTLS(t *testing.T) {
	ca, foreign := certtest.Authority(t, certtest.ECDSA),
		certtest.ForeignAuthority(t, certtest.ECDSA)
	now := time.Now()
	right, wrong, untrusted := ca.Issue(t, "127.0.0.1"), ca.Issue(t, "other.example"),
		foreign.Issue(t, "127.0.0.1")
	expired := ca.Issue(t, "127.0.0.1", certtest.Valid(now.Add(-2*time.Hour), now.Add(-time.Hour)))
	early := ca.Issue(t, "127.0.0.1", certtest.Valid(now.Add(time.Hour), now.Add(2*time.Hour)))
	client := ca.Issue(t, "127.0.0.1", certtest.Purposes(x509.ExtKeyUsageClientAuth))
	below := ca.Intermediate(t).Issue(t, "127.0.0.1")
	incomplete := *below
	incomplete.Above = nil
	tests := []struct {
		name   string
		server *certtest.Pair
		opt    connstring.TLS
		want   string // in the error; "" for success
	}{
		{"trusted", right, connstring.TLS{}, ""},
		{"intermediate authority", below, connstring.TLS{}, ""},
		{"intermediate authority not sent", &incomplete, connstring.TLS{}, "signed by unknown authority"},
		{"wrong name", wrong, connstring.TLS{}, "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"},
		{"untrusted", untrusted, connstring.TLS{}, "signed by unknown authority"},
		{"expired", expired, connstring.TLS{}, "certificate has expired"},
		{"not valid yet", early, connstring.TLS{}, "certificate has expired or is not yet valid"},
		{"certificate of a client", client, connstring.TLS{}, "incompatible key usage"},
		{"wrong name allowed", wrong, connstring.TLS{AllowInvalidHostnames: true}, ""},
		{"untrusted with wrong names allowed", untrusted, connstring.TLS{AllowInvalidHostnames: true}, "signed by unknown authority"},
		{"expired with wrong names allowed", expired, connstring.TLS{AllowInvalidHostnames: true}, "certificate has expired"},
		{"untrusted allowed", untrusted, connstring.TLS{AllowInvalidCertificates: true}, ""},
		{"expired allowed", expired, connstring.TLS{AllowInvalidCertificates: true}, ""},
		{"wrong name with invalid certificates allowed", wrong, connstring.TLS{AllowInvalidCertificates: true}, "any IP SANs"},
		{"both allowed", wrong, connstring.TLS{AllowInvalidCertificates: true, AllowInvalidHostnames: true}, ""},
		{"insecure, wrong name", wrong, connstring.TLS{Insecure: true}, ""},
		{"insecure, untrusted", untrusted, connstring.TLS{Insecure: true}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := fakemongo.NewTCPServer(t, nil)
			s.UseTLS(presents(tt.server))
			tt.opt.CAFile = caFile(t, ca)
			check(t, ping(t.Context(), s.Address(), useTLS(t, tt.opt)), tt.want)
		})
	}
}

func TestTLSWithAServerThatSpeaksPlain(t *testing.T) {
	s := fakemongo.NewTCPServer(t, nil)
	check(t, ping(t.Context(), s.Address(), useTLS(t, connstring.TLS{})), "tls handshake")
}

func TestTLSMinimum(t *testing.T) {
	ca := certtest.Authority(t, certtest.RSA)
	for _, tt := range []struct {
		name string
		max  uint16
		want string
	}{
		{"TLS 1.1", tls.VersionTLS11, "protocol version"},
		{"TLS 1.2", tls.VersionTLS12, ""},
		{"TLS 1.3", tls.VersionTLS13, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := fakemongo.NewTCPServer(t, nil)
			conf := presents(ca.Issue(t, "127.0.0.1"))
			conf.MinVersion, conf.MaxVersion = tls.VersionTLS10, tt.max
			s.UseTLS(conf)
			check(t,
				ping(t.Context(), s.Address(),
					useTLS(t, connstring.TLS{CAFile: caFile(t, ca), Insecure: true})), tt.want)
		})
	}
}

// TestTLSNames checks the name that the certificate must have, and the name that the server is
// sent.
func TestTLSNames(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	for _, tt := range []struct {
		addr address.Address
		cert string
		sni  string
		want string
	}{
		{"db.example:27017", "db.example", "db.example", ""},
		{"db.example:1", "db.example", "db.example", ""},
		{"db.example.:27017", "db.example", "db.example", ""},
		{"db.example:27017", "*.example", "db.example", ""},
		{"a.db.example:27017", "*.example", "a.db.example", "is valid for *.example, not a.db.example"},
		{"db.example:27017", "other.example", "db.example", "is valid for other.example, not db.example"},
		{"10.0.0.1:27017", "10.0.0.1", "", ""},
		{"10.0.0.1:27017", "10.0.0.2", "", "is valid for 10.0.0.2, not 10.0.0.1"},
		{"[2001:db8::1]:27017", "2001:db8::1", "", ""},
		{"[2001:db8:0::1]:27017", "2001:db8::1", "", ""},
		{"[2001:db8::1]:27017", "2001:db8::2", "", "is valid for 2001:db8::2, not 2001:db8::1"},
		{"[fe80::1%eth0]:27017", "fe80::1", "", ""},
		{"/tmp/mongodb-27017.sock", "localhost", "localhost", ""},
		{"/tmp/mongodb-27017.sock", "db.example", "localhost", "is valid for db.example, not localhost"},
	} {
		for mode, opt := range map[string]connstring.TLS{
			"strict": {}, "invalid certificates": {AllowInvalidCertificates: true}, "invalid host names": {AllowInvalidHostnames: true},
		} {
			t.Run(string(tt.addr)+" "+tt.cert+" "+mode, func(t *testing.T) {
				s := fakemongo.NewTCPServer(t, nil)
				told := "nothing"
				conf := presents(ca.Issue(t, tt.cert))
				conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
					told = hello.ServerName
					return nil, nil
				}
				s.UseTLS(conf)
				opt.CAFile = caFile(t, ca)
				cfg := useTLS(t, opt)
				cfg.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "tcp", string(s.Address()))
				}
				want := tt.want
				if opt.AllowInvalidHostnames {
					want = ""
				}
				check(t, ping(t.Context(), tt.addr, cfg), want)
				s.Close()
				if told != tt.sni {
					t.Errorf("SNI is %q, want %q", told, tt.sni)
				}
			})
		}
	}
}

func TestTLSOverIPv6(t *testing.T) {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ca := certtest.Authority(t, certtest.ECDSA)
	done := make(chan error, 1) // read once, after the server has ended
	go func() {
		nc, err := l.Accept()
		if err == nil {
			err = tls.Server(nc, presents(ca.Issue(t, "::1"))).Handshake()
			_ = nc.Close()
		}
		done <- err
	}()
	_, err = conn.Dial(t.Context(), address.Address(l.Addr().String()),
		useTLS(t, connstring.TLS{CAFile: caFile(t, ca)}))
	check(t, err, "hello") // the handshake before it was right
	if err := <-done; err != nil {
		t.Errorf("the server's handshake = %v", err)
	}
}

func TestTLSClientCertificate(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	between := ca.Intermediate(t)
	stranger := certtest.ForeignAuthority(t, certtest.ECDSA).Issue(t, "client")
	client, below := ca.Issue(t, "client"), between.Issue(t, "client")
	server := presents(ca.Issue(t, "127.0.0.1"))
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	s := fakemongo.NewTCPServer(t, nil)
	s.UseTLS(server)
	for _, tt := range []struct {
		name string
		file []*pem.Block
		want string
	}{
		{"certificate first", []*pem.Block{client.CertificateBlock(), client.KeyBlock(t)}, ""},
		{"key first", []*pem.Block{client.KeyBlock(t), client.CertificateBlock()}, ""},
		{"with its intermediate", []*pem.Block{below.CertificateBlock(), below.KeyBlock(t), between.CertificateBlock()}, ""},
		{"without its intermediate", []*pem.Block{below.CertificateBlock(), below.KeyBlock(t)}, "remote error: tls: "},
		{"untrusted", []*pem.Block{stranger.CertificateBlock(), stranger.KeyBlock(t)}, "remote error: tls: "},
		{"none", nil, "remote error: tls: certificate required"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opt := connstring.TLS{CAFile: caFile(t, ca)}
			if tt.file != nil {
				opt.CertificateKeyFile = certtest.File(t, "client.pem", tt.file...)
			}
			check(t, ping(t.Context(), s.Address(), useTLS(t, opt)), tt.want)
		})
	}
}

// Connections that are made after Reload use the new files; those that exist go on. Files that
// cannot be used leave the old ones in use.
func TestReload(t *testing.T) {
	before, after := certtest.Authority(t, certtest.ECDSA),
		certtest.ForeignAuthority(t, certtest.ECDSA)
	first, second := before.Issue(t, "first"), before.Issue(t, "second")
	dir := t.TempDir()
	opt := connstring.TLS{
		CertificateKeyFile: filepath.Join(dir, "client.pem"), CAFile: filepath.Join(dir, "ca.pem"),
	}
	write := func(file string, blocks ...*pem.Block) {
		t.Helper()
		var text []byte
		for _, b := range blocks {
			text = append(text, pem.EncodeToMemory(b)...)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(opt.CertificateKeyFile, first.CertificateBlock(), first.KeyBlock(t))
	write(opt.CAFile, before.CertificateBlock())
	s := fakemongo.NewTCPServer(t, nil)
	demand := func(ca *certtest.Pair) {
		conf := presents(ca.Issue(t, "127.0.0.1"))
		conf.ClientAuth = tls.RequireAnyClientCert
		s.UseTLS(conf)
	}
	demand(before)
	var names []string
	s.Handle("ping", func(cmd *fakemongo.Command) fakemongo.Reply {
		names = append(names, cmd.TLS.PeerCertificates[0].DNSNames[0])
		return fakemongo.OK(nil)
	})
	secure, err := conn.NewTLS(opt)
	if err != nil {
		t.Fatal(err)
	}
	cfg := conn.Config{TLS: secure.Config}
	old, err := conn.Dial(t.Context(), s.Address(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Close() }()

	write(opt.CertificateKeyFile, second.CertificateBlock(), second.KeyBlock(t))
	check(t, ping(t.Context(), s.Address(), cfg), "")
	if err := secure.Reload(); err != nil {
		t.Fatal(err)
	}
	check(t, ping(t.Context(), s.Address(), cfg), "")
	_, err = old.RoundTrip(t.Context(), message("ping", 0))
	check(t, err, "")
	if want := []string{"first", "second", "first"}; !slices.Equal(names, want) {
		t.Errorf("the server got the certificates %q, want %q", names, want)
	}

	demand(after)
	check(t, ping(t.Context(), s.Address(), cfg), "unknown authority")
	write(opt.CAFile, &pem.Block{Type: "X"})
	if err := secure.Reload(); err == nil || !strings.Contains(err.Error(), "tlsCAFile") {
		t.Errorf("Reload() = %v, want that there is no certificate", err)
	}
	check(t, ping(t.Context(), s.Address(), cfg), "unknown authority")
	write(opt.CAFile, after.CertificateBlock())
	if err := secure.Reload(); err != nil {
		t.Fatal(err)
	}
	check(t, ping(t.Context(), s.Address(), cfg), "")
	if got := secure.Files(); !slices.Equal(got, []string{opt.CertificateKeyFile, opt.CAFile}) {
		t.Errorf("Files() = %q", got)
	}
}

func TestTLSReadsABundle(t *testing.T) {
	ca, foreign := certtest.Authority(t, certtest.ECDSA),
		certtest.ForeignAuthority(t, certtest.ECDSA)
	file := certtest.File(t, "bundle.pem", foreign.CertificateBlock(), foreign.KeyBlock(t),
		&pem.Block{Type: "CERTIFICATE", Bytes: []byte("not one that can be read")},
		ca.CertificateBlock())
	s := fakemongo.NewTCPServer(t, nil)
	s.UseTLS(presents(ca.Issue(t, "127.0.0.1")))
	check(t, ping(t.Context(), s.Address(), useTLS(t, connstring.TLS{CAFile: file})), "")
}

// TestHandshakeEnds checks that a peer that closes in the handshake is no end of a result.
func TestHandshakeEnds(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		_, _ = theirs.Read(make([]byte, 1<<16)) // all that the client says first
		_ = theirs.Close()
	}()
	_, err := conn.Dial(t.Context(), "db:1", conn.Config{
		TLS:    func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} },
		Dialer: func(context.Context, string, string) (net.Conn, error) { return ours, nil },
	})
	if errors.Is(err, io.EOF) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Dial = %v, want an unexpected EOF", err)
	}
}
