package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
)

const (
	uri = "mongodb://user:hunter2@db.example/?appName=t"
	key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

func load(t *testing.T, args, environ []string) (*config.Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatalf("parse %v: %v", args, err)
	}
	return config.Load(flags, environ)
}

// write writes text to a file of that name in a directory for the test.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaults(t *testing.T) {
	c, err := load(t, []string{"--uri", uri}, nil)
	if err != nil {
		t.Fatalf("Load = %v", err)
	}
	for _, row := range []struct {
		name      string
		got, want any
	}{
		{"uri", c.MongoDB.Password, "hunter2"},
		{"grpc.address", c.GRPC.Address, "127.0.0.1:27080"},
		{"grpc.reflection", c.GRPC.Reflection, true},
		{"rest.address", c.REST.Address, "127.0.0.1:8080"},
		{"debug.address", c.DebugAddress, ""},
		{"tls", c.TLS.Enabled(), false},
		{"handle.keys", len(c.HandleKeys), 0},
		{"idempotency.key", c.Idempotency.Len(), 0},
		{"cursors.idle", c.Cursors.Idle, 10 * time.Minute},
		{"transactions.idle", c.Transactions.Idle, time.Minute},
		{"drain.linger", c.DrainLinger, 2 * time.Second},
		{"cursors.unreadIdle", c.Cursors.UnreadIdle, time.Minute},
		{"cursors.pageMemory", c.Cursors.PageMemory, int64(64 << 20)},
		{"cursors.maxPerPrincipal", c.Cursors.MaxPerPrincipal, 100},
		{"cursors.maxPinned", c.Cursors.MaxPinned, 0.8},
		{"replica.address", c.Replica.Address, ""},
		{"replica.advertise", c.Replica.Advertise, ""},
		{"replica.peers", len(c.Replica.Peers), 0},
		{"pages.maxSize", c.Pages.MaxSize, int64(3 << 20)},
		{"streams.memory", c.Streams.Memory, int64(32 << 20)},
		{"requests.maxSize", c.MaxRequestSize, int64(64 << 20)},
		{"responses.minCompressed", c.MinCompressed, int64(2 << 10)},
		{"requests.timeout", c.RequestTimeout, time.Duration(0)},
		{"requests", c.Requests, config.Requests{
			MaxItems: 100_000, MaxInFlight: 100, QueueTime: 5 * time.Second,
		}},
		{"memory.budget", c.MemoryBudget, int64(0)},
		{"streams.max", c.Streams.Max, config.Auto},
		{"streams.maxPerPrincipal", c.Streams.MaxPerPrincipal, 2000},
		{"changeStreams", c.ChangeStreams, config.ChangeStreams{MaxPerTicket: 5}},
		{"drain.timeout", c.DrainTimeout, 20 * time.Second},
		{"log.level", c.Log.Level, slog.LevelInfo},
		{"log.format", c.Log.Format, config.LogText},
		{"warnings", len(c.Warnings), 0},
	} {
		if row.got != row.want {
			t.Errorf("%s = %v, want %v", row.name, row.got, row.want)
		}
	}
}

func TestSourcesInOrder(t *testing.T) {
	file := write(t, "mooring.yaml", `
uri: mongodb://from-file
log: {level: warn, format: json}
cursors:
  idle: 1m
drain.timeout: 3s
requests: {maxSize: 1048576}
grpc: {reflection: false}
rest:
handle:
  keys: [`+key+`]
idempotency: {key: [`+key+`, 2000-01-01T12:00:00Z `+key+`]}
`)
	c, err := load(t,
		[]string{"--config", file, "--log-level=error"},
		[]string{
			"MOORING_LOG_LEVEL=debug", "MOORING_CURSORS_IDLE=2m", "MOORING_DRAIN_TIMEOUT=", "HOME=/root",
		})
	if err != nil {
		t.Fatalf("Load = %v", err)
	}
	for _, row := range []struct {
		name      string
		got, want any
	}{
		{"the flag wins", c.Log.Level, slog.LevelError},
		{"then the variable", c.Cursors.Idle, 2 * time.Minute},
		{"an empty variable is none, and a dotted key is a key", c.DrainTimeout, 3 * time.Second},
		{"then the file", c.MongoDB.String(), "mongodb://from-file:27017/"},
		{"a number", c.MaxRequestSize, int64(1 << 20)},
		{"a bool", c.GRPC.Reflection, false},
		{"a list", len(c.HandleKeys), 1},
		{"a list of keys and times", c.Idempotency.Len(), 2},
		{"a group without content keeps the default", c.REST.Address, "127.0.0.1:8080"},
	} {
		if row.got != row.want {
			t.Errorf("%s: %v, want %v", row.name, row.got, row.want)
		}
	}
}

