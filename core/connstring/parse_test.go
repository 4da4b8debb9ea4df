package connstring_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/connstring"
)

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
			Hosts: []address.Address{"a:27017"}, HasCredential: true, Username: "u",
			HasPassword: true, AuthSource: "admin",
		}},
		{"mechanism without userinfo", "mongodb://a/db?authMechanism=MONGODB-X509", connstring.Config{
			Hosts: []address.Address{"a:27017"}, Database: "db", HasCredential: true,
			AuthMechanism: "MONGODB-X509", AuthSource: "$external",
		}},
		{"srv", "mongodb+srv://Cluster.example.com/?srvMaxHosts=2&tls=false", connstring.Config{
			SRV: true, SRVHost: "cluster.example.com", SRVMaxHosts: new(int32(2)),
			TLS: connstring.TLS{Enabled: new(false)},
		}},
		{"pool", "mongodb://a?maxPoolSize=0&minPoolSize=7&maxConnecting=3&maxIdleTimeMS=5&waitQueueTimeoutMS=0", connstring.Config{
			Hosts: []address.Address{"a:27017"}, MaxPoolSize: new(uint64(0)),
			MinPoolSize:   new(uint64(7)),
			MaxConnecting: new(uint64(3)), MaxIdleTime: new(5 * time.Millisecond),
			WaitQueueTimeout: new(time.Duration(0)),
		}},
		{"tag sets", "mongodb://a?readPreference=nearest&readPreferenceTags=dc:ny,rack:1&readPreferenceTags=dc:ny&readPreferenceTags=&maxStalenessSeconds=90", connstring.Config{
			Hosts: []address.Address{"a:27017"}, ReadPreference: "nearest",
			MaxStaleness: new(90 * time.Second),
			ReadPreferenceTags: []connstring.TagSet{
				{{"dc", "ny"}, {"rack", "1"}}, {{"dc", "ny"}}, {},
			},
		}},
		{"write concern", "mongodb://a?w=majority&journal=true&wTimeoutMS=5000000000", connstring.Config{
			Hosts: []address.Address{"a:27017"}, WriteConcern: connstring.WriteConcern{
				Tag: "majority", Journal: new(true), WTimeoutMS: new(int64(5000000000)),
			},
		}},
		{"proxy", "mongodb://a?proxyHost=p&proxyUsername=&proxyPassword=", connstring.Config{
			Hosts: []address.Address{"a:27017"}, Proxy: connstring.Proxy{Host: "p", Port: 1080},
		}},
		{"tls and ssl agree", "mongodb://a?tls=true&ssl=true&tls=true", connstring.Config{
			Hosts: []address.Address{"a:27017"}, TLS: connstring.TLS{Enabled: new(true)},
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
		{"heartbeatFrequencyMS=499", `Unsupported value for "heartbeatFrequencyMS" : "499": must be between 500 and 2147483647`},
		{"maxPoolSize=99999999999999999999", `Unsupported value for "maxPoolSize" : "99999999999999999999": must be between 0 and 2147483647`},
		{"maxStalenessSeconds=-2", `Unsupported value for "maxStalenessSeconds" : "-2": must be between -1`},
		{"wTimeoutMS=-1", `Unsupported value for "wTimeoutMS" : "-1"`},
		{"gssapiServiceName=x", `Deprecated key "gssapiServiceName" has been replaced with "authMechanismProperties"`},
		{"foo=a@b", "An unsupported option is ignored; it is not named"},
		{"appName=" + strings.Repeat("a", 129), "must have at most 128 bytes"},
		{"maxAdaptiveRetries=-1", `Unsupported value for "maxAdaptiveRetries" : "-1": must be between 0 and 2147483647`},
		{"enableOverloadRetargeting=maybe", `Unsupported value for "enableOverloadRetargeting" : "maybe": must be true or false`},
		{"authMechanismProperties=AWS_SESSION_TOKEN", `Unsupported value for "authMechanismProperties": must be a list of name:value`},
	}
	for _, tt := range tests {
		c, err := connstring.Parse("mongodb://a/?" + tt.query)
		if err != nil || len(c.Warnings) != 1 ||
			!strings.Contains(c.Warnings[0].String(), tt.warning) {
			t.Errorf("Parse(?%s): warnings %q, error %v, want %q", tt.query, c.Warnings, err,
				tt.warning)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, uri := range []string{
		"", "mongodb:/a", "http://a", "mongodb://", "mongodb://a,,b", "mongodb://a/d$b", "mongodb://a/d%2Fb", "mongodb://a/d%",
		"mongodb://a/?w", "mongodb://a/?w=%", "mongodb://@a", "mongodb://:@a", "mongodb://a/?authSource=",
		"mongodb://a/?authMechanism=NONE", "mongodb://a/?maxAdaptiveRetries=1&retryReads=%",
		"mongodb://u:p@a/?authMechanism=MONGODB-X509", "mongodb://u:p@a/?authMechanism=GSSAPI&authSource=x",
		"mongodb+srv://a,b", "mongodb+srv://a:1", "mongodb+srv://[::1]", "mongodb+srv://a/?directConnection=true",
		"mongodb://a?minPoolSize=101", "mongodb://a?minPoolSize=3&maxPoolSize=2", "mongodb://a?tls=1&ssl=false",
		"mongodb://a?readPreferenceTags=a:b", "mongodb://a?maxStalenessSeconds=90", "mongodb://a?srvMaxHosts=0",
		"mongodb://a?w=0&journal=true", "mongodb://a?w=-1", "mongodb://a?w=2147483648",
		"mongodb://a?appName=%ff", "mongodb://%ff", "mongodb://u:%ff@a", "mongodb://a/%ff", "mongodb://a/a%00b",
		"mongodb://a?proxyHost=", "mongodb://a?proxyHost=a/b", "mongodb://%2Fx.sock/?proxyHost=p", "mongodb://a?proxyHost=p&proxyPassword=p",
		"mongodb://a?proxyHost=p&proxyPassword=p&proxyUsername=" + strings.Repeat("u", 256),
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
		"mongodb://user:123?hunter2@a/b", "mongodb://user:123?hunter2=%@a/b", "mongodb://user:123?hunter2=x@a/b", "mongodb://user:123/hunter2@a/b",
		"mongodb://root:P@ss?hunter2@db/", "mongodb://root:P@ss:hunter2/1@db/", "mongodb://root:P@ss,w0:hunter2/x@db/", "mongodb://root:P@ss?hunter2=1@db/",
		"mongodb://root:123?journal=hunter2@db", "mongodb://root:123?tls=true&tls=hunter2@db",
		"mongodb://a/?proxyHost=p&proxyUsername=u&proxyPassword=se&hunter2", "mongodb://a/?tlsCertificateKeyFilePassword=se&hunter2=x", "mongodb://a/?tlsCertificateKeyFilePassword=se&x=1&hunter2=%",
		"mongodb://u:p@a/?authMechanismProperties=x:hunter2", "mongodb://u:p@a/?authMechanismProperties=hunter2",
		"mongodb://a/?authMechanismProperties=AWS_SESSION_TOKEN:x,hunter2",
		"mongodb://a/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:hunter2",
		"mongodb://AKIA:hunter2@a/?authMechanism=MONGODB-AWS",
	} {
		c, err := connstring.Parse(uri)
		for _, text := range []string{
			fmt.Sprint(err), fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), fmt.Sprint(&c), fmt.Sprint(c.Warnings),
			fmt.Sprintf("%d", c), fmt.Sprintf("%x", c), marshal(t, c), marshal(t, &c), fmt.Sprint(c.Settings()), //nolint:govet // it is what is tested
			fmt.Sprintf("%+v %#v %+v %#v %+v %#v", c.Proxy, c.Proxy, c.TLS, c.TLS, c.AuthMechanismProperties, c.AuthMechanismProperties),
			fmt.Sprint(c.CheckAuth(connstring.InCode{})),
		} {
			if strings.Contains(text, "hunter2") {
				t.Errorf("Parse(%q): a secret in %q", uri, text)
			}
		}
	}
}

func marshal(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestParseWith(t *testing.T) {
	tests := []struct {
		name, query string
		beside      map[string][]string
		want        string // what the string would be
		warnings    int
	}{
		{"nothing", "appName=a", nil, "appName=a", 0},
		{"added", "appName=a", map[string][]string{"REPLICASET": {"r s"}}, "appName=a&replicaSet=r%20s", 0},
		{"the string wins", "appName=a", map[string][]string{"appname": {"b"}}, "appName=a", 1},
		{"by another name", "ssl=true&wtimeout=1", map[string][]string{"tls": {"false"}, "wTimeoutMS": {"2"}}, "tls=true&wTimeoutMS=1", 3},
		{"lists are not joined", "readPreference=nearest&readPreferenceTags=a:b", map[string][]string{"readPreferenceTags": {"c:d", ""}}, "readPreference=nearest&readPreferenceTags=a:b", 1},
		{"lists", "", map[string][]string{"readPreference": {"nearest"}, "readPreferenceTags": {"c:d", ""}}, "readPreference=nearest&readPreferenceTags=c:d&readPreferenceTags=", 0},
		{"not encoded", "", map[string][]string{"appName": {"100%25"}}, "appName=100%2525", 0},
		{"ignored", "", map[string][]string{"journal": {"maybe"}, "unknown": {"x"}}, "", 2},
		{"repeated", "", map[string][]string{"appName": {"a", "b"}}, "appName=b", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := connstring.ParseWith("mongodb://a/?"+tt.query, tt.beside)
			if err != nil {
				t.Fatal(err)
			}
			want := "mongodb://a:27017/"
			if tt.want != "" {
				want += "?" + tt.want
			}
			if c.String() != want || len(c.Warnings) != tt.warnings {
				t.Errorf("ParseWith() = %v, %q, want %s and %d warnings", c, c.Warnings, want,
					tt.warnings)
			}
		})
	}
	for query, beside := range map[string]string{
		"tlsInsecure=true": "tlsAllowInvalidHostnames", "readPreferenceTags=a:b": "retryReads", "proxyUsername=u": "proxyHost", "loadBalanced=true": "replicaSet",
	} {
		if c, err := connstring.ParseWith("mongodb://a/?"+query, map[string][]string{beside: {"true"}}); err == nil {
			t.Errorf("ParseWith(%s, %s) = %v, want an error", query, beside, c)
		}
	}
}

func TestString(t *testing.T) {
	for _, uri := range []string{
		"mongodb://a:1,[::1]:27017,%2Fx%20y.sock/d%C3%A9?maxPoolSize=0&w=majority",
		"mongodb+srv://a.b.c/?srvMaxHosts=2&tls=false",
		"mongodb://a:27017/?appName=%26%25%20%3D%2B&directConnection=true&compressors=zstd,zlib&zlibCompressionLevel=-1",
		"mongodb+srv://a.b.c/?authMechanism=MONGODB-X509&authSource=%24external", "mongodb://a/?authSource=b", "mongodb://a:27017/?readPreference=nearest&maxStalenessSeconds=89&w=3&wTimeoutMS=5",
	} {
		c := parse(t, uri)
		if again := parse(t, c.String()); !reflect.DeepEqual(again, c) {
			t.Errorf("Parse(%q).String() = %s", uri, c)
		}
	}
	c := parse(t, "mongodb://u:p@a/?authMechanism=GSSAPI&proxyHost=%5B::1%5D&proxyUsername=x&proxyPassword=y&tlsCertificateKeyFilePassword=z")
	want := "mongodb://***@a:27017/?authMechanism=GSSAPI&authMechanismProperties=SERVICE_NAME:mongodb" +
		"&tlsCertificateKeyFilePassword=***&proxyHost=::1&proxyPort=1080&proxyUsername=***&proxyPassword=***"
	if c.String() != want {
		t.Errorf("String() = %s\nwant %s", c, want)
	}
}

func TestSameButUser(t *testing.T) {
	const uri = "u:p@a/?authMechanism=PLAIN&proxyHost=h&proxyUsername=x&proxyPassword=y&tlsCertificateKeyFilePassword=z&tls=true"
	c := parse(t, "mongodb://"+uri)
	for _, tt := range []struct {
		uri  string
		want bool
	}{
		{uri, true},
		{strings.Replace(uri, "u:p", "v:q", 1), true},
		{uri + "&unknown=1", true},
		{strings.Replace(uri, "p@a", "p@b", 1), false},
		{strings.Replace(uri, "=x", "=w", 1), false},
		{strings.Replace(uri, "=y", "=w", 1), false},
		{strings.Replace(uri, "=z", "=w", 1), false},
		{strings.Replace(uri, "tls=true", "tls=false", 1), false},
		{uri + "&authMechanismProperties=a:b", false},
	} {
		if got := parse(t, "mongodb://"+tt.uri).SameButUser(c); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.uri, got, tt.want)
		}
	}
	with, without := parse(t, "mongodb://u@a/?authMechanism=MONGODB-X509"),
		parse(t, "mongodb://a/?authMechanism=MONGODB-X509")
	if with.SameButUser(without) {
		t.Error("a user name more is no change")
	}
}

