package connstring_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/spectest"
)

// notPassing are the specifications' cases that do not pass, by suite and description, and why.
var notPassing = map[string]string{
	"uri-options/Valid options specific to single-threaded drivers are parsed correctly": "for single-threaded drivers; others must not offer serverSelectionTryOnce",

	"auth/should use username and password if specified (MONGODB-AWS)":                "contradicts \"should throw an exception if username and password provided (MONGODB-AWS)\", which is newer",
	"auth/should use username, password and session token if specified (MONGODB-AWS)": "contradicts \"should throw an exception if username and password provided (MONGODB-AWS)\", which is newer",

	"read-write-concern/wtimeoutMS as an invalid number": "contradicts uri-options, \"Too low wTimeoutMS causes a warning\", which follows the general rule for values that an option cannot have",
}

// options are how the tests see the fields, by lower-case name.
var options = map[string]func(*connstring.Config) any{
	"appname":                       func(c *connstring.Config) any { return c.AppName },
	"authmechanism":                 func(c *connstring.Config) any { return c.AuthMechanism },
	"authmechanismproperties":       func(c *connstring.Config) any { return properties(c) },
	"authsource":                    func(c *connstring.Config) any { return c.AuthSource },
	"compressors":                   func(c *connstring.Config) any { return c.Compressors },
	"connecttimeoutms":              func(c *connstring.Config) any { return millis(c.ConnectTimeout) },
	"directconnection":              func(c *connstring.Config) any { return c.DirectConnection },
	"heartbeatfrequencyms":          func(c *connstring.Config) any { return millis(c.HeartbeatInterval) },
	"journal":                       func(c *connstring.Config) any { return c.WriteConcern.Journal },
	"loadbalanced":                  func(c *connstring.Config) any { return c.LoadBalanced },
	"localthresholdms":              func(c *connstring.Config) any { return millis(c.LocalThreshold) },
	"maxconnecting":                 func(c *connstring.Config) any { return c.MaxConnecting },
	"maxidletimems":                 func(c *connstring.Config) any { return millis(c.MaxIdleTime) },
	"maxpoolsize":                   func(c *connstring.Config) any { return c.MaxPoolSize },
	"minpoolsize":                   func(c *connstring.Config) any { return c.MinPoolSize },
	"readconcernlevel":              func(c *connstring.Config) any { return c.ReadConcernLevel },
	"replicaset":                    func(c *connstring.Config) any { return c.ReplicaSet },
	"retrywrites":                   func(c *connstring.Config) any { return c.RetryWrites },
	"serverselectiontimeoutms":      func(c *connstring.Config) any { return millis(c.ServerSelectionTimeout) },
	"sockettimeoutms":               func(c *connstring.Config) any { return millis(c.SocketTimeout) },
	"srvmaxhosts":                   func(c *connstring.Config) any { return c.SRVMaxHosts },
	"srvservicename":                func(c *connstring.Config) any { return c.SRVServiceName },
	"timeoutms":                     func(c *connstring.Config) any { return millis(c.Timeout) },
	"enableoverloadretargeting":     func(c *connstring.Config) any { return c.EnableOverloadRetargeting },
	"gssapiservicename":             func(c *connstring.Config) any { return properties(c)["SERVICE_NAME"] },
	"maxadaptiveretries":            func(c *connstring.Config) any { return c.MaxAdaptiveRetries },
	"maxstalenessseconds":           func(c *connstring.Config) any { return seconds(c.MaxStaleness) },
	"proxyhost":                     func(c *connstring.Config) any { return c.Proxy.Host },
	"proxypassword":                 func(c *connstring.Config) any { return c.Proxy.Password },
	"proxyport":                     func(c *connstring.Config) any { return c.Proxy.Port },
	"proxyusername":                 func(c *connstring.Config) any { return c.Proxy.Username },
	"readpreference":                func(c *connstring.Config) any { return c.ReadPreference },
	"readpreferencetags":            func(c *connstring.Config) any { return tagSets(c.ReadPreferenceTags) },
	"retryreads":                    func(c *connstring.Config) any { return c.RetryReads },
	"servermonitoringmode":          func(c *connstring.Config) any { return c.ServerMonitoringMode },
	"ssl":                           func(c *connstring.Config) any { return c.TLS.Enabled },
	"waitqueuetimeoutms":            func(c *connstring.Config) any { return millis(c.WaitQueueTimeout) },
	"wtimeout":                      func(c *connstring.Config) any { return c.WriteConcern.WTimeoutMS },
	"tls":                           func(c *connstring.Config) any { return c.TLS.Enabled },
	"tlsallowinvalidcertificates":   func(c *connstring.Config) any { return c.TLS.AllowInvalidCertificates },
	"tlsallowinvalidhostnames":      func(c *connstring.Config) any { return c.TLS.AllowInvalidHostnames },
	"tlscafile":                     func(c *connstring.Config) any { return c.TLS.CAFile },
	"tlscertificatekeyfile":         func(c *connstring.Config) any { return c.TLS.CertificateKeyFile },
	"tlscertificatekeyfilepassword": func(c *connstring.Config) any { return c.TLS.CertificateKeyFilePassword },
	"tlsinsecure":                   func(c *connstring.Config) any { return c.TLS.Insecure },
	"tlsdisablecertificaterevocationcheck": func(c *connstring.Config) any {
		return c.TLS.DisableCertificateRevocationCheck
	},
	"tlsdisableocspendpointcheck": func(c *connstring.Config) any { return c.TLS.DisableOCSPEndpointCheck },
	"w": func(c *connstring.Config) any {
		if c.WriteConcern.Nodes != nil {
			return c.WriteConcern.Nodes
		}
		return c.WriteConcern.Tag
	},
	"wtimeoutms":           func(c *connstring.Config) any { return c.WriteConcern.WTimeoutMS },
	"zlibcompressionlevel": func(c *connstring.Config) any { return c.ZlibCompressionLevel },
}