func TestSecretsFromFiles(t *testing.T) {
	uriFile := write(t, "uri", uri+"\n")
	keysFile := write(t, "keys", "# first\n"+key+"\n")
	for _, row := range []struct {
		name          string
		args, environ []string
	}{
		{"flags", []string{"--uri-file", uriFile, "--handle-keys-file", keysFile, "--idempotency-key-file", keysFile}, nil},
		{"variables", nil, []string{"MOORING_URI_FILE=" + uriFile, "MOORING_HANDLE_KEYS_FILE=" + keysFile, "MOORING_IDEMPOTENCY_KEY_FILE=" + keysFile}},
		{"configuration file", []string{"--config", write(t, "c.yaml",
			"uriFile: "+uriFile+"\nhandle: {keysFile: "+keysFile+"}\nidempotency: {keyFile: "+
				keysFile+"}\n")}, nil},
		{
			"a stronger source's file before a weaker one's value",
			[]string{"--uri-file", uriFile},
			[]string{"MOORING_URI=mongodb://other", "MOORING_HANDLE_KEYS=" + key, "MOORING_IDEMPOTENCY_KEY=" + key},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, err := load(t, row.args, row.environ)
			if err != nil {
				t.Fatalf("Load = %v", err)
			}
			if c.MongoDB.Password != "hunter2" || len(c.HandleKeys) != 1 ||
				c.Idempotency.Len() != 1 {
				t.Errorf("Load: %v and %d and %d keys, want those of the files",
					c.MongoDB, len(c.HandleKeys), c.Idempotency.Len())
			}
		})
	}
}

// TestReplica checks the advertised address and the addresses that are asked.
func TestReplica(t *testing.T) {
	for _, row := range []struct {
		name, address, advertise, want string
	}{
		{"the listener's own", "10.0.0.1:27081", "", "10.0.0.1:27081"},
		{"a name", "gw-1.example:27081", "", "gw-1.example:27081"},
		{"a host", ":27081", "gw-1.example", "gw-1.example:27081"},
		{"a Pod's address", ":27081", "10.1.2.3", "10.1.2.3:27081"},
		{"a Pod's IPv6 address", ":27081", "fd00::1", "[fd00::1]:27081"},
		{"another port", ":27081", "10.1.2.3:4", "10.1.2.3:4"},
		{"another port, IPv6", ":27081", "[fd00::1]:4", "[fd00::1]:4"},
		{"the longest name", ":27081", strings.Repeat("a", 55), strings.Repeat("a", 55) + ":27081"},
		{"the kernel's port", "127.0.0.1:0", "", "127.0.0.1:0"},
	} {
		c, err := load(t, []string{
			"--uri", uri, "--handle-keys", key, "--idempotency-key", key, "--replica-address", row.address,
		},
			[]string{
				"MOORING_REPLICA_ADVERTISE=" + row.advertise, "MOORING_REPLICA_PEERS=peers.example:1",
			})
		if err != nil || c.Replica.Address != row.address || c.Replica.Advertise != row.want ||
			len(c.Warnings) > 0 {
			t.Errorf("%s: Load = %+v, %v, %q; want %s advertised", row.name, c.Replica, err,
				c.Warnings, row.want)
		}
	}
}

