package cli_test

import (
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/cli"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/issuertest"
	"github.com/mooringdb/mooring/service/caller"
)

func TestCheck(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	down := fakemongo.NewTCPServer(t, nil)
	down.Close()
	for _, format := range []string{"--json", "--json=false"} {
		if code := cli.Run([]string{"check", format, "--uri", mongo.URI()}, nil, nil, broken{},
			io.Discard); code != 1 {
			t.Errorf("check %s on a broken standard output = %d, want 1", format, code)
		}
	}
	code, stdout, stderr := run(nil, "check", "--uri", mongo.URI())
	if code != 0 || !strings.Contains(stdout, "  kind             Standalone\n") || stderr != "" {
		t.Errorf("check = %d, %q, %q", code, stdout, stderr)
	}
	code, _, stderr = run(nil, "check", "--uri", mongo.URI(), "--audit-file=/nonexistent/x")
	if code != 1 || !strings.Contains(stderr, "option audit.file: ") {
		t.Errorf("check with an audit log that cannot be written = %d, %q", code, stderr)
	}
	t.Setenv("OTEL_TRACES_EXPORTER", "zipkin")
	code, _, stderr = run(nil, "check", "--uri", mongo.URI())
	if code != 1 || !strings.Contains(stderr, "OTEL_TRACES_EXPORTER: ") {
		t.Errorf("check with traces that serve refuses = %d, %q", code, stderr)
	}
	t.Setenv("OTEL_TRACES_EXPORTER", "")
	code, stdout, stderr = run(nil, "check", "--uri", down.URI())
	want := "mooring: no host can be reached: network error on " + string(down.Address()) +
		" (dial): connect: connection refused\n"
	if code != 1 || !strings.Contains(stdout, "  failed           ") || stderr != want {
		t.Errorf("check of a server that is down = %d, %q, %q; want %q", code, stdout, stderr, want)
	}
	mongo.Handle("hello", fakemongo.Always(fakemongo.Hang()))
	code, _, stderr = run(nil, "check", "--timeout=200ms", "--uri", mongo.URI())
	if code != 1 || !strings.Contains(stderr, "no answer within 200ms (--timeout)") ||
		strings.Count(stderr, "\n") != 1 {
		t.Errorf("check of a server that hangs = %d, %q", code, stderr)
	}
}

// TestCheckWithTokenFile checks that check logs in as serve does.
func TestCheckWithTokenFile(t *testing.T) {
	mongo, tokens := fakemongo.NewTCPServer(t, nil), new(fakemongo.OIDC)
	tokens.Accept("hunter2-token", "gateway")
	mongo.RequireAuth(&fakemongo.Auth{SASL: map[string]func(*fakemongo.Command) fakemongo.SASL{
		"MONGODB-OIDC": tokens.SASL,
	}})
	file := filepath.Join(t.TempDir(), "token")
	for text, want := range map[string]int{"hunter2-token\n": 0, "hunter2-wrong\n": 1} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := run(nil, "check", "--mongodb-token-file", file,
			"--uri", mongo.URI()+"&authMechanism=MONGODB-OIDC")
		if code != want || strings.Contains(stdout+stderr, "hunter2") {
			t.Errorf("check with %q = %d, want %d: %s%s", text, code, want, stdout, stderr)
		}
	}
	if len(mongo.LoggedIn()) != 1 {
		t.Errorf("logged in are %q", mongo.LoggedIn())
	}
}

