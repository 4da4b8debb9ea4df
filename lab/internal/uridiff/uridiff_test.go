package uridiff_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/internal/spectest"
	"github.com/mooringdb/mooring/lab/internal/uridiff"
)

// uris are those of the specifications' files.
func uris(t testing.TB) []string {
	var all []string
	for _, suite := range []string{
		"connection-string", "uri-options", "auth/tests/legacy", "read-write-concern/tests/connection-string",
	} {
		for _, file := range spectest.Files(t, suite) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var doc struct{ Tests []struct{ URI string } }
			if err := json.Unmarshal(data, &doc); err != nil {
				t.Fatal(err)
			}
			for _, c := range doc.Tests {
				all = append(all, c.URI)
			}
		}
	}
	return all
}

func TestSpecificationURIs(t *testing.T) {
	for _, uri := range uris(t) {
		if strings.HasPrefix(uri, "mongodb+srv:") {
			continue
		}
		for _, d := range uridiff.Unknown(uri) {
			t.Errorf("%q: %v", uri, d)
		}
	}
}

// options are names and values of which random strings are made.
var (
	userinfos = []string{
		"", "", "", "u@", "u:p@", "u:@", "u%40:p%3A%2F@", "@", ":@", "u:p:q@", "u%zz@",
	}
	hosts = []string{
		"a", "A.example:1", "[::1]", "[::1]:27018", "a,b:2", "%2Ftmp%2Fx.sock", "a:0", "a:65536", "a:x", "", "a,,b", "256.0.0.1", "é.example", "::1",
	}
	paths = []string{"/", "/", "/", "/db", "/d%C3%A9", "/a.b", "/a%2Fb", "/a$b", "/a%zz"}
	names = []string{
		"appName", "authMechanism", "authSource", "replicaSet", "directConnection", "tls", "ssl", "maxPoolSize", "minPoolSize",
		"maxConnecting", "connectTimeoutMS", "heartbeatFrequencyMS", "localThresholdMS", "readConcernLevel", "readPreference",
		"readPreferenceTags", "maxStalenessSeconds", "w", "journal", "wTimeoutMS", "retryWrites", "loadBalanced", "timeoutMS",
		"compressors", "zlibCompressionLevel", "unknown", "JOURNAL",
	}
	values = []string{
		"", "true", "false", "1", "0", "-1", "500", "100", "99999999999", "x", "a%20b", "a%26b", "dc:ny", "dc:ny,rack:1", "primary", "nearest",
		"secondaryPreferred", "majority", "SCRAM-SHA-256", "PLAIN", "MONGODB-X509", "GSSAPI", "MONGODB-AWS", "snappy,zlib", "snoopy", "$external", "%zz",
	}
)

func random(r *rand.Rand) string {
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	uri := "mongodb://" + pick(userinfos) + pick(hosts) + pick(paths)
	for i := range r.IntN(4) {
		separator := "&"
		if i == 0 {
			separator = "?"
		}
		uri += separator + pick(names) + "=" + pick(values)
	}
	return uri
}

func TestRandomURIs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	shown := map[string]bool{}
	for range 200_000 {
		uri := random(r)
		for _, d := range uridiff.Unknown(uri) {
			if key := d.What + "\n" +
				class.ReplaceAllString(d.Ours+"\n"+d.Theirs, "?"); !shown[key] {
				shown[key] = true
				t.Errorf("%q: %v", uri, d)
			}
		}
	}
}

// class makes differences of one kind the same.
var class = regexp.MustCompile(`"[^"]*"|\d+`)

func FuzzCompare(f *testing.F) {
	for _, uri := range uris(f) {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		if !strings.HasPrefix(uri, "mongodb://") {
			return
		}
		for _, d := range uridiff.Unknown(uri) {
			t.Errorf("%q: %v", uri, d)
		}
	})
}