func TestReplicaPeers(t *testing.T) {
	want := []string{"a:1", "[fd00::1]:2", "c.example:3"}
	for _, row := range []struct {
		name string
		args []string
	}{
		{"commas", []string{"--replica-peers=a:1,[fd00::1]:2, c.example:3"}},
		{"lines", []string{"--replica-peers=a:1\n[fd00::1]:2\nc.example:3\n"}},
		{"a list in the file", []string{"--config", write(t, "c.yaml", "replica: {peers: ['a:1', '[fd00::1]:2', 'c.example:3']}\n")}},
	} {
		c, err := load(t, append([]string{
			"--uri", uri, "--handle-keys", key, "--idempotency-key", key, "--replica-address=10.0.0.1:1",
		}, row.args...), nil)
		if err != nil || !slices.Equal(c.Replica.Peers, want) {
			t.Errorf("%s: Load: peers %q, %v; want %q", row.name, c.Replica.Peers, err, want)
		}
	}
	c, err := load(t, []string{
		"--uri", uri, "--handle-keys", key, "--idempotency-key", key, "--replica-address=10.0.0.1:1",
	}, nil)
	if err != nil || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "replica.peers") {
		t.Errorf("Load without peers: %q, %v; want a warning", c.Warnings, err)
	}
}

const oidcURI = "mongodb://db/?authMechanism=MONGODB-OIDC"

func TestSourcesOfTokens(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		want config.Token
	}{
		{"none", nil, config.Token{}},
		{"file", []string{"--mongodb-token-file=/t"}, config.Token{File: "/t"}},
		{"command", []string{"--mongodb-token-command=/bin/x\n-v\n\na b\r\n"}, config.Token{Command: []string{"/bin/x", "-v", "a b"}}},
		{
			"a list in the file",
			[]string{"--config", write(t, "c.yaml", "mongodb: {tokenCommand: [/bin/x, -v, a b]}\n")},
			config.Token{Command: []string{"/bin/x", "-v", "a b"}},
		},
	} {
		c, err := load(t, append([]string{"--uri", oidcURI}, row.args...), nil)
		if err != nil || c.Token.File != row.want.File ||
			!slices.Equal(c.Token.Command, row.want.Command) {
			t.Errorf("%s: Load = %+v, %v; want %+v", row.name, c.Token, err, row.want)
		}
	}
}

func TestLimitsOfCursors(t *testing.T) {
	c, err := load(t, []string{
		"--uri", uri, "--cursors-max-per-principal=none", "--cursors-max-pinned=100%",
	}, nil)
	if err != nil || c.Cursors.MaxPerPrincipal != 0 || c.Cursors.MaxPinned != 1 {
		t.Errorf("Load = %+v, %v; want no limit for a principal, and the whole pool", c.Cursors,
			err)
	}
	c, err = load(t,
		[]string{"--uri", uri, "--cursors-max-per-principal=7", "--cursors-max-pinned=25%"}, nil)
	if err != nil || c.Cursors.MaxPerPrincipal != 7 || c.Cursors.MaxPinned != 0.25 {
		t.Errorf("Load = %+v, %v; want 7 and a quarter", c.Cursors, err)
	}
}

func TestLimitsOfRequests(t *testing.T) {
	for _, test := range []struct {
		options string
		args    []string
		want    int
	}{
		{"/?maxPoolSize=8", nil, 8},
		{"/?maxPoolSize=0", nil, 0},
		{"/?maxPoolSize=8", []string{"--requests-max-in-flight=none"}, 0},
		{"/?maxPoolSize=8", []string{"--requests-max-in-flight=7"}, 7},
	} {
		args := append([]string{"--uri", "mongodb://db.example" + test.options}, test.args...)
		c, err := load(t, args, nil)
		if err != nil || c.Requests.MaxInFlight != test.want {
			t.Errorf("%q: Load = %+v, %v; want %d in flight", args, c.Requests, err, test.want)
		}
	}
	c, err := load(t, []string{
		"--uri", uri, "--requests-max-in-flight-per-principal=3",
		"--requests-rate=100", "--requests-rate-per-principal=10", "--requests-queue-time=0s",
		"--streams-max-per-principal=none", "--streams-max=77", "--requests-max-items=5", "--memory-budget=192MiB",
	}, nil)
	want := config.Requests{
		MaxItems: 5, MaxInFlight: 100, MaxInFlightPerPrincipal: 3,
		Rate: 100, RatePerPrincipal: 10,
	}
	if err != nil || c.Requests != want || c.Streams.MaxPerPrincipal != 0 || c.Streams.Max != 77 ||
		c.MemoryBudget != 192<<20 {
		t.Errorf("Load = %+v, %+v, %v; want %+v", c.Requests, c.Streams, err, want)
	}
	_, err = load(t, []string{"--uri", uri, "--requests-max-in-flight=0"}, nil)
	if err == nil {
		t.Error("requests.maxInFlight=0 is accepted")
	}
}