func TestCheckJSON(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	code, stdout, stderr := run(nil, "check", "--json", "--uri", mongo.URI())
	var report struct {
		Hosts    []string
		Warnings []string
		Servers  []struct {
			Address     string
			RoundTripMS float64
			Hello       struct {
				Kind           string
				MaxWireVersion int
			}
		}
		Deployment struct {
			Kind               string
			Writable, Readable []string
		}
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 0 || stderr != "" {
		t.Fatalf("check --json = %d, %q, %q: %v", code, stdout, stderr, err)
	}
	host := string(mongo.Address())
	s := report.Servers[0]
	if report.Hosts[0] != host || s.Address != host || s.Hello.Kind != "Standalone" ||
		s.Hello.MaxWireVersion != 21 || s.RoundTripMS <= 0 {
		t.Errorf("check --json = %s", stdout)
	}
	if d := report.Deployment; d.Kind != "Single" || d.Writable[0] != host ||
		d.Readable[0] != host {
		t.Errorf("check --json = %s", stdout)
	}
	if strings.Contains(stdout, "null") {
		t.Errorf("check --json has null: %s", stdout)
	}
}

// TestCheckShowsNoSecret checks the report of a deployment that answers, and all errors.
func TestCheckShowsNoSecret(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	host := string(mongo.Address())
	options := filepath.Join(t.TempDir(), "c.yaml")
	text := "uri: mongodb://" + host + "\nmongodb:\n  options:\n    tls: true\n    tlsCertificateKeyFilePassword: hunter2\n    tlsCertificateKeyFile: /no/such\n"
	if err := os.WriteFile(options, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		args []string
		want string // on either stream
	}{
		{"answers", []string{"--uri", "mongodb://ann:hunter2@" + host + "/?authSource=people"}, "***, with a password, authSource people"},
		{"refuses", []string{"--uri", "mongodb://ann:hunter2@127.0.0.1:1"}, "connection refused"},
		{"proxy", []string{"--uri", "mongodb://" + host + "/?proxyHost=127.0.0.1&proxyPort=1&proxyUsername=bob&proxyPassword=hunter2"}, "proxyPassword=***"},
		{"key file", []string{"--config", options}, "tlsCertificateKeyFilePassword=***"},
		{"bad escape", []string{"--uri", "mongodb://ann:hunter2%zz@" + host}, "option uri (from --uri): "},
		{"bad option", []string{"--uri", "mongodb://ann:hunter2@" + host + "/?w=-2"}, "mooring: "},
		{"at sign", []string{"--uri", "mongodb://ann:p@hunter2@" + host}, "option uri (from --uri): "},
		{"bad port", []string{"--uri", "mongodb://ann:hunter2/x@" + host}, "option uri (from --uri): "},
		{"a word", []string{"mongodb://ann:hunter2@" + host}, "authSource admin"},
		{"two words", []string{"mongodb://ann:hunter2@" + host, "hunter2"}, "2 arguments that are not flags"},
		{"no timeout", []string{"--timeout=0", "--uri", "mongodb://ann:hunter2@" + host}, "--timeout must be more than 0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, more := range [][]string{nil, {"--json"}} {
				_, stdout, stderr := run(nil,
					append(append([]string{"check"}, more...), row.args...)...)
				if strings.Contains(stdout+stderr, "hunter2") {
					t.Errorf("check shows a secret: %q, %q", stdout, stderr)
				}
				if more == nil && !strings.Contains(stdout+stderr, row.want) {
					t.Errorf("check = %q, %q; want %q", stdout, stderr, row.want)
				}
			}
		})
	}
}

// TestCheckShowsClients checks that check says who may call, without secrets.
func TestCheckShowsClients(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	issuer := issuertest.New(t, "")
	server := httptest.NewServer(issuer)
	defer server.Close()
	issuer.SetURL(server.URL)
	key, line, err := caller.NewKey("shop", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	ca := certtest.Authority(t, certtest.ECDSA)
	own := ca.Issue(t, "db.example")
	for _, row := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"clients            gRPC at 127.0.0.1:27080, REST at 127.0.0.1:8080, in plain text", "no credential is needed"}},
		{[]string{"--auth-api-keys", line, "--grpc-address=none"}, []string{"gRPC at none", "API key of shop " + key[8:16]}},
		{
			[]string{"--auth-jwt-issuer", server.URL, "--auth-jwt-audience=me"},
			[]string{"tokens of " + server.URL + " for me (the issuer has 1 key)"},
		},
		{[]string{"--auth-jwt-issuer=http://127.0.0.1:1", "--auth-jwt-audience=me"}, []string{"tokens of http://127.0.0.1:1 for me: FAILED, discovery"}},
		{
			[]string{
				"--tls-certificate-file", certtest.File(t, "crt", own.CertificateBlock()), "--tls-key-file", certtest.File(t, "key", own.KeyBlock(t)),
				"--tls-client-authority-file", certtest.File(t, "ca", ca.CertificateBlock()), "--rest-address=:8443",
			},
			[]string{"with TLS, a certificate until " + own.Certificate.NotAfter.UTC().Format("2006-01-02"), "client certificates, named by subject", "REST at :8443"},
		},
	} {
		code, stdout, stderr := run(nil,
			append([]string{"check", "--uri", mongo.URI()}, row.args...)...)
		for _, want := range row.want {
			if code != 0 || !strings.Contains(stdout, want) ||
				strings.Contains(stdout+stderr, strings.Fields(line)[2]) {
				t.Errorf("check %q = %d, %s%s; want %q", row.args, code, stdout, stderr, want)
			}
		}
	}
}
