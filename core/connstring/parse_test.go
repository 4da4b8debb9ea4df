package connstring_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/connstring"
)

func ptr[T any](v T) *T { return &v }

func TestParse(t *testing.T) {
	tests := []struct {
		name, uri string
		want      connstring.Config
	}{
		{"one host", "mongodb://a", connstring.Config{Hosts: []address.Address{"a:27017"}}},
		{"hosts and database", "mongodb://A:1,[::1],%2Fx%20y.sock/d%C3%A9?", connstring.Config{
			Hosts: []address.Address{"a:1", "[::1]:27017", "/x y.sock"}, Database: "dé",
		}},
		{"credential", "mongodb://u%40:p%3A%2F+@a/db", connstring.Config{
			Hosts: []address.Address{"a:27017"}, Database: "db", HasCredential: true,
			Username: "u@", Password: "p:/+", HasPassword: true, AuthSource: "db",
		}},
		{"empty password", "mongodb://u:@a", connstring.Config{
			Hosts: []address.Address{"a:27017"}, HasCredential: true, Username: "u", HasPassword: true, AuthSource: "admin",
		}},
		{"mechanism without userinfo", "mongodb://a/db?authMechanism=MONGODB-X509", connstring.Config{
			Hosts: []address.Address{"a:27017"}, Database: "db", HasCredential: true, AuthMechanism: "MONGODB-X509", AuthSource: "$external",
		}},
		{"srv", "mongodb+srv://Cluster.example.com/?srvMaxHosts=2&tls=false", connstring.Config{
			SRV: true, SRVHost: "cluster.example.com", SRVMaxHosts: ptr(int32(2)), TLS: connstring.TLS{Enabled: ptr(false)},
		}},
		{"pool", "mongodb://a?maxPoolSize=0&minPoolSize=7&maxConnecting=3&maxIdleTimeMS=5&waitQueueTimeoutMS=0", connstring.Config{
			Hosts: []address.Address{"a:27017"}, MaxPoolSize: ptr(uint64(0)), MinPoolSize: ptr(uint64(7)),
			MaxConnecting: ptr(uint64(3)), MaxIdleTime: ptr(5 * time.Millisecond), WaitQueueTimeout: ptr(time.Duration(0)),
		}},
		{"tag sets", "mongodb://a?readPreference=nearest&readPreferenceTags=dc:ny,rack:1&readPreferenceTags=dc:ny&readPreferenceTags=&maxStalenessSeconds=90", connstring.Config{
			Hosts: []address.Address{"a:27017"}, ReadPreference: "nearest", MaxStaleness: ptr(90 * time.Second),
			ReadPreferenceTags: []connstring.TagSet{{{"dc", "ny"}, {"rack", "1"}}, {{"dc", "ny"}}, {}},
		}},
		{"write concern", "mongodb://a?w=majority&journal=true&wTimeoutMS=5000000000", connstring.Config{
			Hosts: []address.Address{"a:27017"}, WriteConcern: connstring.WriteConcern{Tag: "majority", Journal: ptr(true), WTimeoutMS: ptr(int64(5000000000))},
		}},
		{"proxy", "mongodb://a?proxyHost=p&proxyUsername=&proxyPassword=", connstring.Config{
			Hosts: []address.Address{"a:27017"}, Proxy: connstring.Proxy{Host: "p", Port: 1080},
		}},
		{"tls and ssl agree", "mongodb://a?tls=true&ssl=true&tls=true", connstring.Config{
			Hosts: []address.Address{"a:27017"}, TLS: connstring.TLS{Enabled: ptr(true)},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := connstring.Parse(tt.uri)
			if err != nil {
				t.Fatalf("Parse(%q) = %v", tt.uri, err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				type plain connstring.Config
				t.Errorf("Parse(%q) = %+v\nwant %+v", tt.uri, plain(got), plain(tt.want))
			}
		})
	}
}

func TestParseWarns(t *testing.T) {
	tests := []struct{ query, warning string }{
		{"foo=bar", "Unsupported option 'foo'"},
		{"serverSelectionTryOnce=false", "Option 'serverSelectionTryOnce' is ignored: it is for single-threaded drivers only"},
		{"Journal=1", `Deprecated boolean value for "Journal" : "1", please update to "Journal=true"`},
		{"wtimeout=5", `Deprecated key "wtimeout" has been replaced with "wTimeoutMS"`},
		{"wtimeout=5&wTimeoutMS=1", `Deprecated key "wtimeout" present and ignored as found replacement "wTimeoutMS" value`},
		{"replicaSet=a&replicaSet=b", "Option 'replicaSet' is given 2 times; the last one counts"},
		{"compressors=snoopy", "Unsupported compressor: 'snoopy'"},
		{"heartbeatFrequencyMS=499", `Unsupported value for "heartbeatFrequencyMS" : "499": it is not between 500 and 2147483647`},
		{"maxPoolSize=99999999999999999999", `Unsupported value for "maxPoolSize" : "99999999999999999999": it is not between 0 and 2147483647`},
		{"maxStalenessSeconds=89", `Unsupported value for "maxStalenessSeconds" : "89": it is less than 90 and not -1`},
		{"appName=" + strings.Repeat("a", 129), "it is longer than 128 bytes"},
		{"authMechanismProperties=AWS_SESSION_TOKEN", `Unsupported value for "authMechanismProperties": it is not a list of name:value`},
		{"w=-1", "it is not between"},
	}
	for _, tt := range tests {
		c, err := connstring.Parse("mongodb://a/?" + tt.query)
		if err != nil || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].String(), tt.warning) {
			t.Errorf("Parse(?%s): warnings %q, error %v, want %q", tt.query, c.Warnings, err, tt.warning)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, uri := range []string{
		"", "mongodb:/a", "http://a", "mongodb://", "mongodb://a,,b", "mongodb://a/d$b", "mongodb://a/d%2Fb", "mongodb://a/d%",
		"mongodb://a/?w", "mongodb://a/?w=%", "mongodb://@a", "mongodb://:@a", "mongodb://a/?authSource=",
		"mongodb://a/?authMechanism=NONE", "mongodb://u@a/?authMechanism=MONGODB-AWS", "mongodb://u@a/?authMechanism=PLAIN",
		"mongodb://u:p@a/?authMechanism=MONGODB-X509", "mongodb://u:p@a/?authMechanism=GSSAPI&authSource=x",
		"mongodb+srv://a,b", "mongodb+srv://a:1", "mongodb+srv://[::1]", "mongodb+srv://a/?directConnection=true",
		"mongodb://a?minPoolSize=101", "mongodb://a?minPoolSize=3&maxPoolSize=2", "mongodb://a?tls=1&ssl=false",
		"mongodb://a?readPreferenceTags=a:b", "mongodb://a?maxStalenessSeconds=90", "mongodb://a?srvMaxHosts=0",
		"mongodb://a?w=0&journal=true",
	} {
		if c, err := connstring.Parse(uri); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", uri, c)
		}
	}
}