// TestMechanismsThatParseRefuses checks the errors of AU-101 and AU-103, which name the reason.
func TestMechanismsThatParseRefuses(t *testing.T) {
	for _, tt := range []struct{ uri, want string }{
		{"u@a/?authMechanism=MONGODB-AWS", "MONGODB-AWS takes neither a user name nor a password: its credentials come from the environment"},
		{"u:p@a/?authMechanism=MONGODB-AWS", "takes neither a user name nor a password"},
		{":@a/?authMechanism=MONGODB-AWS", "takes neither a user name nor a password"},
		{"u:p@a/?authMechanism=SCRAM", "option authMechanism: must be one of SCRAM-SHA-256, SCRAM-SHA-1, MONGODB-X509, MONGODB-AWS, MONGODB-OIDC, GSSAPI, PLAIN"},
		{"u:p@a/?authMechanism=MONGODB-CR", "option authMechanism: MONGODB-CR was removed from MongoDB"},
		{"a/?authMechanism=MONGODB-CR", "MONGODB-CR was removed from MongoDB"},
	} {
		_, err := connstring.Parse("mongodb://" + tt.uri)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Parse(mongodb://%s) = %v, want %q", tt.uri, err, tt.want)
		}
	}
}

func TestOverloadOptions(t *testing.T) {
	c := parse(t, "mongodb://a/?maxAdaptiveRetries=0&enableOverloadRetargeting=true")
	if c.MaxAdaptiveRetries == nil || *c.MaxAdaptiveRetries != 0 || !c.EnableOverloadRetargeting ||
		len(c.Warnings) > 0 {
		t.Errorf("maxAdaptiveRetries %v, enableOverloadRetargeting %v, warnings %v",
			c.MaxAdaptiveRetries, c.EnableOverloadRetargeting, c.Warnings)
	}
	if c := parse(t, "mongodb://a/"); c.MaxAdaptiveRetries != nil || c.EnableOverloadRetargeting {
		t.Errorf("without the options: %v, %v", c.MaxAdaptiveRetries, c.EnableOverloadRetargeting)
	}
}