// TestParseHandleKeys checks that the file's name is kept, and that its text is read as strictly
// as the first time.
func TestParseHandleKeys(t *testing.T) {
	file := write(t, "keys", "# first\n"+key+"\n")
	c, err := load(t,
		[]string{"--uri", uri, "--handle-keys-file", file, "--idempotency-key-file", file}, nil)
	if err != nil || c.HandleKeysFile != file {
		t.Fatalf("Load: keys of %q, %v; want %s", c.HandleKeysFile, err, file)
	}
	if text, err := os.ReadFile(file); err != nil || c.HandleKeysSum != config.SumHandleKeys(text) {
		t.Errorf("the sum of the keys that were read is not that of their file, %v", err)
	}
	for _, row := range []struct {
		name, text string
		want       int
	}{
		{"one a line", key + "\n#\n" + key + "\n", 2},
		{"commas", key + "," + key, 2},
		{"not base64", "hunter2!", 0},
		{"no key", "# none\n", 0},
	} {
		keys, err := config.ParseHandleKeys([]byte(row.text))
		if len(keys) != row.want || (err == nil) != (row.want > 0) ||
			err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: ParseHandleKeys = %d keys, %v; want %d", row.name, len(keys), err,
				row.want)
		}
	}
	if c, err := load(t, []string{"--uri", uri, "--handle-keys", key, "--idempotency-key", key},
		nil); err != nil || c.HandleKeysFile != "" {
		t.Errorf("Load without a file: keys of %q, %v", c.HandleKeysFile, err)
	}
}