func TestNoSecretIsShown(t *testing.T) {
	for _, uri := range []string{
		"mongodb://user:hunter2@a/?proxyHost=p&proxyUsername=u&proxyPassword=hunter2",
		"mongodb://a/?tlsCertificateKeyFilePassword=hunter2",
		"mongodb://a/?proxyPassword=hunter2",
		"mongodb://user:hunter2%@a", "mongodb://user:hunter2:x@a", "mongodb://user:hunter2/x@a/b", "mongodb://user:hunter2?x@a/b",
		"mongodb://user:hunter2#x@a/b", "mongodb://user:x@hunter2@a/b",
		"mongodb://a/?authMechanismProperties=AWS_SESSION_TOKEN:x,hunter2",
		"mongodb://u:p@a/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:hunter2",
	} {
		c, err := connstring.Parse(uri)
		for _, text := range []string{
			fmt.Sprint(err), fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), fmt.Sprint(&c), fmt.Sprint(c.Warnings),
		} {
			if strings.Contains(text, "hunter2") {
				t.Errorf("Parse(%q): a secret in %q", uri, text)
			}
		}
	}
}

func TestOptionsAreDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range connstring.Options() {
		if o.Name() == "" || o.Doc() == "" || seen[strings.ToLower(o.Name())] {
			t.Errorf("option %q is without text or there twice", o.Name())
		}
		seen[strings.ToLower(o.Name())] = true
	}
}

func FuzzParse(f *testing.F) {
	for _, uri := range []string{
		"mongodb://u:p@a:1,[::1],%2Fx.sock/db?tls=true&readPreferenceTags=a:b&authMechanismProperties=A:b:c",
		"mongodb+srv://a.b.c/?srvMaxHosts=1", "mongodb://a?x=mongodb://b",
	} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		c, err := connstring.Parse(uri)
		if err != nil {
			return
		}
		if (len(c.Hosts) == 0) == (c.SRVHost == "") {
			t.Errorf("Parse(%q): neither or both of hosts and SRV host", uri)
		}
		for _, h := range c.Hosts {
			if again, err := address.Parse(string(h)); err != nil || again != h {
				t.Errorf("Parse(%q): host %q is not normal: %q, %v", uri, h, again, err)
			}
		}
	})
}