func TestCheckAuth(t *testing.T) {
	tests := []struct {
		uri, want string // "": no error
	}{
		{"a/?authMechanismProperties=a:b", ""}, // without authentication
		{"u:p@a", ""},
		{"u:@a", ""},
		{"u@a", "authentication needs a password"},
		{"u@a/?authMechanism=PLAIN", "PLAIN needs a password"},
		{"u@a/?authMechanism=SCRAM-SHA-1", "SCRAM-SHA-1 needs a password"},
		{"u:p@a/?authMechanismProperties=SERVICE_NAME:b", "authentication takes no property SERVICE_NAME"},
		{"u:p@a/?authMechanism=SCRAM-SHA-256&authMechanismProperties=X:b", "SCRAM-SHA-256 takes no property X"},
		{"a/?authMechanism=MONGODB-X509&authMechanismProperties=X:b", "MONGODB-X509 takes no property"},
		{"u@a/?authMechanism=GSSAPI&authMechanismProperties=service_name:b,Service_Realm:c,SERVICE_HOST:d,CANONICALIZE_HOST_NAME:true", ""},
		{"u@a/?authMechanism=GSSAPI&authMechanismProperties=CANONICALIZE_HOST_NAME:reverse", `does not support the CANONICALIZE_HOST_NAME "reverse"`},
		{"a/?authMechanism=MONGODB-AWS", ""},
		{"a/?authMechanism=MONGODB-AWS&authMechanismProperties=aws_session_token:t", "takes no AWS_SESSION_TOKEN: its credentials come from the environment"},
		{"a/?authMechanism=MONGODB-AWS&authMechanismProperties=SERVICE_NAME:t", "takes no property SERVICE_NAME"},
		{"a/?authMechanism=MONGODB-OIDC", "needs the property ENVIRONMENT"},
		{"a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s", ""},
		{"a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k9s", "does not support the ENVIRONMENT"},
		{"a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s,TOKEN_RESOURCE:x", "takes no TOKEN_RESOURCE"},
		{"a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:azure", "needs the property TOKEN_RESOURCE"},
		{"u@a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:azure,TOKEN_RESOURCE:mongodb://x", ""},
		{"u@a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:test", "no user name"},
		{"a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s,ALLOWED_HOSTS:x", "takes no ALLOWED_HOSTS: it belongs to the human flow"},
	}
	for _, tt := range tests {
		c := parse(t, "mongodb://"+tt.uri)
		err := c.CheckAuth(connstring.InCode{})
		if (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: CheckAuth() = %v, want %q", tt.uri, err, tt.want)
		}
	}
}

