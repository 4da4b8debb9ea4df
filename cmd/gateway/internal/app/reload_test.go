package app_test

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// settings holds the options of a configuration file.
type settings map[string]string

// text returns the file.
func (s settings) text(t *testing.T) string {
	t.Helper()
	root := map[string]any{}
	for name, value := range s {
		group, at := root, strings.Split(name, ".")
		for _, key := range at[:len(at)-1] {
			if group[key] == nil {
				group[key] = map[string]any{}
			}
			group = group[key].(map[string]any)
		}
		group[at[len(at)-1]] = value
	}
	text, err := yaml.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// randomKey returns a handle key.
func randomKey(t *testing.T) string {
	t.Helper()
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(secret)
}

// TestReloadUnderLoad changes each option that can change while the gateway runs, one after the
// other and then all back at once, while requests arrive: none is lost. A file that cannot be used
// changes nothing, and an option that needs a restart is told.
func TestReloadUnderLoad(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	leaf := ca.Issue(t, "127.0.0.1")
	crt, key := certtest.File(t, "crt", leaf.CertificateBlock()),
		certtest.File(t, "key", leaf.KeyBlock(t))
	oneKey, oneLine := newKey(t, "shop", time.Time{})
	_, twoLine := newKey(t, "shop", time.Time{})
	keyA, keyB := randomKey(t), randomKey(t)
	before := settings{
		"auth.apiKeys": oneLine, "handle.keys": keyA, "idempotency.key": keyA, "log.level": "info",
	}
	after := settings{
		"auth.apiKeys":                     oneLine + "\n" + twoLine,
		"handle.keys":                      keyB + "\n" + keyA,
		"idempotency.key":                  keyA + "\n2100-01-01T12:00:00Z " + keyB,
		"rest.hosts":                       "db.example",
		"rest.cors.origins":                "https://app.example",
		"rest.cors.headers":                "X-A",
		"rest.cors.credentials":            "true",
		"connections.max":                  "100",
		"connections.maxPerAddress":        "100",
		"streams.max":                      "70",
		"streams.maxPerPrincipal":          "7",
		"changeStreams.maxPerPrincipal":    "30",
		"changeStreams.maxPerTicket":       "2",
		"requests.maxTimeout":              "30s",
		"requests.timeout":                 "20s",
		"requests.maxInFlight":             "50",
		"requests.maxInFlightPerPrincipal": "40",
		"requests.rate":                    "1000000",
		"requests.ratePerPrincipal":        "1000000",
		"requests.queueTime":               "9s",
		"tracing.sampling":                 "1%",
		"tracing.comment":                  "true",
		"log.level":                        "debug",
	}
	names := slices.Sorted(maps.Keys(after))
	if want := slices.Sorted(slices.Values(config.Reloadable())); !slices.Equal(names, want) {
		t.Fatalf("the test changes %q, but what can change is %q", names, want)
	}

	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", documents(3, 10)...)
	file := filepath.Join(t.TempDir(), "mooring.yaml")
	write := func(s settings) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s.text(t)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(before)
	g := startWith(t, func(g *gateway) *slog.Logger {
		return logging.New(&g.log, config.Log{Format: config.LogText})
	}, mongo.URI(), "--config", file, "--tls-certificate-file", crt, "--tls-key-file", key)
	l := newTraffic(t, g, oneKey, &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12})
	l.progress()

	now := maps.Clone(before)
	for i, name := range names {
		now[name] = after[name]
		write(now)
		g.Reload()
		g.logs(`msg="option changed" option=`+name, 1)
		g.logs(`msg="configuration read" file=`+file+` changed=1`, i+1)
		l.progress()
	}
	if !strings.Contains(g.log.String(), `option=requests.queueTime from=5s to=9s`) {
		t.Error("the log does not say what has changed")
	}
	if !strings.Contains(g.log.String(), "level=DEBUG msg=request") {
		t.Error("the log has no debug lines")
	}

	broken := maps.Clone(before)
	broken["requests.rate"] = "many"
	write(broken)
	g.Reload()
	g.logs(`msg="the configuration cannot be used: keeping the old one"`, 1)
	l.progress()

	last := maps.Clone(before)
	last["grpc.reflection"] = "false"
	write(last)
	g.Reload()
	g.logs(`msg="option changed: it needs a restart" option=grpc.reflection from=true to=false`, 1)
	g.logs(`msg="configuration read"`, len(names)+1)
	for _, name := range names {
		if n := strings.Count(g.log.String(), `msg="option changed" option=`+name+" ") +
			strings.Count(g.log.String(), `msg="option changed" option=`+name+"\n"); n != 2 {
			t.Errorf("%s has changed %d times, want 2: the file that cannot be used must not count",
				name, n)
		}
	}
	l.progress()
	l.stop()
	l.group.Wait()
	for _, secret := range []string{keyA, keyB, oneLine} {
		if strings.Contains(g.log.String(), secret) {
			t.Error("the log has a secret")
		}
	}
	g.stop()
}