func millis(d *time.Duration) any {
	if d == nil {
		return nil
	}
	return d.Milliseconds()
}

func seconds(d *time.Duration) any {
	if d == nil {
		return nil
	}
	return int64(d.Seconds())
}

func tagSets(sets []connstring.TagSet) []map[string]string {
	var all []map[string]string
	for _, set := range sets {
		tags := map[string]string{}
		for _, tag := range set {
			tags[tag.Name] = tag.Value
		}
		all = append(all, tags)
	}
	return all
}

func properties(c *connstring.Config) map[string]string {
	m := map[string]string{}
	for _, p := range c.AuthMechanismProperties {
		m[p.Name] = p.Value
	}
	return m
}

type specCase struct {
	Description string
	URI         string
	Valid       bool
	Warning     *bool
	Hosts       []struct {
		Type string
		Host string
		Port *int
	}
	Auth *struct {
		Username, Password, DB *string
	}
	Options    map[string]any
	Credential *struct {
		Username, Password, Source, Mechanism *string
		MechanismProperties                   map[string]any `json:"mechanism_properties"`
	}
	ReadConcern  *struct{ Level string }
	WriteConcern map[string]any
}

// TestSpecificationsKnowEveryOption checks that the table above has every option with an effect,
// so that a file that uses one for the first time is understood.
func TestSpecificationsKnowEveryOption(t *testing.T) {
	withoutEffect := []string{
		"serverSelectionTryOnce", "waitQueueSize", "waitQueueMultiple", "uuidRepresentation",
	}
	for _, o := range connstring.Options() {
		_, known := options[strings.ToLower(o.Name)]
		if known == slices.Contains(withoutEffect, o.Name) {
			t.Errorf("option %s: in the table of the specifications' tests: %v", o.Name, known)
		}
	}
	got := parse(t, "mongodb://a/?readPreference=nearest&readPreferenceTags=dc:ny,rack:1&readPreferenceTags="+
		"&maxStalenessSeconds=120&serverMonitoringMode=poll&proxyHost=p&proxyPort=9")
	for name, want := range map[string]string{
		"readpreference": `"nearest"`, "readpreferencetags": `[{"dc":"ny","rack":"1"},{}]`,
		"maxstalenessseconds": "120", "servermonitoringmode": `"poll"`, "proxyhost": `"p"`, "proxyport": "9",
	} {
		if text := asJSON(t, options[name](&got)); text != want {
			t.Errorf("%s = %s, want %s", name, text, want)
		}
	}
}