func TestCheckAuthWithPartsInCode(t *testing.T) {
	user, provider := connstring.InCode{User: true}, connstring.InCode{TokenProvider: true}
	for _, tt := range []struct {
		uri   string
		given connstring.InCode
		want  string
	}{
		{"u@a", user, ""},
		{"u@a/?authMechanism=PLAIN", user, ""},
		{"u@a/?authMechanism=MONGODB-OIDC", provider, ""},
		{"u:p@a", provider, "needs authMechanism=MONGODB-OIDC"},
		{"a", provider, "needs authMechanism=MONGODB-OIDC"},
		{"a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:test", provider, "takes neither ENVIRONMENT"},
		{"a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:", provider, "takes neither ENVIRONMENT"},
		{"a/?authMechanism=MONGODB-OIDC&authMechanismProperties=TOKEN_RESOURCE:x", provider, "nor TOKEN_RESOURCE"},
		{"a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:test,ALLOWED_HOSTS:", provider, "takes no ALLOWED_HOSTS"},
	} {
		c := parse(t, "mongodb://"+tt.uri)
		err := c.CheckAuth(tt.given)
		if (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: CheckAuth(%+v) = %v, want %q", tt.uri, tt.given, err, tt.want)
		}
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
		if again, err := connstring.Parse(c.String()); c.HasCredential ||
			len(c.AuthMechanismProperties) > 0 || c.Proxy.Username != "" {
			// masked
		} else if c.Warnings = nil; err != nil || again.String() != c.String() ||
			again.Hosts == nil != (c.Hosts == nil) {
			t.Errorf("Parse(%q) = %v, which is read as %v, %v", uri, c, again, err)
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

// Nothing listens on port 0, and another port must not be taken for it unseen.
func TestProxyPortZero(t *testing.T) {
	c := parse(t, "mongodb://a/?proxyHost=p&proxyPort=0")
	if len(c.Warnings) != 1 || c.Warnings[0].Option != "proxyPort" ||
		c.Proxy.Port != connstring.DefaultProxyPort {
		t.Errorf("port %d, warnings %v, want the default's and a warning", c.Proxy.Port, c.Warnings)
	}
}