// TestFilesThatCannotBeUsed breaks and mends each of the files that the gateway reads again. The
// metric names the broken one, and no other; but the configuration is read with the files that it
// names.
func TestFilesThatCannotBeUsed(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	leaf := ca.Issue(t, "127.0.0.1")
	dir := t.TempDir()
	_, line := newKey(t, "shop", time.Time{})
	files := map[string]struct{ option, text, broken string }{
		"configuration": {"--config", "log: {level: info}", "log: {level: loud}"},
		"handle_keys":   {"--handle-keys-file", randomKey(t), "short"},
		// A change without a time cannot be used.
		"idempotency_key": {"--idempotency-key-file", randomKey(t), randomKey(t)},
		"api_keys":        {"--auth-api-keys-file", line, "no key"},
		"policy":          {"--policy-file", policyOf(1), "permit ("},
		"certificate":     {"--tls-certificate-file", block(leaf.CertificateBlock()), "no certificate"},
		"mongodb_user":    {"--mongodb-password-file", "hunter2-app", ""},
		// The option is in the connection string.
		"mongodb_certificates": {"", block(ca.CertificateBlock()), "no certificate"},
	}
	write := func(source, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, source), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var options []string
	for source, f := range files {
		write(source, f.text)
		if f.option != "" {
			options = append(options, f.option, filepath.Join(dir, source))
		}
	}
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.RequireAuth(users("app"))
	mongo.UseTLS(&tls.Config{Certificates: []tls.Certificate{leaf.TLS(nil)}})
	uri := mongo.URI() + "&tls=true&tlsCAFile=" +
		url.QueryEscape(filepath.Join(dir, "mongodb_certificates"))
	g := startWith(t, func(g *gateway) *slog.Logger {
		return slog.New(slog.NewTextHandler(&g.log, nil))
	}, uri, append(options, "--mongodb-username=app", "--admin-address=127.0.0.1:0",
		"--tls-key-file", certtest.File(t, "key", leaf.KeyBlock(t)))...)
	defer g.stop()
	want := func(broken string) {
		t.Helper()
		g.Reload()
		g.until(func() (bool, string) {
			metrics := g.metrics()
			for source := range files {
				if source == "configuration" && broken != "" && broken != source {
					continue
				}
				series := "mooring_config_last_reload_successful{source=\"" + source + "\"} "
				if value := map[bool]string{
					true:  "0",
					false: "1",
				}[source == broken]; !strings.Contains(metrics, series+value+"\n") {
					return false, "no " + series + value
				}
			}
			return true, ""
		})
	}
	want("")
	for source, f := range files {
		write(source, f.broken)
		want(source)
		write(source, f.text)
		want("")
	}
}