// TestRefused checks that each error names the option and the source of its value, and shows no
// secret.
func TestRefused(t *testing.T) {
	file := func(text string) []string {
		return []string{"--uri", uri, "--config", write(t, "c.yaml", text)}
	}
	for _, row := range []struct {
		name string
		args []string
		env  []string
		want []string
	}{
		{"no uri", nil, nil, []string{"option uri: is required", "--uri-file", "MOORING_URI_FILE", "configuration file"}},
		{"uri of another scheme", []string{"--uri", "postgres://user:hunter2@db"}, nil, []string{"option uri (from --uri)"}},
		{"uri that does not parse", []string{"--uri", "mongodb://user:hunter2@db:99999999"}, nil, []string{"option uri (from --uri)"}},
		{"uri twice", []string{"--uri", uri, "--uri-file", "/dev/null"}, nil, []string{"option uri", "--uri-file", "one of the two"}},
		{"uri's file is missing", []string{"--uri-file", "/no/such"}, nil, []string{"option uri (from --uri-file: /no/such)", "no such file"}},
		{"address", []string{"--uri", uri, "--rest-address", "8080"}, nil, []string{"option rest.address (from --rest-address)", `"8080"`, "host:port"}},
		{"port", []string{"--uri", uri, "--grpc-address", "localhost:http"}, nil, []string{"option grpc.address", "0 to 65535"}},
		{"bool", []string{"--uri", uri, "--grpc-reflection=maybe"}, nil, []string{"option grpc.reflection", "true nor false"}},
		{"variable", []string{"--uri", uri}, []string{"MOORING_LOG_LEVEL=loud"}, []string{"option log.level (from MOORING_LOG_LEVEL)", "debug, info, warn, error"}},
		{"format", []string{"--uri", uri, "--log-format", "xml"}, nil, []string{"option log.format", "text nor json"}},
		{"duration", []string{"--uri", uri, "--drain-timeout", "20"}, nil, []string{"option drain.timeout", "20s"}},
		{"duration too short", []string{"--uri", uri, "--cursors-idle", "1ms"}, nil, []string{"option cursors.idle", "between 1s and 24h"}},
		{"size", []string{"--uri", uri, "--pages-max-size", "3MB"}, nil, []string{"option pages.maxSize", "64MiB"}},
		{"size too large", []string{"--uri", uri, "--pages-max-size", "9999999999GiB"}, nil, []string{"option pages.maxSize", "between 1KiB and 48MiB"}},
		{"key", []string{"--uri", uri, "--handle-keys", "hunter2"}, nil, []string{"option handle.keys (from --handle-keys)"}},
		{"file without a key", []string{"--uri", uri, "--handle-keys-file", write(t, "keys", "# none\n")}, nil, []string{"option handle.keys (from --handle-keys-file", "the file has no key"}},
		{"half of TLS", []string{"--uri", uri, "--tls-key-file", "k.pem"}, nil, []string{"tls.certificateFile", "tls.keyFile"}},
		{"and so is rest.address", []string{"--uri", uri, "--grpc-address=none", "--rest-address=none"}, nil, []string{"and so is rest.address"}},
		{"limit of nothing", []string{"--uri", uri, "--cursors-max-per-principal", "0"}, nil, []string{"option cursors.maxPerPrincipal", "of at least 1 or none"}},
		{"no percentage", []string{"--uri", uri, "--cursors-max-pinned", "0.8"}, nil, []string{"option cursors.maxPinned", "1% to 100%"}},
		{"no share", []string{"--uri", uri, "--tracing-sampling", "0.01"}, nil, []string{"option tracing.sampling", "0% to 100%"}},
		{"more than all", []string{"--uri", uri, "--tracing-sampling", "101%"}, nil, []string{"option tracing.sampling"}},
		{"no number", []string{"--uri", uri, "--tracing-sampling", "NaN%"}, nil, []string{"option tracing.sampling"}},
		{"more than all", []string{"--uri", uri, "--cursors-max-pinned", "101%"}, nil, []string{"option cursors.maxPinned"}},
		{"an idempotency key", []string{"--uri", uri, "--idempotency-key", "hunter2"}, nil, []string{"option idempotency.key (from --idempotency-key)"}},
		{"a file without an idempotency key", []string{"--uri", uri, "--idempotency-key-file", write(t, "keys", "# none\n")}, nil, []string{"option idempotency.key (from --idempotency-key-file", "the file has no key"}},
		{"another idempotency key at once", []string{"--uri", uri, "--idempotency-key", key + "," + key}, nil, []string{"option idempotency.key (from --idempotency-key): line 2", "time of the change"}},
		{"handle keys alone", []string{"--uri", uri, "--handle-keys", key}, nil, []string{"option idempotency.key: is required with handle.keys", "mooring key new", "the first of the handle keys"}},
		{"replicas without a key", []string{"--uri", uri, "--replica-address", "10.0.0.1:1"}, nil, []string{"option replica.address: needs handle.keys", "mooring key new"}},
		{"replica that cannot be reached", []string{"--uri", uri, "--handle-keys", key, "--idempotency-key", key, "--replica-address", ":1"}, nil, []string{"option replica.advertise: is required"}},
		{"all IPv6 addresses", []string{"--uri", uri, "--handle-keys", key, "--idempotency-key", key, "--replica-address", "[::]:1"}, nil, []string{"option replica.advertise: is required"}},
		{"advertising all addresses", []string{"--uri", uri, "--handle-keys", key, "--idempotency-key", key, "--replica-address", ":1", "--replica-advertise=0.0.0.0"}, nil, []string{"option replica.advertise (from --replica-advertise)", "all addresses"}},
		{"advertising a port only", []string{"--uri", uri, "--handle-keys", key, "--idempotency-key", key, "--replica-address", ":1", "--replica-advertise=:2"}, nil, []string{"option replica.advertise", "neither a host"}},
		{"advertising a named port", []string{"--uri", uri, "--handle-keys", key, "--idempotency-key", key, "--replica-address", ":1", "--replica-advertise=a:http"}, nil, []string{"option replica.advertise", "0 to 65535"}},
		{"advertising a name that no token has room for", []string{"--uri", uri, "--handle-keys", key, "--idempotency-key", key, "--replica-address", ":27081", "--replica-advertise", strings.Repeat("a", 56)}, nil, []string{"option replica.advertise", "62 bytes, but the token of a cursor has room for 61"}},
		{"advertising it by listening there", []string{"--uri", uri, "--handle-keys", key, "--idempotency-key", key, "--replica-address", strings.Repeat("a", 56) + ":0"}, nil, []string{"option replica.advertise", "has room for 61"}},
		{"advertising nothing", []string{"--uri", uri, "--replica-advertise", "10.0.0.1"}, nil, []string{"option replica.advertise: needs replica.address"}},
		{"peers without an address", []string{"--uri", uri, "--replica-peers", "a:1"}, nil, []string{"option replica.peers: needs replica.address"}},
		{"peer without a port", []string{"--uri", uri, "--replica-peers", "a:1,b"}, nil, []string{"option replica.peers", `"b"`}},
		{"peer with port 0", []string{"--uri", uri, "--replica-peers", "a:0"}, nil, []string{"option replica.peers", "1 to 65535"}},
		{"two sources of tokens", []string{"--uri", oidcURI, "--mongodb-token-file=t", "--mongodb-token-command=c"}, nil, []string{"option mongodb.tokenFile: cannot be used together with mongodb.tokenCommand"}},
		{"a token file beside an ENVIRONMENT", []string{"--uri", oidcURI + "&authMechanismProperties=ENVIRONMENT:k8s", "--mongodb-token-file=t"}, nil, []string{"option mongodb.tokenFile: cannot be used together with ENVIRONMENT"}},
		{"a token file of no mechanism", []string{"--uri", uri, "--mongodb-token-file=t"}, nil, []string{"option mongodb.tokenFile: needs authMechanism=MONGODB-OIDC"}},
		{"a token command of no mechanism", []string{"--uri", uri, "--mongodb-token-command=c"}, nil, []string{"option mongodb.tokenCommand: needs authMechanism=MONGODB-OIDC"}},
		{"two at once", []string{"--uri", uri, "--log-level=x", "--log-format=y"}, nil, []string{"log.level", "\n", "log.format"}},
		{"no such file", []string{"--uri", uri, "--config", "/no/such.yaml"}, nil, []string{"/no/such.yaml"}},
		{"unknown key", file("log:\n  levle: info\n"), nil, []string{"option log.levle (from ", "c.yaml", "is unknown"}},
		{"key with a letter missing", file("rest:\n  adress: x\n"), nil, []string{"rest.adress", "did you mean rest.address?"}},
		{"key in another spelling", file("requests: {max_size: 1KiB}\n"), nil, []string{"requests.max_size", "did you mean requests.maxSize?"}},
		{"config in the file", file("config: other.yaml\n"), nil, []string{"option config", "is unknown"}},
		{"group as a value", file("log: debug\n"), nil, []string{"option log (from", "is unknown"}},
		{"value as a group", file("uri: {a: 1}\n"), nil, []string{"option uri.a", "is unknown"}},
		{"no YAML", file("log: [\n"), nil, []string{"configuration file: ", "c.yaml", "line"}},
		{"two documents", file("log: {level: info}\n---\nauth: {apiKeys: x}\n"), nil, []string{"c.yaml", "more than one YAML document"}},
		{"an empty second document", file("log: {level: info}\n---\n"), nil, []string{"c.yaml", "more than one YAML document"}},
		{"a file without an end", []string{"--uri", uri, "--config", "/dev/zero"}, nil, []string{"/dev/zero is larger than"}},
		{"API keys that are none", []string{"--uri", uri, "--auth-api-keys="}, nil, []string{"option auth.apiKeys (from --auth-api-keys)", "has no key"}},
		{"key twice", file("log: {level: info}\nlog: {level: info}\n"), nil, []string{"c.yaml", "already defined"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := load(t, row.args, row.env)
			if err == nil {
				t.Fatal("Load = nil, want an error")
			}
			for _, want := range row.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Load = %q, want it to contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("Load = %q, which shows a secret", err)
			}
		})
	}
}

