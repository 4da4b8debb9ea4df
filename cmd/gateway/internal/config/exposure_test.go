package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/service/caller"
)

// apiKey returns the line of a new key for the file of keys.
func apiKey(t *testing.T) string {
	t.Helper()
	_, line, err := caller.NewKey("shop", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// TestExposure checks that a listener that other machines can reach needs TLS and authentication,
// or the options that say otherwise.
func TestExposure(t *testing.T) {
	keys := write(t, "keys", apiKey(t))
	crt := write(t, "crt", "x")
	const plain, stranger = "in plain text", "without authentication"
	for _, row := range []struct {
		name string
		args []string
		want []string // parts of the problems
	}{
		{"the default", nil, nil},
		{"loopback", []string{"--grpc-address=[::1]:1", "--rest-address=localhost:1"}, nil},
		{"a socket", []string{"--grpc-address=unix:/run/g", "--rest-address=unix:/run/r"}, nil},
		{"gRPC on all addresses", []string{"--grpc-address=:1"}, []string{"option grpc.address: :1", plain, "option grpc.address: :1", stranger}},
		{"REST on one", []string{"--rest-address=10.0.0.1:1"}, []string{"option rest.address: 10.0.0.1:1", plain, stranger}},
		{"REST on a name", []string{"--rest-address=db.example:1"}, []string{plain, stranger}},
		{"all IPv6 addresses", []string{"--rest-address=[::]:1"}, []string{plain, stranger}},
		{"keys in plain text", []string{"--rest-address=:1", "--auth-api-keys-file", keys}, []string{plain}},
		{"TLS without authentication", []string{"--rest-address=:1", "--tls-certificate-file", crt, "--tls-key-file", crt}, []string{stranger}},
		{"TLS and keys", []string{"--rest-address=:1", "--grpc-address=:2", "--tls-certificate-file", crt, "--tls-key-file", crt, "--auth-api-keys-file", keys}, nil},
		{"TLS and tokens", []string{"--rest-address=:1", "--tls-certificate-file", crt, "--tls-key-file", crt, "--auth-jwt-issuer=https://i.example", "--auth-jwt-audience=a"}, nil},
		{"TLS and certificates", []string{"--rest-address=:1", "--tls-certificate-file", crt, "--tls-key-file", crt, "--tls-client-authority-file", crt}, nil},
		{
			"certificates that do not count",
			[]string{"--rest-address=:1", "--tls-certificate-file", crt, "--tls-key-file", crt, "--tls-client-authority-file", crt, "--auth-certificate-name=none"},
			[]string{stranger},
		},
		{"both allowed", []string{"--rest-address=:1", "--allow-plaintext", "--allow-unauthenticated"}, nil},
		{"one allowed", []string{"--rest-address=:1", "--allow-plaintext"}, []string{stranger}},
	} {
		_, err := load(t, append([]string{"--uri", uri}, row.args...), nil)
		if (err == nil) != (row.want == nil) {
			t.Errorf("%s: Load = %v, want %q", row.name, err, row.want)
		}
		for _, part := range row.want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: Load = %v, want %q", row.name, err, part)
			}
		}
		if err != nil && slices.Contains(row.want, plain) != strings.Contains(err.Error(), plain) {
			t.Errorf("%s: Load = %v, want %q", row.name, err, row.want)
		}
	}
}