// TestCertificateForMongoDB changes the gateway's own certificate: new connections present the new
// one, and those that exist go on. A file that others can read is not used.
func TestCertificateForMongoDB(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	server := &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t, "127.0.0.1").TLS(nil)},
		ClientAuth:   tls.RequireAnyClientCert,
	}
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.UseTLS(server)
	var presented atomic.Value
	mongo.Handle("find", func(cmd *fakemongo.Command) fakemongo.Reply {
		presented.Store(cmd.TLS.PeerCertificates[0].DNSNames[0])
		return mongo.Default(cmd)
	})
	file := filepath.Join(t.TempDir(), "client.pem")
	write := func(name string, mode os.FileMode) {
		t.Helper()
		leaf := ca.Issue(t, name)
		text := block(leaf.CertificateBlock()) + block(leaf.KeyBlock(t))
		if err := errors.Join(os.WriteFile(file, []byte(text), mode),
			os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("first", 0o600)
	g := start(t,
		mongo.URI()+"&tls=true&tlsCAFile="+
			url.QueryEscape(certtest.File(t, "ca", ca.CertificateBlock()))+
			"&tlsCertificateKeyFile="+url.QueryEscape(file))
	g.await(http.StatusOK, "")
	want := func(name string) {
		t.Helper()
		const path, find = "/v1/databases/db/collections/c/documents:find", "{}"
		if status, body := g.post(path, find); status != http.StatusOK {
			t.Errorf("find = %d %s", status, body)
		}
		if got := presented.Load(); got != name {
			t.Errorf("the server got the certificate %v, want %s", got, name)
		}
	}
	reload := func(line string) {
		t.Helper()
		g.Reload()
		g.until(func() (bool, string) {
			return strings.Contains(g.log.String(), line), "the log lacks " + line
		})
	}
	want("first")
	write("second", 0o600)
	reload("certificates for MongoDB read")
	want("first")
	mongo.CutConnections()
	want("second")
	write("third", 0o604)
	reload("other users of the machine can read it")
	mongo.CutConnections()
	want("second")
	g.stop()
}

// metrics returns the text of /metrics.
func (g *gateway) metrics() string {
	g.t.Helper()
	resp, err := g.http.Get("http://" + g.Addresses().Admin + "/metrics")
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return string(text)
}

// TestLevelStays sets the level of the log on the admin port. A reload changes it only if log.level
// has changed in the file.
func TestLevelStays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mooring.yaml")
	reload := func(g *gateway, n int, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if g != nil {
			g.Reload()
			g.logs(`msg="configuration read"`, n)
		}
	}
	reload(nil, 0, "log: {level: warn}")
	g := startWith(t, func(g *gateway) *slog.Logger {
		return logging.New(&g.log, config.Log{Format: config.LogText, Level: slog.LevelWarn})
	}, fakemongo.NewTCPServer(t, nil).URI(), "--config", file, "--admin-address=127.0.0.1:0")
	level := func(method, body string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+g.Addresses().Admin+"/log/level", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := g.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s /log/level = %d %s, %v", method, resp.StatusCode, text, err)
		}
		return strings.TrimSpace(string(text))
	}
	if got := level(http.MethodPut, "debug"); got != "debug" {
		t.Errorf("PUT: %s", got)
	}
	reload(g, 1, "log: {level: warn}\nrequests: {rate: 1000}")
	if got := level(http.MethodGet, ""); got != "debug" {
		t.Errorf("after another option has changed the level is %s, want debug", got)
	}
	reload(g, 2, "log: {level: warn}\nrequests: {rate: 1000}") // nothing changes
	if got := level(http.MethodGet, ""); got != "debug" {
		t.Errorf("after a reload without a change the level is %s, want debug", got)
	}
	reload(g, 3, "log: {level: info}\nrequests: {rate: 1000}")
	g.logs(`msg="option changed" option=log.level from=warn to=info`, 1)
	if got := level(http.MethodGet, ""); got != "info" {
		t.Errorf("after log.level has changed the level is %s, want info", got)
	}
	g.stop()
}

// TestNothingToReload checks that SIGHUP is answered without a configuration file.
func TestNothingToReload(t *testing.T) {
	g := start(t, fakemongo.NewTCPServer(t, nil).URI())
	g.Reload()
	g.logs("there is no configuration file to reload", 1)
	g.stop()
}