func TestErrorIsTyped(t *testing.T) {
	_, err := load(t, []string{"--uri", uri, "--log-level", "loud"}, nil)
	if e, ok := errors.AsType[*config.Error](err); !ok || e.Option != "log.level" ||
		e.Source != "--log-level" {
		t.Errorf("Load = %#v, want a *config.Error about log.level", err)
	}
}

func TestUnknownVariablesWarn(t *testing.T) {
	c, err := load(t, nil, []string{
		"MOORING_URI=" + uri, "MOORING_API_KEY=k", "MOORING_PROFILE=p", "MOORING_PORT_8080_TCP=x", "MOORINGS=y",
	})
	if err != nil {
		t.Fatalf("Load = %v", err)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "MOORING_PORT_8080_TCP") {
		t.Errorf("Warnings = %q, want one, of MOORING_PORT_8080_TCP", c.Warnings)
	}
}

// TestOverriddenAddressesWarn checks that a variable, such as those of the image, does not override
// an address of the file in silence.
func TestOverriddenAddressesWarn(t *testing.T) {
	const opened = "MOORING_REST_ADDRESS=127.0.0.1:8081"
	for _, row := range []struct {
		name, file, variable string
		args                 []string
		want                 string // in the warning; empty: there is none
	}{
		{"another address", "rest: {address: none}", opened, nil, "rest.address is none in "},
		{"the same", "rest: {address: '127.0.0.1:8081'}", opened, nil, ""},
		{"an empty variable", "rest: {address: none}", "MOORING_REST_ADDRESS=", nil, ""},
		{"none in the file", "rest: {}", opened, nil, ""},
		{"a flag", "rest: {address: none}", opened, []string{"--rest-address=127.0.0.1:0"}, ""},
		{"gRPC", "grpc: {address: none}", "MOORING_GRPC_ADDRESS=127.0.0.1:1", nil, "grpc.address"},
		{"another option", "log: {level: warn}", "MOORING_LOG_LEVEL=debug", nil, ""},
	} {
		file := write(t, "c.yaml", row.file)
		args := append([]string{"--uri", uri, "--config", file}, row.args...)
		c, err := load(t, args, []string{row.variable})
		if err != nil || (len(c.Warnings) > 0) != (row.want != "") ||
			!strings.Contains(strings.Join(c.Warnings, "\n"), row.want) {
			t.Errorf("%s: Load: %q, %v; want %q", row.name, c.Warnings, err, row.want)
		}
	}
}

