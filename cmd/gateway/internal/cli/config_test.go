package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/cli"
)

// TestConfigCheck checks configurations that serve could use and others: what is printed, and the
// exit code.
func TestConfigCheck(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	const (
		uri     = "mongodb://user:hunter2@db.example"
		oidcURI = "mongodb://db.example/?authMechanism=MONGODB-OIDC"
	)
	for _, tt := range []struct {
		name           string
		args           []string
		env            [2]string
		code           int
		stdout, stderr string
	}{
		{name: "fine", args: []string{"--uri", uri}, stdout: "uri: mongodb://"},
		{name: "a variable with a letter missing", args: []string{"--uri", uri}, env: [2]string{"MOORING_REST_ADRESS", "x"}, stdout: "uri:", stderr: "warning: unknown environment variable MOORING_REST_ADRESS has no effect; did you mean MOORING_REST_ADDRESS?\n"},
		{name: "a warning", args: []string{"--uri", uri}, env: [2]string{"MOORING_NOPE", "1"}, stdout: "uri:", stderr: "warning: unknown environment variable MOORING_NOPE has no effect\n"},
		{name: "a warning of the connection string", args: []string{"--uri", uri + "/?tls=True"}, stdout: "uri:", stderr: "mooring: warning: Unsupported value for \"tls\""},
		{name: "an option", args: []string{"--uri", uri, "--log-level=loud"}, code: 2, stderr: "option log.level"},
		{name: "a file that is not there", args: []string{"--uri", uri, "--config=/nope"}, code: 1, stderr: "configuration file"},
		{name: "a certificate", args: []string{"--uri", uri, "--tls-certificate-file", garbage, "--tls-key-file", garbage}, code: 1, stderr: "tls"},
		{name: "a policy", args: []string{"--uri", uri, "--policy-file", garbage}, code: 1, stderr: "policy.file"},
		{name: "an authority of the deployment", args: []string{"--uri", uri + "/?tls=true&tlsCAFile=" + garbage}, code: 2, stderr: "option uri"},
		{name: "an authority of the deployment that a variable names", env: [2]string{"MOORING_URI", uri + "/?tls=true&tlsCAFile=" + garbage}, code: 1, stderr: "option uri (from MOORING_URI): "},
		{name: "a file of tokens", args: []string{"--uri", oidcURI, "--mongodb-token-file", garbage}, stdout: "tokenFile: "},
		{name: "a program for tokens", args: []string{"--uri", oidcURI, "--mongodb-token-command=/no/such"}, stdout: "tokenCommand: "},
		{name: "no source of tokens", args: []string{"--uri", oidcURI}, code: 2, stderr: "ENVIRONMENT"},
		{name: "the traces", args: []string{"--uri", uri}, env: [2]string{"OTEL_TRACES_EXPORTER", "zipkin"}, code: 1, stderr: "OTEL_TRACES_EXPORTER"},
		{name: "the audit log", args: []string{"--uri", uri, "--audit-file=/nonexistent/x"}, code: 1, stderr: "option audit.file: "},
		{name: "the file of the addresses", args: []string{"--uri", uri, "--addresses-file=/nonexistent/x"}, code: 1, stderr: "option addressesFile: "},
		{name: "a word more", args: []string{"twice"}, code: 2, stderr: "arguments"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var environ []string
			if tt.env[0] != "" {
				t.Setenv(tt.env[0], tt.env[1])
				environ = []string{tt.env[0] + "=" + tt.env[1]}
			}
			var stdout, stderr bytes.Buffer
			code := cli.Run(append([]string{"config", "check"}, tt.args...), environ, nil, &stdout,
				&stderr)
			if code != tt.code || !strings.Contains(stdout.String(), tt.stdout) ||
				!strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("exit code %d, want %d\n%s\n%s", code, tt.code, &stdout, &stderr)
			}
			if strings.Contains(stdout.String()+stderr.String(), "hunter2") {
				t.Error("a secret is printed")
			}
		})
	}
}
