package cli_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/cli"
)

// asGateway makes the test's own binary run as the gateway, so that tests can start it as a
// process.
const asGateway = "TEST_AS_GATEWAY"

func TestMain(m *testing.M) {
	if os.Getenv(asGateway) != "" {
		os.Exit(cli.Run(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func run(environ []string, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = cli.Run(args, environ, nil, &out, &err)
	return code, out.String(), err.String()
}

func TestRun(t *testing.T) {
	const secret = "mongodb://user:hunter2@db.example"
	notYAML := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(notYAML, []byte("log: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name    string
		args    []string
		environ []string
		code    int
		stdout  string // regular expressions
		stderr  string
	}{
		{"nothing", nil, nil, 2, `^$`, `a command is missing: serve, check, health, config, key, policy, version, completion, types, find, aggregate, count, insert, update, delete, call, watch, import, export\nTry: mooring --help\n$`},
		{"help", []string{"--help"}, nil, 0, `(?s)serve +run the gateway.*key api new +make.*mooring serve mongodb://`, `^$`},
		{"help word", []string{"help"}, nil, 0, `mooring help serve`, `^$`},
		{"help of serve", []string{"serve", "--help"}, nil, 0, `(?s)Usage: mooring serve \[URI\] \[flags\].*--grpc-address host:port +MOORING_GRPC_ADDRESS \(127\.0\.0\.1:27080\)`, `^$`},
		{"help word with serve", []string{"help", "serve"}, nil, 0, `(?s)Usage: mooring serve \[URI\] \[flags\].*--grpc-address host:port`, `^$`},
		{"help word with two words", []string{"help", "key", "api", "new"}, nil, 0, `(?s)Usage: mooring key api new \[flags\].*--principal`, `^$`},
		{"help word with an unknown command", []string{"help", "server"}, nil, 2, `^$`, `unknown command "server".*\nTry: mooring --help`},
		{"help of check is short", []string{"check", "-h"}, nil, 0, `^Usage: mooring check \[URI\] \[flags\]\n([^\n]*\n){8,16}It also takes the options of serve: see mooring serve --help\n$`, `^$`},
		{"help of key", []string{"key", "--help"}, nil, 0, `(?s)Usage: mooring key new\n.*as the last line`, `^$`},
		{"unknown command that is like none", []string{"xyzzy"}, nil, 2, `^$`, `unknown command "xyzzy"; the commands are serve, check, .*\nTry: mooring --help\n$`},
		{"unknown flag that is like none", []string{"serve", "--xyzzy"}, nil, 2, `^$`, `unknown flag: --xyzzy\nTry: mooring serve --help\n$`},
		{"unknown flag that is like one", []string{"serve", "--rest-adress=x"}, nil, 2, `^$`, `unknown flag: --rest-adress: did you mean --rest-address\?\nTry`},
		{"unknown second word", []string{"policy", "tets"}, nil, 2, `^$`, `there is no such command: did you mean policy test\?\nTry: mooring policy test --help\n$`},
		{"unknown second word that is like none", []string{"policy", "xyzzyx"}, nil, 2, `^$`, `there is no such command; the commands are policy test, policy explain\n`},
		{"unknown second word of a command that needs none", []string{"config", secret}, nil, 2, `^$`, `config: 1 argument that is not a flag; usage: mooring config \[flags\]\n`},
		{"unknown command", []string{"server"}, nil, 2, `^$`, `unknown command "server": did you mean serve\?\nTry: mooring --help\n$`},
		{"unknown command of one letter more", []string{"servee"}, nil, 2, `^$`, `unknown command "servee".*\nTry: mooring --help\n$`},
		{"unknown flag", []string{"serve", "--prot=1"}, nil, 2, `^$`, `mooring: serve: unknown flag: --prot\nTry: mooring serve --help\n$`},
		{"unknown flag of two words", []string{"key", "api", "new", "--x"}, nil, 2, `^$`, `Try: mooring key api new --help\n$`},
		{"flag without its value", []string{"serve", "--uri"}, nil, 2, `^$`, `flag needs an argument: --uri`},
		{"a word too many", []string{"serve", secret, secret}, nil, 2, `^$`, `serve: 2 arguments that are not flags; usage: mooring serve \[URI\]`},
		{"a word too few", []string{"delete", "a.b"}, nil, 2, `^$`, `delete: 1 argument that is not a flag; usage: mooring delete NAMESPACE FILTER`},
		{"a word that is not a URI", []string{"serve", "user:hunter2@db.example"}, nil, 2, `^$`, `not a connection string.*\nTry: mooring serve --help`},
		{"a URI twice", []string{"check", secret, "--uri", secret}, nil, 2, `^$`, `set twice`},
		{"a URI and its file", []string{"check", "--uri-file=x", secret}, nil, 2, `^$`, `set twice`},
		{"a URI as a word", []string{"serve", "mongodb://user:hunter2@db.example/?w=-2"}, nil, 2, `^$`, `^mooring: option uri \(from --uri\): [^\n]*\nTry: mooring serve --help\n$`},
		{"key without new", []string{"key"}, nil, 2, `^$`, `usage: mooring key new\nTry: mooring key new --help`},
		{"version", []string{"version"}, nil, 0, `^mooring \S+ commit \S+ go1\.\S+\n$`, `^$`},
		{"version flag", []string{"--version"}, nil, 0, `^mooring \S+ commit \S+ go1\.\S+\n$`, `^$`},
		{"config", []string{"config", "--log-level=warn"}, []string{"MOORING_URI=" + secret}, 0, `(?s)uri: mongodb://\*\*\*@db\.example:27017/ # MOORING_URI\n.*level: warn # --log-level`, `^$`},
		{"config schema", []string{"config", "schema"}, nil, 0, `(?s)^\{.*"additionalProperties": false.*"javaScript": \{`, `^$`},
		{"config with a bad flag", []string{"config", "--log-level=loud", "--uri", secret}, nil, 2, `^$`, `^mooring: option log\.level \(from --log-level\): "loud" is not one of [^\n]*\nTry: mooring config --help\n$`},
		{"config with a bad variable", []string{"config", "--uri", secret}, []string{"MOORING_LOG_LEVEL=loud"}, 1, `^$`, `^mooring: option log\.level \(from MOORING_LOG_LEVEL\): "loud" is not one of [^\n]*\n$`},
		{"serve without a uri", []string{"serve"}, nil, 2, `^$`, `^mooring: option uri: is required[^\n]*\nTry: mooring serve --help\n$`},
		{"serve with a bad uri", []string{"serve"}, []string{"MOORING_URI=http://user:hunter2@db"}, 1, `^$`, `^mooring: option uri \(from MOORING_URI\): [^\n]*\n$`},
		{"serve with a bad file of a uri", []string{"serve"}, []string{"MOORING_URI=mongodb://db/?tls=true&tlsCAFile=/no/such"}, 1, `^$`, `mooring: option uri \(from MOORING_URI\): [^\n]*/no/such[^\n]*\n$`},
		{"serve with a uri without a certificate", []string{"serve"}, []string{"MOORING_URI=mongodb://db/?tls=true&authMechanism=MONGODB-X509"}, 1, `^$`, `mooring: option uri \(from MOORING_URI\): [^\n]*\n$`},
		{"serve with a missing file", []string{"serve", "--config", "/no/such.yaml"}, nil, 1, `^$`, `^mooring: [^\n]*/no/such\.yaml[^\n]*\n$`},
		{"serve with a broken file", []string{"serve", "--config", notYAML}, nil, 1, `^$`, `^mooring: configuration file: [^\n]*c\.yaml[^\n]*\n$`},
		{"serve with two bad values", []string{"serve", "--uri", secret, "--log-level=x", "--log-format=y"}, nil, 2, `^$`, `^mooring: option log\.level[^\n]*\nmooring: option log\.format[^\n]*\nTry: [^\n]*\n$`},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, stdout, stderr := run(row.environ, row.args...)
			if code != row.code {
				t.Errorf("Run = %d, want %d", code, row.code)
			}
			for what, pair := range map[string][2]string{
				"stdout": {stdout, row.stdout}, "stderr": {stderr, row.stderr},
			} {
				if !regexp.MustCompile(pair[1]).MatchString(pair[0]) {
					t.Errorf("%s = %q, want %s", what, pair[0], pair[1])
				}
				if strings.Contains(pair[0], "hunter2") {
					t.Errorf("%s shows a secret: %q", what, pair[0])
				}
			}
		})
	}
}

func TestKeyNew(t *testing.T) {
	_, one, _ := run(nil, "key", "new")
	_, two, _ := run(nil, "key", "new")
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(one))
	if err != nil || len(b) != 32 || one == two {
		t.Errorf("key new = %q, then %q; want 32 random bytes in base64", one, two)
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(one+two), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := run([]string{"MOORING_URI=mongodb://h"}, "config", "--handle-keys-file", file, "--idempotency-key", strings.TrimSpace(two)); code != 0 {
		t.Errorf("config with the new keys = %d, %s", code, stderr)
	}
}

func TestBrokenPipe(t *testing.T) {
	if code := cli.Run([]string{"version"}, nil, nil, broken{}, io.Discard); code != 1 {
		t.Errorf("Run on a broken standard output = %d, want 1", code)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