func TestWriteEffective(t *testing.T) {
	c, err := load(t, []string{
		"--log-level", "debug", "--handle-keys", key, "--idempotency-key", key,
	}, []string{"MOORING_URI=" + uri})
	if err != nil {
		t.Fatalf("Load = %v", err)
	}
	var out bytes.Buffer
	if err := c.WriteEffective(&out); err != nil {
		t.Fatalf("WriteEffective = %v", err)
	}
	for _, secret := range []string{"hunter2", key} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("WriteEffective shows %q:\n%s", secret, &out)
		}
	}
	for _, want := range []string{
		"level: debug # --log-level", "# MOORING_URI", "format: text # default",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("WriteEffective lacks %q:\n%s", want, &out)
		}
	}

	// Except for the secrets, the output is a configuration file.
	var tree map[string]any
	if err := yaml.Unmarshal(out.Bytes(), &tree); err != nil {
		t.Fatalf("WriteEffective wrote what does not parse: %v\n%s", err, &out)
	}
	delete(tree, "uri")
	delete(tree, "handle")
	delete(tree, "idempotency")
	text, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, []string{"--uri", uri, "--config", write(t, "again.yaml", string(text))},
		nil); err != nil {
		t.Errorf("Load of what WriteEffective wrote = %v", err)
	}
}

// TestIdempotencyKey checks that the file's name is kept, that its text is read as strictly as the
// first time, and that a change is announced.
func TestIdempotencyKey(t *testing.T) {
	file := write(t, "key", "# the key\n"+key+"\n")
	c, err := load(t, []string{"--uri", uri, "--idempotency-key-file", file}, nil)
	if err != nil || c.IdempotencyKeyFile != file || len(c.Warnings) != 0 {
		t.Fatalf("Load: key of %q, %v, %q; want %s", c.IdempotencyKeyFile, err, c.Warnings, file)
	}
	if text, err := os.ReadFile(file); err != nil ||
		c.IdempotencyKeySum != config.SumHandleKeys(text) {
		t.Errorf("the sum of the key that was read is not that of its file, %v", err)
	}
	for text, want := range map[string]int{
		key + "\n#\n": 1, key + ",2000-01-01T12:00:00Z " + key: 2, "# none\n": 0, "hunter2!": 0,
	} {
		s, err := config.ParseIdempotencyKey([]byte(text))
		if s.Len() != want || (err == nil) != (want > 0) ||
			err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("ParseIdempotencyKey(%s) = %d keys, %v; want %d", text, s.Len(), err, want)
		}
	}
	change := key + ",2100-01-01T14:00:00+02:00 " + key
	c, err = load(t, []string{"--uri", uri, "--idempotency-key", change}, nil)
	const want = "refused from 2100-01-01T12:00:00Z until 2100-01-01T12:31:00Z"
	if err != nil || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], want) {
		t.Errorf("Load of a change: %v, %q; want %q", err, c.Warnings, want)
	}
}