func TestSpecifications(t *testing.T) {
	ran := map[string]bool{}
	for _, suite := range []string{
		"connection-string", "uri-options", "auth", "read-write-concern",
	} {
		for _, file := range spectest.Files(t, suite) {
			if suite == "auth" && filepath.Base(file) != "connection-string.json" {
				continue // the unified tests are the unified runner's
			}
			if suite == "read-write-concern" &&
				filepath.Base(filepath.Dir(file)) != "connection-string" {
				continue // core/client has the documents, the unified runner the operations
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var doc struct{ Tests []specCase }
			if err := json.Unmarshal(data, &doc); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for _, c := range doc.Tests {
				spectest.Case(t, suite, file, c.Description, func(t *testing.T) {
					ran[suite+"/"+c.Description] = true
					if reason, ok := notPassing[suite+"/"+c.Description]; ok {
						spectest.SkipFailing(t, reason, func(t testing.TB) { c.run(t, suite) })
					}
					c.run(t, suite)
				})
			}
		}
	}
	for name := range notPassing {
		if !ran[name] {
			t.Errorf("%q is listed as not passing and does not exist", name)
		}
	}
}

func (c specCase) run(t testing.TB, suite string) {
	got, err := connstring.Parse(c.URI)
	if err == nil && suite == "auth" {
		err = got.CheckAuth(connstring.InCode{})
	}
	if (err == nil) != c.Valid {
		t.Fatalf("Parse(%q) = %v, valid %v", c.URI, err, c.Valid)
	}
	if err != nil {
		return
	}
	if c.Warning != nil && *c.Warning != (len(got.Warnings) > 0) {
		t.Errorf("Parse(%q): warnings %q, want some: %v", c.URI, got.Warnings, *c.Warning)
	}
	c.checkHosts(t, &got)
	c.checkAuth(t, suite, &got)
	if suite == "read-write-concern" {
		c.checkConcerns(t, &got)
	}
	for name, want := range c.Options {
		get, ok := options[strings.ToLower(name)]
		if !ok {
			t.Errorf("Parse(%q): nothing is known of the option %q", c.URI, name)
			continue
		}
		if g, w := asJSON(t, get(&got)), asJSON(t, want); g != w {
			t.Errorf("Parse(%q): %s = %s, want %s", c.URI, name, g, w)
		}
	}
}

func (c specCase) checkHosts(t testing.TB, got *connstring.Config) {
	if c.Hosts == nil {
		return
	}
	var want []string
	for _, h := range c.Hosts {
		port := 27017
		if h.Port != nil {
			port = *h.Port
		}
		switch h.Type {
		case "unix":
			want = append(want, h.Host)
		case "ip_literal":
			want = append(want, "["+h.Host+"]:"+strconv.Itoa(port))
		default:
			want = append(want, h.Host+":"+strconv.Itoa(port))
		}
	}
	var hosts []string
	for _, h := range got.Hosts {
		hosts = append(hosts, string(h))
	}
	if !slices.Equal(hosts, want) {
		t.Errorf("Parse(%q): hosts %q, want %q", c.URI, hosts, want)
	}
}

// checkConcerns compares all that the concerns can have, so that what is absent is.
func (c specCase) checkConcerns(t testing.TB, got *connstring.Config) {
	if c.ReadConcern != nil && got.ReadConcernLevel != c.ReadConcern.Level {
		t.Errorf("Parse(%q): readConcernLevel %q, want %q", c.URI, got.ReadConcernLevel,
			c.ReadConcern.Level)
	}
	if c.WriteConcern == nil {
		return
	}
	for name, field := range map[string]string{
		"w": "w", "wtimeoutMS": "wtimeoutms", "journal": "journal",
	} {
		g, w := asJSON(t, options[field](got)), asJSON(t, c.WriteConcern[name])
		if g == `""` {
			g = "null"
		}
		if g != w {
			t.Errorf("Parse(%q): %s = %s, want %s", c.URI, name, g, w)
		}
	}
}

func (c specCase) checkAuth(t testing.TB, suite string, got *connstring.Config) {
	if a := c.Auth; a != nil {
		same(t, c.URI, "user name", got.Username, a.Username)
		same(t, c.URI, "password", got.Password, a.Password)
		same(t, c.URI, "database", got.Database, a.DB)
	}
	cred := c.Credential
	if suite != "auth" {
		return
	}
	if got.HasCredential != (cred != nil) {
		t.Errorf("Parse(%q): credential %v, want %v", c.URI, got.HasCredential, cred != nil)
	}
	if cred == nil {
		return
	}
	same(t, c.URI, "user name", got.Username, cred.Username)
	same(t, c.URI, "password", got.Password, cred.Password)
	same(t, c.URI, "source", got.AuthSource, cred.Source)
	same(t, c.URI, "mechanism", got.AuthMechanism, cred.Mechanism)
	for name, want := range cred.MechanismProperties {
		if v, _ := got.Property(name); v != want {
			t.Errorf("Parse(%q): property %s = %q, want %q", c.URI, name, v, want)
		}
	}
}

func same(t testing.TB, uri, what, got string, want *string) {
	t.Helper()
	w := ""
	if want != nil {
		w = *want
	}
	if got != w {
		t.Errorf("Parse(%q): %s %q, want %q", uri, what, got, w)
	}
}

func asJSON(t testing.TB, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