// TestAuthOptions checks values that cannot be used, and combinations that do not work.
func TestAuthOptions(t *testing.T) {
	line := apiKey(t)
	for _, row := range []struct{ name, args, want string }{
		{"debug port", "--debug-address=:6060", "option debug.address"},
		{"debug port on a name", "--debug-address=db.example:6060", "option debug.address"},
		{"relative socket", "--rest-address=unix:run", "absolute path"},
		{"socket for replicas", "--replica-address=unix:/run/x", "option replica.address"},
		{"empty file of keys", "--auth-api-keys-file=" + write(t, "k", "# none\n"), "the file has no key"},
		{"malformed key", "--auth-api-keys=x", "line 1"},
		{"issuer without TLS", "--auth-jwt-issuer=http://i.example --auth-jwt-audience=a", "it is not https"},
		{"issuer alone", "--auth-jwt-issuer=https://i.example", "must be set together with auth.jwt.audience"},
		{"audience alone", "--auth-jwt-audience=a", "must be set together with auth.jwt.audience"},
		{
			"signing in to a console that is off",
			"--console-oidc-client-id=c --auth-jwt-issuer=https://i.example --auth-jwt-audience=a",
			"needs console.enabled",
		},
		{
			"signing in at no issuer", "--console-enabled --console-oidc-client-id=c",
			"needs auth.jwt.issuer",
		},
		{"a symmetric algorithm", "--auth-jwt-algorithms=HS256", "option auth.jwt.algorithms"},
		{"no signature", "--auth-jwt-algorithms=RS256,none", "option auth.jwt.algorithms"},
		{"no algorithm", "--auth-jwt-algorithms=,", "must have at least one algorithm"},
		{"too much skew", "--auth-jwt-skew=1h", "option auth.jwt.skew"},
		{"a name of certificates", "--auth-certificate-name=serial", "option auth.certificateName"},
		{"authorities without TLS", "--tls-client-authority-file=/x", "needs tls.certificateFile"},
		{"required without authorities", "--tls-client-certificates=required", "needs tls.clientAuthorityFile"},
		{"neither", "--tls-client-certificates=yes", "neither optional nor required"},
		{"age", "--connections-max-age=1ms", "option connections.maxAge"},
		{"streams", "--connections-max-streams=none", "option connections.maxStreams"},
		{"a host with a port", "--rest-hosts=a.example:80", "option rest.hosts"},
		{"a pattern", "--rest-hosts=a.*.example", "option rest.hosts"},
		{"a part of a label", "--rest-hosts=*example", "option rest.hosts"},
		{"two patterns", "--rest-hosts=*.*.example", "option rest.hosts"},
		{"all names by a pattern", "--rest-hosts=*.", "option rest.hosts"},
		{"an origin without a scheme", "--rest-cors-origins=app.example", "option rest.cors.origins"},
		{"an origin with a path", "--rest-cors-origins=https://app.example/", "option rest.cors.origins"},
		{"two patterns in an origin", "--rest-cors-origins=https://*.*.example", "option rest.cors.origins"},
		{"credentials for all", "--rest-cors-origins=* --rest-cors-credentials", "option rest.cors.credentials"},
		{"a status of inserts", "--data-api-insert-status=204", "option dataApi.insertStatus"},
	} {
		_, err := load(t, append([]string{
			"--uri", uri, "--handle-keys", key, "--idempotency-key", key,
		}, strings.Fields(row.args)...), nil)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: Load = %v, want %q", row.name, err, row.want)
		}
	}
	c, err := load(t, []string{
		"--uri", uri, "--auth-api-keys", line, "--debug-address=127.0.0.1:0", "--connections-max-age=none",
		"--auth-jwt-algorithms=ES256, EdDSA", "--auth-certificate-name=uri",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Auth.APIKeys.Len() != 1 || c.Connections.MaxAge != 0 || c.Connections.MaxStreams != 250 ||
		c.Auth.JWT.Skew != time.Minute ||
		c.Auth.JWT.Claim != "sub" ||
		!slices.Equal(c.Auth.JWT.Algorithms, []string{"ES256", "EdDSA"}) ||
		c.Auth.CertificateName != caller.URI || !c.AuthEnabled() {
		t.Errorf("Load = %+v, %+v", c.Auth, c.Connections)
	}
	var shown bytes.Buffer
	if err := c.WriteEffective(&shown); err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(line)
	if text := shown.String(); strings.Contains(text, fields[2]) ||
		!strings.Contains(text, "shop "+fields[1]) {
		t.Errorf("the effective configuration shows the keys as\n%s", text)
	}
}

// TestPagesAndDataAPI checks the options of browsers' pages and of the Atlas Data API.
func TestPagesAndDataAPI(t *testing.T) {
	c, err := load(t, []string{"--uri", uri}, nil)
	if err != nil || c.REST.CORS.Origins != nil || c.DataAPI.Sources != nil ||
		c.DataAPI.InsertStatus != 201 {
		t.Fatalf("by default: %+v, %+v, %v", c.REST.CORS, c.DataAPI, err)
	}
	c, err = load(t, []string{
		"--uri", uri, "--rest-cors-origins", "https://App.example, https://*.b.example:8443", "--rest-cors-headers=X-A,X-B",
		"--rest-cors-credentials", "--data-api-sources=mongodb-atlas, Cluster0", "--data-api-insert-status=200",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.REST.CORS; !slices.Equal(got.Origins, []string{"https://app.example", "https://*.b.example:8443"}) ||
		!slices.Equal(got.Headers, []string{"X-A", "X-B"}) || !got.Credentials {
		t.Errorf("CORS = %+v", got)
	}
	if got := c.DataAPI; !slices.Equal(got.Sources, []string{"mongodb-atlas", "Cluster0"}) ||
		got.InsertStatus != 200 {
		t.Errorf("DataAPI = %+v", got)
	}
}

func TestRESTHosts(t *testing.T) {
	crt := write(t, "crt", "x")
	secure := []string{
		"--tls-certificate-file", crt, "--tls-key-file", crt, "--allow-unauthenticated",
	}
	for _, row := range []struct {
		name string
		args []string
		want []string // nil: any
	}{
		{"loopback", nil, []string{"127.0.0.1"}},
		{"names", []string{"--rest-hosts=A.example., b.example"}, []string{"a.example", "b.example", "127.0.0.1"}},
		{"names below one", []string{"--rest-hosts=*.B.example."}, []string{"*.b.example", "127.0.0.1"}},
		{"the listener's name", []string{"--rest-address=DB.example:1", "--allow-plaintext", "--allow-unauthenticated"}, []string{"db.example"}},
		{"all addresses, plain text", []string{"--rest-address=:1", "--allow-plaintext", "--allow-unauthenticated"}, []string{}},
		{"a socket", []string{"--rest-address=unix:/x"}, []string{}},
		{"any", []string{"--rest-hosts=*"}, nil},
		{"TLS on all addresses", append([]string{"--rest-address=:1"}, secure...), nil},
		{"TLS on loopback", secure, []string{"127.0.0.1"}},
	} {
		c, err := load(t, append([]string{"--uri", uri}, row.args...), nil)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		if got := c.RESTHosts(); !slices.Equal(got, row.want) || (got == nil) != (row.want == nil) {
			t.Errorf("%s: RESTHosts = %#v, want %#v", row.name, got, row.want)
		}
	}
}

// TestReadableSecrets checks that secrets in files that others can read are refused, unless the
// file is allowed by its name, and that files without secrets are not.
func TestReadableSecrets(t *testing.T) {
	open := func(name, text string) string {
		path := write(t, name, text)
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	group := write(t, "group", uri)
	if err := os.Chmod(group, 0o640); err != nil {
		t.Fatal(err)
	}
	uriFile, crt, crtKey := open("uri", uri), open("crt", "x"), open("key", "x")
	token := open("token", "x")
	for _, row := range []struct {
		name string
		args []string
		want string // part of the error; empty: none
	}{
		{"connection string", []string{"--uri-file", uriFile}, "chmod o-r"},
		{"allowed", []string{"--uri-file", uriFile, "--allow-readable", "/other," + uriFile}, ""},
		{"another is allowed", []string{"--uri-file", uriFile, "--allow-readable", filepath.Dir(uriFile)}, "chmod o-r"},
		{"a group can read it", []string{"--uri-file", group}, ""},
		{"handle keys", []string{"--uri", uri, "--handle-keys-file", open("h", key)}, "option handle.keys"},
		{"idempotency key", []string{"--uri", uri, "--idempotency-key-file", open("i", key)}, "option idempotency.key"},
		{"API keys", []string{"--uri", uri, "--auth-api-keys-file", open("a", apiKey(t))}, "option auth.apiKeys"},
		{"key of TLS", []string{"--uri", uri, "--tls-certificate-file", crt, "--tls-key-file", crtKey}, crtKey},
		{"certificate of TLS", []string{"--uri", uri, "--tls-certificate-file", crt, "--tls-key-file", write(t, "k", "x")}, ""},
		{"token", []string{"--uri", oidcURI, "--mongodb-token-file", token}, token},
		{"key for MongoDB", []string{"--uri", "mongodb://db/?tls=true&tlsCertificateKeyFile=" + crtKey}, crtKey},
		{"encrypted key for MongoDB", []string{"--uri", "mongodb://db/?tls=true&tlsCertificateKeyFile=" + crtKey + "&tlsCertificateKeyFilePassword=x"}, ""},
		{"password in the configuration file", []string{"--config", open("c", "uri: "+uri)}, "chmod o-r"},
		{"keys in the configuration file", []string{"--config", open("c", "uri: mongodb://db\nhandle: {keys: ["+key+"]}")}, "chmod o-r"},
		{"a configuration file without secrets", []string{"--config", open("c", "uri: mongodb://db\nmongodb: {options: {maxPoolSize: 7}}")}, ""},
		{"a password among the options", []string{"--config", open("c", "uri: mongodb://db\nmongodb: {options: {proxyHost: p, proxyUsername: u, proxyPassword: x}}")}, "chmod o-r"},
		{"a file of the configuration that is not used", []string{"--uri=mongodb://db", "--config", open("c", "uri: "+uri)}, ""},
	} {
		_, err := load(t, row.args, nil)
		if (err == nil) != (row.want == "") ||
			err != nil &&
				(!strings.Contains(err.Error(), row.want) ||
					strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: Load = %v, want %q", row.name, err, row.want)
		}
	}
	c, err := load(t, []string{"--uri-file", write(t, "uri", uri)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.UserFiles()[0], 0o604); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadUser([]string{uri}); err == nil ||
		!strings.Contains(err.Error(), "chmod o-r") {
		t.Errorf("ReadUser of a file that others can read = %v", err)
	}
}

func TestParseAPIKeys(t *testing.T) {
	if keys, err := config.ParseAPIKeys([]byte(apiKey(t))); err != nil || keys.Len() != 1 {
		t.Errorf("ParseAPIKeys = %v, %v", keys, err)
	}
	if _, err := config.ParseAPIKeys([]byte("# none")); err == nil {
		t.Error("ParseAPIKeys of no key succeeds")
	}
}

// TestServerTexts checks who gets the texts of servers.
func TestServerTexts(t *testing.T) {
	keys := []string{"--auth-api-keys", apiKey(t)}
	for _, row := range []struct {
		name  string
		args  []string
		terse bool
	}{
		{"no authentication", nil, false},
		{"authentication", keys, true},
		{"shown", append(keys, "--errors-server-texts=show"), false},
		{"hidden", []string{"--errors-server-texts=hide"}, true},
	} {
		c, err := load(t, append([]string{"--uri", uri}, row.args...), nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.Terse() != row.terse {
			t.Errorf("%s: Terse = %v", row.name, c.Terse())
		}
	}
	if _, err := load(t, []string{"--uri", uri, "--errors-server-texts=some"}, nil); err == nil {
		t.Error("some is taken")
	}
}