func TestConfigHidesSecrets(t *testing.T) {
	c, err := load(t, []string{"--uri", uri, "--handle-keys", key, "--idempotency-key", key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	secret := []string{"hunter2", key, "0123456789abcdef", "48 49 50 51"}
	for _, text := range []string{
		fmt.Sprint(c.MongoDB, c.HandleKeys), fmt.Sprintf("%#v %+v", c.MongoDB, c.HandleKeys),
	} {
		for _, s := range secret {
			if strings.Contains(text, s) {
				t.Errorf("%q shows a secret", text)
			}
		}
	}
}

// A deployment keeps its name when its list of hosts changes, unless it has no other name.
func TestDeployment(t *testing.T) {
	name := func(args ...string) string {
		c, err := load(t, append([]string{"--uri"}, args...), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Deployment()
	}
	for what, same := range map[string][][]string{
		"order, letters, port, user": {{"mongodb://u:p@b,a:27017/x"}, {"mongodb://A,B/?appName=t"}},
		"members of a replica set":   {{"mongodb://a,b/?replicaSet=r"}, {"mongodb://b,c/?replicaSet=r"}},
		"members of a named one":     {{"mongodb://a,b/", "--deployment-name", "n"}, {"mongodb://c/", "--deployment-name", "n"}},
		"a named replica set":        {{"mongodb://a/?replicaSet=r", "--deployment-name", "n"}, {"mongodb://a/", "--deployment-name", "n"}},
		"options of an SRV name":     {{"mongodb+srv://db.example.com/?replicaSet=r"}, {"mongodb+srv://db.example.com/"}},
	} {
		if a, b := name(same[0]...), name(same[1]...); a != b {
			t.Errorf("%s: the same deployment has the names %q and %q", what, a, b)
		}
	}
	seen := map[string]bool{}
	for _, args := range [][]string{
		{"mongodb://r/?replicaSet=r"},
		{"mongodb://r/"},
		{"mongodb://r.example.com/"},
		{"mongodb+srv://r.example.com/"},
		{"mongodb://r/", "--deployment-name", "r"},
		{"mongodb://r,s/"},
	} {
		if n := name(args...); seen[n] {
			t.Errorf("two deployments have the name %q", n)
		} else {
			seen[n] = true
		}
	}
}

// TestConfigurationPage compares the table of docs/configuration.md with the table of options. To
// rewrite the page: MOORING_REWRITE=1 go test ./cmd/gateway/internal/config
func TestConfigurationPage(t *testing.T) {
	const page, begin, end = "../../../../docs/configuration.md", "<!-- options begin -->\n",
		"<!-- options end -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines %q and %q", page, begin, end)
	}
	var table bytes.Buffer
	if err := config.Markdown(&table); err != nil {
		t.Fatal(err)
	}
	want := head + begin + "\n" + table.String() + "\n" + end + tail
	if string(text) == want {
		return
	}
	if os.Getenv("MOORING_REWRITE") == "" {
		t.Fatalf("%s is not what the table of options says; MOORING_REWRITE=1 rewrites it", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSampling(t *testing.T) {
	for text, want := range map[string]float64{"0%": 0, "0.05%": 0.0005, "1%": 0.01, "100%": 1} {
		c, err := load(t, []string{"--uri", uri, "--tracing-sampling", text}, nil)
		if err != nil || c.Tracing.Sampling == nil || *c.Tracing.Sampling != want {
			t.Errorf("%s: %v, %v; want %v", text, c.Tracing.Sampling, err, want)
		}
	}
	if c, err := load(t, []string{"--uri", uri}, nil); err != nil || c.Tracing.Sampling != nil {
		t.Errorf("by default: %v, %v", c.Tracing.Sampling, err)
	}
}
